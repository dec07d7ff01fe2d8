/*
 * Failure detector: finds which ranks are missing. An operation that aborts sends a report to all
 * ranks. One that has stalled listens for reports, and if there is one aborts and reports too. A rank
 * without a report after a grace period did not come; nobody waits for a rank whose process has
 * ended, which some transports can see. A report also says for whom its rank waited: a rank that
 * waited for one that has aborted names whom that one, or the last of such a chain, has missed. A
 * healthy communicator sends nothing, and posts something only where an abort by another rank could
 * pass for success (backend.h, `misleads`).
 *
 * Any thread, where the transport is concurrent; otherwise the one that calls on the communicator.
 */
#ifndef ALNICO_COMM_COMMUNICATOR_FAILURE_DETECTOR_H
#define ALNICO_COMM_COMMUNICATOR_FAILURE_DETECTOR_H

#include "comm/transports/transport.h"

#include <pthread.h>
#include <stdbool.h>

struct report {
    int32_t rank, status; /* who aborts, and why */
    /* In which operation of the communicator, from 1; of messages, after which; 0: in none. */
    uint64_t sequence;
    uint64_t count; /* of how many elements, in vector forms on this rank; and which */
    int32_t type, op, collective, root;
    double waited; /* seconds that it has stalled */
    int32_t late;  /* 1 + the rank that it waited for; 0: for none in particular */
};

struct failure_detector {
    pthread_mutex_t lock;
    struct report *reports; /* by rank; status SUCCESS: no report yet. NULL before it is needed */
    struct transfer *sends; /* the sends of our own report, by rank */
    struct transfer listener;
    struct report arriving;
    bool listening, reported;
    int received; /* reports of other ranks */
    double reported_at;
};

void detector_init(struct failure_detector *detector);

/* Seconds of stalling after which an operation listens: short, since from the first report at the
 * deadline to the decision there is only half of what the public header allows. */
double detector_patience(double timeout);

/* Listens: whether any rank has reported a failure. */
bool detector_reported(struct failure_detector *detector, struct transport *transport);

/* detector_reported, or a rank's process has ended. */
bool detector_finds_failure(struct failure_detector *detector, struct transport *transport);

/* Sends this rank's report to all others. Only the first time counts. */
void detector_report_failure(struct failure_detector *detector, struct transport *transport,
                             const struct report *mine);

/* After the own report: blocks until the transport has taken the report for all ranks, or for so many
 * seconds. */
void detector_deliver(struct failure_detector *detector, struct transport *transport,
                      double seconds);

/* Whether this rank has sent its report. */
bool detector_has_reported(struct failure_detector *detector);

/* After the own report: ALNICO_PENDING while reports may still come, then the decision: ABORTED, MISMATCH,
 * TIMEOUT or another rank's error, with the thread's error detail naming `operation` and the rank.
 * `awaited` >= 0: only that rank was to come. */
alnico_status_t detector_decide(struct failure_detector *detector, struct transport *transport,
                                double timeout, const char *operation, int awaited);

/* Ends what is on its way and frees. */
void detector_finish(struct failure_detector *detector, struct transport *transport);

#endif
