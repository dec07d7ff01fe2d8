/* Calibration: is a long message copied faster by the kernel once, or twice through the ring? That
 * depends on the machine's system calls, page pinning and caches. A receiver measures both with the
 * first messages of about each size, and then takes the faster one. A sender that polls too rarely
 * is not waited for, whatever was measured. Under the rank's lock. */
#include "comm/transports/shm/shm.h"

#include "device/backoff.h"

enum {
    TRIES = 8, /* of each method, in a ring that was used before; the least counts */
    PATIENCE_NS = 20000,
    /* Late messages in fragments, less those in time, that make fragments the slower method. */
    LATE_MOST = 8
};

static unsigned class_of(const struct message *m)
{
    unsigned power = 0;
    for (size_t left = m->bytes; left > 1 && power < SIZE_CLASSES - 1; left /= 2)
        power++;
    return power;
}

static bool is_tried(const struct copy_times *times)
{
    return times->tries[COPY_DIRECTLY] >= TRIES && times->tries[COPY_IN_FRAGMENTS] >= TRIES;
}

static enum copy_method faster(const struct copy_times *times)
{
    bool fragments = times->late < LATE_MOST &&
                     times->picoseconds[COPY_IN_FRAGMENTS] < times->picoseconds[COPY_DIRECTLY];
    return fragments ? COPY_IN_FRAGMENTS : COPY_DIRECTLY;
}

enum copy_method calibrate_begin(const struct transport_shm *t, struct message *m)
{
    const struct copy_times *times = &t->times[class_of(m)];
    m->measured = t->options.learns && !is_tried(times);
    if (!t->options.learns)
        return COPY_DIRECTLY;
    m->began = backoff_now_ns();
    if (!m->measured)
        return faster(times);
    return times->tries[COPY_DIRECTLY] < TRIES ? COPY_DIRECTLY : COPY_IN_FRAGMENTS;
}

/* The direct method was tried first. */
bool calibrate_is_over(const struct transport_shm *t, const struct message *m)
{
    const struct copy_times *times = &t->times[class_of(m)];
    if (!t->options.learns)
        return false;
    int64_t copy_ns = m->moved ? times->picoseconds[COPY_DIRECTLY] * (int64_t)m->bytes / 1000 : 0;
    return backoff_now_ns() - m->began > PATIENCE_NS + copy_ns;
}

/* For a message in fragments, also if its rest was copied directly in the end. */
static void count_late(struct copy_times *times, const struct message *m)
{
    if (times->late == LATE_MOST || m->moved == 0)
        return;
    if (m->moved < m->bytes)
        times->late++;
    else if (times->late > 0)
        times->late--;
}

/* Asks senders to write messages that are hardly longer than eager ones into the ring at once. */
static void ask_for_whole(struct transport_shm *t)
{
    for (int i = 0; i < t->base.size; i++)
        atomic_store_explicit(&t->peer[i].in.channel->whole, 1, memory_order_relaxed);
}

void calibrate_end(struct transport_shm *t, const struct shm_peer *p, const struct message *m,
                   enum copy_method method)
{
    struct copy_times *times = &t->times[class_of(m)];
    bool untouched = method == COPY_IN_FRAGMENTS && p->in.byte < p->in.shape.bytes;
    if (method == COPY_IN_FRAGMENTS && t->options.learns)
        count_late(times, m);
    if (!m->measured || untouched)
        return;
    int64_t picoseconds = (backoff_now_ns() - m->began) * 1000 / (int64_t)m->bytes;
    if (times->tries[method] == 0 || picoseconds < times->picoseconds[method])
        times->picoseconds[method] = picoseconds;
    times->tries[method]++;
    if (is_tried(times) && faster(times) == COPY_IN_FRAGMENTS && m->bytes < 2 * t->eager)
        ask_for_whole(t);
}
