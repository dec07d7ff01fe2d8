/*
 * Phase timer: around each step the learning rate, and what dropout draws by, go to a replica's
 * stream, and from it come the times at which the stream passed each phase, in any order, and the
 * running sums of losses. The host enqueues steps and reads them an interval late, so that it never
 * waits for the step at hand; on the CPU's inline stream everything is there at once. The trainer
 * drives it, on one thread.
 */
#ifndef ALNICO_TRAIN_REPLICA_PHASE_TIMER_H
#define ALNICO_TRAIN_REPLICA_PHASE_TIMER_H

#include "train/base/phase.h"
#include "train/replica/replica.h"

#include <stdbool.h>

/* Some steps that the stream has run. */
struct phase_times {
    size_t steps;
    double phases[PHASES];  /* seconds, summed over the steps */
    const double *seconds;  /* of each step; valid until the next call */
    struct outcome outcome; /* summed over the steps */
    double rate;            /* learning rate of the last step */
};

struct phase_timer;

/* The replica outlives the timer. interval: steps between two readings; on the inline stream it is
 * 1. passes: forward and backward, of a step. It is told of the replica's waits for other ranks, too,
 * and times them in some steps only: on a GPU times of many waits take as long as the waits. Of the
 * steps between it assumes the same shares of forward and backward. */
alnico_status_t phase_timer_create(struct replica *replica, size_t interval, size_t passes,
                                   struct phase_timer **out);

/* The stream must be idle. NULL is fine. */
void phase_timer_destroy(struct phase_timer *timer);

/* Opens a step: its rate goes to the control words, and its first phase begins, at the end of the
 * step before or, after phase_timer_pause, now. */
alnico_status_t phase_timer_begin(struct phase_timer *timer, double rate);

/* Waits for other ranks are timed in some steps, whose graphs differ from those of others: whether in
 * the step at hand. */
bool phase_timer_waits(const struct phase_timer *timer);

/* Before a pass of the step, the first being 0: what dropout draws by goes to the replica. */
alnico_status_t phase_timer_draw(struct phase_timer *timer, size_t pass, struct draw draw);

/* A phase ends here in the stream's order, and the next begins. What this enqueues may be captured
 * and replayed. */
alnico_status_t phase_timer_mark(struct phase_timer *timer, enum phase ended);

/* On the inline stream: so many seconds of the backward phase were communication, since the
 * training thread starts and pumps it. */
void phase_timer_waited(struct phase_timer *timer, double seconds);

/* Closes the step. *out is what became known: often nothing, with steps 0. Waiting, here and in
 * phase_timer_pause, ends as the replica's waiting does (trainer/stream_wait.h); then the call may
 * be repeated. */
alnico_status_t phase_timer_end(struct phase_timer *timer, struct phase_times *out);

/* Reads the next steps that are still outstanding, waiting for them; steps 0: there are none any
 * more. What the stream does until the next step is not counted. */
alnico_status_t phase_timer_pause(struct phase_timer *timer, struct phase_times *out);

#endif
