/* A list with a lock: programs have few such pieces of memory, and look one up for a large message. */
#include "comm/communicator/shareable.h"

#include "base/status.h"
#include "comm/communicator/comm.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

static struct {
    pthread_mutex_t lock;
    struct shareable *first;
    struct shareable_keeper *keepers;
    uint64_t numbers;
    atomic_int count;
} all = {.lock = PTHREAD_MUTEX_INITIALIZER};

void shareable_lock(void)
{
    pthread_mutex_lock(&all.lock);
}

void shareable_unlock(void)
{
    pthread_mutex_unlock(&all.lock);
}

bool shareable_some(void)
{
    return atomic_load_explicit(&all.count, memory_order_relaxed) > 0;
}

alnico_status_t shareable_add(const struct shareable *memory, struct shareable **out)
{
    struct shareable *added = malloc(sizeof *added);
    if (!added)
        return error_set(ALNICO_ERROR_MEMORY, "no memory to keep what ranks may share");
    *added = *memory;
    shareable_lock();
    added->number = ++all.numbers;
    added->next = all.first;
    all.first = added;
    atomic_fetch_add(&all.count, 1);
    shareable_unlock();
    *out = added;
    return ALNICO_SUCCESS;
}

static bool holds(const struct shareable *s, const void *memory, size_t bytes)
{
    size_t at = (size_t)((const char *)memory - s->base);
    return (const char *)memory >= s->base && at <= s->bytes && bytes <= s->bytes - at;
}

bool shareable_find(const struct alnico_comm *comm, const void *memory, size_t bytes,
                    struct shareable *out)
{
    shareable_lock();
    const struct shareable *s = all.first;
    while (s && !((s->comm ? s->comm == comm : s->device == comm->device->kind) &&
                  holds(s, memory, bytes)))
        s = s->next;
    if (s)
        *out = *s;
    shareable_unlock();
    return s != NULL;
}

/* With the lock. */
static void remove_link(struct shareable **link)
{
    struct shareable *s = *link;
    *link = s->next;
    for (struct shareable_keeper *k = all.keepers; k; k = k->next)
        k->gone(k, s->number);
    atomic_fetch_sub(&all.count, 1);
    free(s);
}

bool shareable_remove(const struct alnico_comm *comm, const struct shareable *memory)
{
    shareable_lock();
    struct shareable **link = &all.first;
    while (*link && (*link != memory || (*link)->comm != comm))
        link = &(*link)->next;
    bool found = *link != NULL;
    if (found)
        remove_link(link);
    shareable_unlock();
    return found;
}

void shareable_remove_all(const struct alnico_comm *comm)
{
    shareable_lock();
    for (struct shareable **link = &all.first; *link;) {
        if ((*link)->comm == comm)
            remove_link(link);
        else
            link = &(*link)->next;
    }
    shareable_unlock();
}

void shareable_remove_at(alnico_device_t device, const void *base)
{
    shareable_lock();
    struct shareable **link = &all.first;
    while (*link && ((*link)->comm || (*link)->device != device || (*link)->base != base))
        link = &(*link)->next;
    if (*link)
        remove_link(link);
    shareable_unlock();
}

void shareable_keep(struct shareable_keeper *keeper)
{
    shareable_lock();
    keeper->next = all.keepers;
    all.keepers = keeper;
    shareable_unlock();
}

void shareable_keep_no_more(struct shareable_keeper *keeper)
{
    shareable_lock();
    struct shareable_keeper **link = &all.keepers;
    while (*link && *link != keeper)
        link = &(*link)->next;
    if (*link)
        *link = keeper->next;
    shareable_unlock();
}
