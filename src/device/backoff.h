/* Backoff of a waiting thread: spin, then yield, then sleep. The waiter owns one, and resets it
 * first and whenever something advanced. */
#ifndef ALNICO_DEVICE_BACKOFF_H
#define ALNICO_DEVICE_BACKOFF_H

#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <time.h>

enum {
    BACKOFF_SPINS = 1000,       /* about 10-50 us: a message between two cores takes less */
    BACKOFF_YIELD_NS = 1000000, /* then the awaited has stalled */
    BACKOFF_SLEEP_NS = 20000,   /* the first sleep; each next one is longer by half */
    BACKOFF_SLEEP_LIMIT_NS = 1000000
};

struct backoff {
    unsigned spins;
    bool yielding;
    int64_t sleep_at_ns; /* while yielding: when that has been long enough */
    long sleep_ns;
    bool crowded; /* more threads want to run than there are cores: do not spin */
};

static inline void backoff_reset(struct backoff *b)
{
    b->spins = 0;
    b->yielding = false;
    b->sleep_ns = BACKOFF_SLEEP_NS;
}

/* Tells the core that this is a spin loop. */
static inline void backoff_relax(void)
{
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ volatile("yield");
#endif
}

static inline int64_t backoff_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* One failed try: spins or yields. True once it is time to sleep instead, with sleep_ns the length.
 * Yields are timed, not counted: where others want the core, one of them takes milliseconds. */
static inline bool backoff_wants_sleep(struct backoff *b)
{
    if (b->spins < BACKOFF_SPINS && !b->crowded) {
        b->spins++;
        backoff_relax();
        return false;
    }
    int64_t now = backoff_now_ns();
    if (!b->yielding)
        b->sleep_at_ns = now + BACKOFF_YIELD_NS;
    else if (now >= b->sleep_at_ns)
        return true;
    b->yielding = true;
    sched_yield();
    return false;
}

/* The next sleep is longer. */
static inline void backoff_slept(struct backoff *b)
{
    b->sleep_ns += b->sleep_ns / 2;
    if (b->sleep_ns > BACKOFF_SLEEP_LIMIT_NS)
        b->sleep_ns = BACKOFF_SLEEP_LIMIT_NS;
}

/* One failed try for a waiter that nobody can wake: spins, yields or sleeps. */
static inline void backoff_pause(struct backoff *b)
{
    if (!backoff_wants_sleep(b))
        return;
    struct timespec length = {0, b->sleep_ns};
    nanosleep(&length, NULL);
    backoff_slept(b);
}

/* The outcome of one look of a waiter. */
enum wait { WAIT_IDLE, WAIT_MOVED, WAIT_DONE };

#define WAIT_FOREVER INT64_MAX

/* So many seconds from now, about thirty years at most, for wait_until. */
static inline int64_t deadline_ns(double seconds)
{
    return backoff_now_ns() + (int64_t)(1e9 * (seconds < 1e9 ? seconds : 1e9));
}

/* Looks until WAIT_DONE, backing off while nothing moves: true; or false at `end_ns` on
 * backoff_now_ns's clock. Inlined, so that a hot loop calls nothing but its own look. */
static inline __attribute__((always_inline)) bool
wait_until(enum wait (*look)(void *context), void *context, int64_t end_ns, bool crowded)
{
    struct backoff backoff = {.crowded = crowded};
    backoff_reset(&backoff);
    for (;;) {
        enum wait found = look(context);
        if (found == WAIT_DONE)
            return true;
        if (end_ns != WAIT_FOREVER && backoff_now_ns() >= end_ns)
            return false;
        if (found == WAIT_MOVED)
            backoff_reset(&backoff);
        else
            backoff_pause(&backoff);
    }
}

#endif
