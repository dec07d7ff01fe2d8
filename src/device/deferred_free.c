/* One list in the process: see later.h. */
#include "device/deferred_free.h"

#include <pthread.h>

static struct {
    pthread_mutex_t lock;
    struct later *first;
    size_t bytes;
} waiting = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* With the lock held. */
static struct later *take_all(void)
{
    struct later *all = waiting.first;
    waiting.first = NULL;
    waiting.bytes = 0;
    return all;
}

static void release_all(struct later *item)
{
    while (item) {
        struct later *next = item->next;
        item->release(item);
        item = next;
    }
}

void later_put(struct later *item)
{
    struct later *old = NULL;
    pthread_mutex_lock(&waiting.lock);
    if (waiting.bytes + item->bytes > LATER_BYTES)
        old = take_all();
    item->next = waiting.first;
    waiting.first = item;
    waiting.bytes += item->bytes;
    pthread_mutex_unlock(&waiting.lock);
    release_all(old);
}

void later_run(void)
{
    pthread_mutex_lock(&waiting.lock);
    struct later *all = take_all();
    pthread_mutex_unlock(&waiting.lock);
    release_all(all);
}
