/* One list in the process, as the driver's locks and waits are the process's. */
#include "device/deferred_free.h"

#include <pthread.h>

static struct {
    pthread_mutex_t lock;
    struct deferred *first;
    size_t bytes;
} waiting = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* With the lock held. */
static struct deferred *take_all(void)
{
    struct deferred *all = waiting.first;
    waiting.first = NULL;
    waiting.bytes = 0;
    return all;
}

static void release_all(struct deferred *item)
{
    while (item) {
        struct deferred *next = item->next;
        item->release(item);
        item = next;
    }
}

void deferred_free(struct deferred *item)
{
    struct deferred *old = NULL;
    pthread_mutex_lock(&waiting.lock);
    if (waiting.bytes + item->bytes > DEFERRED_BYTES)
        old = take_all();
    item->next = waiting.first;
    waiting.first = item;
    waiting.bytes += item->bytes;
    pthread_mutex_unlock(&waiting.lock);
    release_all(old);
}

void deferred_run(void)
{
    pthread_mutex_lock(&waiting.lock);
    struct deferred *all = take_all();
    pthread_mutex_unlock(&waiting.lock);
    release_all(all);
}
