/* A lock-free inbox: any thread pushes, one thread takes all of it, in the order of the pushes. */
#ifndef ALNICO_PROGRESS_INBOX_H
#define ALNICO_PROGRESS_INBOX_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>

struct inbox_link {
    struct inbox_link *next;
};

struct inbox {
    _Atomic(struct inbox_link *) newest;
};

/* Sequentially consistent, because the pusher then asks whether the taker sleeps. */
static inline void inbox_push(struct inbox *inbox, struct inbox_link *link)
{
    link->next = atomic_load_explicit(&inbox->newest, memory_order_relaxed);
    while (!atomic_compare_exchange_weak(&inbox->newest, &link->next, link))
        ;
}

static inline bool inbox_empty(const struct inbox *inbox)
{
    return atomic_load(&inbox->newest) == NULL;
}

/* Everything pushed so far, oldest first, linked by next; NULL if there is nothing. Taking it all
 * in one exchange leaves no room for the ABA problem. */
static inline struct inbox_link *inbox_take(struct inbox *inbox)
{
    if (atomic_load_explicit(&inbox->newest, memory_order_relaxed) == NULL)
        return NULL;
    struct inbox_link *link = atomic_exchange_explicit(&inbox->newest, NULL, memory_order_acquire);
    struct inbox_link *oldest = NULL;
    while (link) {
        struct inbox_link *older = link->next;
        link->next = oldest;
        oldest = link;
        link = older;
    }
    return oldest;
}

#endif
