/* Tickets: operations that share scratch are served one at a time, in the order of their calls, which
 * is the same on all ranks: in different orders two of them would wait for each other. One thread
 * takes tickets; whoever polls the operations asks and goes on to the next one. */
#ifndef ALNICO_PROGRESS_TICKETS_H
#define ALNICO_PROGRESS_TICKETS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* Zero-initialised. */
struct tickets {
    uint64_t taken;
    _Atomic uint64_t served; /* the ticket that is served */
};

static inline uint64_t tickets_take(struct tickets *tickets)
{
    return tickets->taken++;
}

/* The newest ticket is not used. */
static inline void tickets_give_back(struct tickets *tickets)
{
    tickets->taken--;
}

static inline bool tickets_is_served(const struct tickets *tickets, uint64_t ticket)
{
    return atomic_load_explicit(&tickets->served, memory_order_acquire) == ticket;
}

/* Whether another is served before it. */
static inline bool tickets_is_queued(const struct tickets *tickets, uint64_t ticket)
{
    return atomic_load_explicit(&tickets->served, memory_order_acquire) < ticket;
}

/* By the owner of the ticket that is served. */
static inline void tickets_next(struct tickets *tickets)
{
    uint64_t served = atomic_load_explicit(&tickets->served, memory_order_relaxed);
    atomic_store_explicit(&tickets->served, served + 1, memory_order_release);
}

#endif
