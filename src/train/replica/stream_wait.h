/*
 * How the host waits for a replica's stream: until it has passed an event, a watched communicator
 * fails, or no step has ended for too long. Commands that hang leave an event as it is, and nothing
 * else would say so. On the thread that trains.
 */
#ifndef ALNICO_TRAIN_REPLICA_STREAM_WAIT_H
#define ALNICO_TRAIN_REPLICA_STREAM_WAIT_H

#include "device/device.h"

struct stream_wait {
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
double stream_wait_deadline(void);

alnico_status_t stream_wait_init(struct stream_wait *wait, const struct device_ops *device);
void stream_wait_finish(struct stream_wait *wait);

/* Errors: the watched communicator's; TIMEOUT, after which the call may be repeated; what failed on
 * the stream. */
alnico_status_t stream_wait_for(const struct stream_wait *wait, struct device_event *event);

/* Waits for all that was enqueued on a stream, at most so many seconds; false: it has not come
 * to rest. */
bool stream_wait_rest(const struct stream_wait *wait, void *stream, double seconds);

#endif
