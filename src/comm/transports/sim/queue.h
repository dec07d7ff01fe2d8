/* Events of a simulation in the order of their time, and first in, first out at the same time. A
 * radix heap: time never goes back, so an event is filed by the highest bit in which it differs
 * from the present, and is moved a few times only. One thread. */
#ifndef ALNICO_COMM_TRANSPORTS_SIM_QUEUE_H
#define ALNICO_COMM_TRANSPORTS_SIM_QUEUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct sim_event {
    uint64_t time;
    uintptr_t what; /* the owner's */
};

/* All zero is an empty queue at time 0. */
struct sim_queue {
    uint64_t now;    /* of the last event that was taken */
    size_t taken;    /* of bucket 0, which holds the events of now */
    uint64_t filled; /* bit b: bucket b + 1 holds events */
    struct sim_bucket {
        struct sim_event *event;
        size_t count, room;
    } bucket[65];
};

/* time >= now. False if there is no memory. */
bool sim_queue_push(struct sim_queue *queue, uint64_t time, uintptr_t what);

/* Takes the first event, whose time becomes now; false if there is none, or *failed for want of
 * memory. */
bool sim_queue_take(struct sim_queue *queue, struct sim_event *out, bool *failed);

void sim_queue_finish(struct sim_queue *queue);

#endif
