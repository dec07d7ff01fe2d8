/*
 * How ranks find out who is missing. An operation that gives up tells all ranks so in a report; one
 * that has stalled listens for such reports, and on hearing one gives up too and tells. Those who
 * tell nothing within a grace period did not come; of a rank whose process has ended, which some
 * transports can tell, nobody waits for anything. A healthy communicator sends nothing, and posts
 * something only where an abort by another rank could pass for success (backend.h, `misleads`).
 *
 * Any thread, where the transport is concurrent; otherwise the one that calls on the communicator.
 */
#ifndef ALNICO_COMM_COMMUNICATOR_FAILURE_DETECTOR_H
#define ALNICO_COMM_COMMUNICATOR_FAILURE_DETECTOR_H

#include "comm/transports/transport.h"

#include <pthread.h>
#include <stdbool.h>

struct report {
    int32_t rank, status; /* who gives up, and why */
    /* In which operation of the communicator, from 1; of messages, after which; 0: in none. */
    uint64_t sequence;
    uint64_t count; /* of how many elements, in vector forms on this rank; and which */
    int32_t type, op, collective, root;
    double waited; /* seconds that it has stalled */
};

struct watch {
    pthread_mutex_t lock;
    struct report *reports;  /* by rank; status SUCCESS: nothing heard. NULL before it is needed */
    struct transfer *voices; /* the sends of our own report, by rank */
    struct transfer ear;
    struct report arriving;
    bool listening, told;
    int heard; /* reports of other ranks */
    double told_at;
};

void watch_init(struct watch *watch);

/* Listens, and says whether any rank has given up. */
bool watch_reported(struct watch *watch, struct transport *transport);

/* The same, or is gone. */
bool watch_hears(struct watch *watch, struct transport *transport);

/* Tells all other ranks. Only the first time counts. */
void watch_tell(struct watch *watch, struct transport *transport, const struct report *mine);

/* After telling: blocks until the transport has taken the report for all ranks, or for so many
 * seconds. */
void watch_deliver(struct watch *watch, struct transport *transport, double seconds);

/* Whether this rank has told. */
bool watch_has_told(struct watch *watch);

/* After telling: ALNICO_PENDING while reports may still come, then the verdict: ABORTED, MISMATCH,
 * TIMEOUT or another rank's error, with the thread's error detail naming `operation` and the rank.
 * `awaited` >= 0: only that rank was to come. */
alnico_status_t watch_verdict(struct watch *watch, struct transport *transport, double timeout,
                              const char *operation, int awaited);

/* Seconds of stalling after which an operation listens: short against the deadline. */
double watch_patience(double timeout);

/* Ends what is on its way and frees. */
void watch_finish(struct watch *watch, struct transport *transport);

#endif
