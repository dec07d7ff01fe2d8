/*
 * The server of one shard of the parameters (Dean et al. 2012, "Large scale distributed deep
 * networks": Downpour). Its thread takes the workers' gradients as they come, applies the optimizer
 * with each, and sends the weights back; with a bound a worker gets them only when the slowest is
 * at most so many steps behind (Ho et al. 2013, "More effective distributed ML via a stale
 * synchronous parallel parameter server"). The worker of the same rank hands its gradients over in
 * memory. Strategy async makes one on each rank; all functions are for the thread that trains.
 */
#ifndef ALNICO_TRAIN_STRATEGIES_SHARD_H
#define ALNICO_TRAIN_STRATEGIES_SHARD_H

#include "train/strategies/interleaving.h"
#include "train/strategies/strategy.h"

/* By so much ranks differ in when they find that one is missing. */
enum { GRACE_NS = 200000000 };

/* What goes to a server in front of a shard's gradients, in one group with them. */
struct push {
    uint64_t last; /* the worker has no more steps in this round; the gradients are none */
    uint64_t stop; /* its rank was told to stop */
    double rate;   /* learning rate */
};

/* What comes back in front of the weights. */
struct pull {
    uint64_t version; /* updates of the shard so far in this run */
    uint64_t more;    /* from shard 0: the worker has another step to do in this round */
};

struct shard_setup {
    alnico_comm_t
        comm; /* this shard's: others send to it, the server's thread calls; NULL: alone */
    int rank, size;
    size_t begin, count; /* of the network's parameters */
    size_t parameters;   /* of the network, for the interleaving's head */
    size_t staleness;    /* the bound; SIZE_MAX: none */
    size_t states;
    const char *record, *replay; /* interleavings; NULL: none */
    struct strategy_calls calls;
};

struct shard;

/* Errors: MEMORY, SYSTEM (no thread, or a file), ARGUMENT (a bad interleaving). */
alnico_status_t shard_create(const struct shard_setup *setup, struct shard **out);

/* Nothing is on its way, or the communicator was aborted. NULL is fine. */
void shard_destroy(struct shard *shard);

/* The shard's parameters (0) and states (1, ...). Only between rounds. */
float *shard_values(struct shard *shard, size_t which);

/* Begins a round, in which the workers do so many steps together, each at least one. before: updates
 * before this run. */
alnico_status_t shard_begin(struct shard *shard, uint64_t steps, uint64_t before);

/* Hands over this rank's gradients of the shard, and where its weights go. Does not wait. */
void shard_push(struct shard *shard, const struct push *push, const float *gradients,
                float *parameters);

/* Waits for the answer. Errors: what ended the server. */
alnico_status_t shard_wait(struct shard *shard, struct pull *out);

/* After the last push: waits for everybody's. Sets the updates of the shard in this run. Errors: as
 * shard_wait. */
alnico_status_t shard_rest(struct shard *shard, uint64_t *version);

/* What has ended the server, or soon does: waits a little for that. */
alnico_status_t shard_status(struct shard *shard);

/* Between rounds. */
const struct strategy_staleness *shard_staleness(const struct shard *shard);

#endif
