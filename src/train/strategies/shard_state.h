/* The inside of a shard's server: its state, and what its thread does in a pass. See shard.h. */
#ifndef ALNICO_TRAIN_STRATEGIES_SHARD_STATE_H
#define ALNICO_TRAIN_STRATEGIES_SHARD_STATE_H

#include "train/strategies/shard.h"

#include <pthread.h>

enum worker_phase {
    WORKER_COMPUTES, /* its gradients are awaited */
    WORKER_PUSHED,   /* they are here */
    WORKER_HELD,     /* they were applied; it waits for weights */
    WORKER_PULLS,    /* these are on their way */
    WORKER_RESTS     /* its round is over */
};

struct worker {
    enum worker_phase phase;
    alnico_request_t request;
    struct push push;
    struct pull pull;
    float *received, *sent; /* of other ranks: buffers of the shard's size */
    const float *gradients;
    float *parameters;
    uint64_t steps, run_steps; /* pushed in this round, and in this run */
    uint64_t pulled;           /* the version of its weights */
};

struct shard {
    struct shard_setup setup;
    float *values; /* parameters, then states */
    struct worker *workers;
    FILE *record;
    struct interleaving replay;
    struct strategy_staleness staleness;

    pthread_mutex_t lock; /* of all below, and above while a round is open */
    pthread_cond_t woken, changed;
    pthread_t thread;
    bool threaded, stopping;
    bool open;              /* a round is */
    bool stopped;           /* no more steps in it */
    int resting;            /* workers whose round is over */
    uint64_t before;        /* updates before this run */
    uint64_t version;       /* and in it */
    uint64_t planned, left; /* version at the round's end, and steps that nobody has begun */
    alnico_status_t status;
    char detail[512];
};

/* ---- strategies/shard_pass.c: under the lock ---- */

/* Awaits a worker's next gradients. */
alnico_status_t shard_await(struct shard *shard, struct worker *worker);

/* Takes what has come and answers what may be answered; *moved: there was something. Errors: those
 * of messages, updates and interleavings. */
alnico_status_t shard_pass(struct shard *shard, bool *moved);

#endif
