/*
 * How the host waits for a replica's stream: until it has passed an event, a watched communicator
 * fails, or no step has ended for too long. Commands that hang leave an event as it is, and nothing
 * else would say so. On the thread that trains.
 */
#ifndef ALNICO_TRAIN_TRAINER_STREAM_WAIT_H
#define ALNICO_TRAIN_TRAINER_STREAM_WAIT_H

#include "device/device.h"

struct waiting {
    const struct device_ops *device;
    struct device_flag *ended; /* steps that the stream has ended: raised by whoever counts them */
    alnico_comm_t watched;     /* NULL: none */
    alnico_status_t (*status)(
        alnico_comm_t
            comm);   /* of it: a pointer, so that what has no ranks links no communicators */
    double patience; /* seconds without the end of a step */
};

/* Seconds that the library's own waits last (ALNICO_TIMEOUT). Patience is half again as much, so
 * that theirs, which say more, end first. */
double waiting_deadline(void);

alnico_status_t waiting_init(struct waiting *waiting, const struct device_ops *device);
void waiting_finish(struct waiting *waiting);

/* Errors: the watched communicator's; TIMEOUT, after which the call may be repeated; what failed on
 * the stream. */
alnico_status_t waiting_for(const struct waiting *waiting, struct device_event *event);

/* The same for all that was enqueued on a stream, at most so many seconds; false: it has not come
 * to rest. */
bool waiting_rest(const struct waiting *waiting, void *stream, double seconds);

#endif
