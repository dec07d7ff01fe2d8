/* The event queue of sim/sim.c: a radix heap. One thread. */
#include "comm/transports/sim/queue.h"

#include <assert.h>
#include <stdlib.h>

static bool append(struct sim_bucket *bucket, const struct sim_event *event)
{
    if (bucket->count == bucket->room) {
        size_t room = bucket->room ? 2 * bucket->room : 16;
        struct sim_event *larger = realloc(bucket->event, room * sizeof *larger);
        if (!larger)
            return false;
        bucket->event = larger;
        bucket->room = room;
    }
    bucket->event[bucket->count++] = *event;
    return true;
}

static bool file(struct sim_queue *queue, const struct sim_event *event)
{
    assert(event->time >= queue->now);
    if (event->time == queue->now)
        return append(&queue->bucket[0], event);
    int bit = 63 - __builtin_clzll(event->time ^ queue->now);
    queue->filled |= (uint64_t)1 << bit;
    return append(&queue->bucket[bit + 1], event);
}

bool sim_queue_push(struct sim_queue *queue, uint64_t time, uintptr_t what)
{
    return file(queue, &(struct sim_event){time, what});
}

/* Moves on to the earliest time, and files the events of its bucket anew: all of them further down.
 * The other buckets stay right, because the present changes in lower bits only. */
static bool advance(struct sim_queue *queue)
{
    int bit = __builtin_ctzll(queue->filled);
    struct sim_bucket *bucket = &queue->bucket[bit + 1];
    uint64_t earliest = UINT64_MAX;
    for (size_t i = 0; i < bucket->count; i++)
        if (bucket->event[i].time < earliest)
            earliest = bucket->event[i].time;
    queue->now = earliest;
    queue->filled &= queue->filled - 1;
    bool filed = true;
    for (size_t i = 0; i < bucket->count; i++)
        filed &= file(queue, &bucket->event[i]);
    bucket->count = 0;
    return filed;
}

bool sim_queue_take(struct sim_queue *queue, struct sim_event *out, bool *failed)
{
    struct sim_bucket *present = &queue->bucket[0];
    if (queue->taken == present->count) {
        queue->taken = present->count = 0;
        if (!queue->filled)
            return false;
        *failed = !advance(queue);
        if (*failed)
            return false;
    }
    *out = present->event[queue->taken++];
    return true;
}

void sim_queue_finish(struct sim_queue *queue)
{
    for (size_t b = 0; b < sizeof queue->bucket / sizeof *queue->bucket; b++)
        free(queue->bucket[b].event);
    *queue = (struct sim_queue){0};
}
