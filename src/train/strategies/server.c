/*
 * A parameter server (Biswas, SHM-Learn-Dist; Li et al. 2014): rank 0 gathers all gradients, in
 * buckets that leave as soon as backward has filled them, averages them in the order of the ranks,
 * updates the parameters and broadcasts them. The other ranks only send and receive. Rank 0's own
 * gradients stay where they are. Encoded gradients of all ranks go through a bucket exchange, and to
 * average them is to decode their sum. Called through strategy_server (strategy.h).
 */
#include "train/strategies/strategy.h"

#include "base/datatype.h"
#include "base/status.h"
#include "train/base/nvtx.h"
#include "train/strategies/bucket_exchange.h"

#include <stdio.h>
#include <stdlib.h>

/* Blocks begin at multiples of so many elements: of 64 bytes at least. */
enum { STRIDE_UNIT = 32 };

struct server {
    struct strategy_setup setup;
    struct bucket *buckets;
    struct bucket_exchange *exchange; /* NULL: the gradients themselves travel */
    size_t *counts;                   /* buckets x ranks; rank 0's is 0 */
    size_t *at;                       /* of each rank's block in `gathered` */
    size_t sent;                      /* buckets on their way or done, in this pass */
    size_t bytes;                     /* that this rank sent in the last step */
    size_t stride;                    /* elements from one block to the next */
    int rank, ranks;
    char *gathered; /* on rank 0: a block of each other rank */
};

/* Whether it is not the gradients themselves that travel. */
static bool encodes(const struct strategy_setup *setup)
{
    return setup->comm && (codec_encodes(&setup->codec) || setup->wire != setup->type);
}

static alnico_status_t server_allocate(struct server *self)
{
    const struct strategy_setup *setup = &self->setup;
    const size_t ranks = (size_t)self->ranks;
    const size_t bytes = self->stride * datatype_bytes(setup->type);
    self->buckets = calloc(setup->buckets + 1, sizeof *self->buckets);
    self->counts = calloc((setup->buckets + 1) * ranks, sizeof *self->counts);
    self->at = calloc(ranks, sizeof *self->at);
    if (!self->buckets || !self->counts || !self->at)
        return error_set(ALNICO_ERROR_MEMORY, "strategy server: no memory");
    if (self->rank > 0 || self->ranks == 1 || encodes(setup))
        return ALNICO_SUCCESS;
    return setup->device->alloc((ranks - 1) * bytes + 1, (void **)&self->gathered);
}

static void buckets_make(struct server *self)
{
    const struct strategy_setup *setup = &self->setup;
    const size_t ranks = (size_t)self->ranks;
    for (size_t i = 0; i < setup->buckets; i++) {
        const size_t begin = i ? setup->ends[i - 1] : 0;
        size_t *counts = self->counts + i * ranks;
        for (size_t r = 1; r < ranks; r++)
            counts[r] = setup->ends[i] - begin;
        self->buckets[i] = (struct bucket){.begin = begin, .count = setup->ends[i] - begin};
        snprintf(self->buckets[i].name, sizeof self->buckets[i].name, "gather %zu", i);
    }
    for (size_t r = 1; r < ranks; r++)
        self->at[r] = (r - 1) * self->stride;
}

static const size_t *counts_of(const struct server *self, const struct bucket *bucket)
{
    return self->counts + (size_t)(bucket - self->buckets) * (size_t)self->ranks;
}

static alnico_status_t bucket_send(struct server *self, struct bucket *bucket)
{
    const struct strategy_setup *setup = &self->setup;
    const size_t begin = bucket->begin * datatype_bytes(setup->type);
    if (self->exchange)
        return bucket_exchange_send(self->exchange, bucket);
    return alnico_igatherv((char *)setup->arenas->gradients + begin,
                           self->rank == 0 ? 0 : bucket->count,
                           self->gathered ? self->gathered + begin : NULL, counts_of(self, bucket),
                           self->at, setup->type, 0, setup->comm, &bucket->request);
}

static alnico_status_t server_send(struct server *self, size_t filled)
{
    for (; self->sent < self->setup.buckets && self->setup.ends[self->sent] <= filled; self->sent++)
        TRY_NVTX(self->buckets[self->sent].name, bucket_send(self, &self->buckets[self->sent]));
    return buckets_pump(&self->setup, self->buckets, self->sent);
}

static alnico_status_t server_advance(void *pointer, size_t filled)
{
    struct server *self = pointer;
    return self->setup.comm && !self->setup.late ? server_send(self, filled) : ALNICO_SUCCESS;
}

static alnico_status_t server_join(struct server *self)
{
    if (!self->setup.comm)
        return ALNICO_SUCCESS;
    TRY(server_send(self, self->setup.count));
    for (size_t i = 0; i < self->sent; i++)
        TRY(strategy_wait(&self->setup, &self->buckets[i].request));
    self->sent = 0;
    self->bytes = self->exchange    ? bucket_exchange_take_sent(self->exchange)
                  : self->rank == 0 ? 0
                                    : self->setup.count * datatype_bytes(self->setup.type);
    return ALNICO_SUCCESS;
}

/* Rank 0's parameters and, where it searches it, its loss scale become all ranks'. */
static alnico_status_t weights_broadcast(struct server *self)
{
    const struct strategy_setup *setup = &self->setup;
    TRY(alnico_broadcast(setup->arenas->parameters, setup->count, ALNICO_FLOAT32, 0, setup->comm));
    if (setup->scaled)
        TRY(alnico_broadcast(setup->arenas->control, CONTROLS, ALNICO_FLOAT32, 0, setup->comm));
    return self->rank > 0 ? setup->calls.loaded(setup->calls.context) : ALNICO_SUCCESS;
}

/* On rank 0: of what has arrived. */
static alnico_status_t server_average(struct server *self)
{
    const struct strategy_calls *calls = &self->setup.calls;
    const struct gradient_blocks others = {self->gathered, self->stride, self->ranks - 1};
    if (!self->exchange)
        return others.count ? calls->average(calls->context, &others) : ALNICO_SUCCESS;
    for (size_t i = 0; i < self->setup.buckets; i++)
        TRY(bucket_exchange_join(self->exchange, &self->buckets[i]));
    return ALNICO_SUCCESS;
}

static alnico_status_t server_update(struct server *self)
{
    const struct strategy_calls *calls = &self->setup.calls;
    if (self->rank > 0)
        return ALNICO_SUCCESS;
    TRY_NVTX("average", server_average(self));
    TRY(calls->mark(calls->context, PHASE_AVERAGE));
    TRY_NVTX("update", calls->update(calls->context));
    return calls->mark(calls->context, PHASE_UPDATE);
}

static alnico_status_t server_finish(void *pointer)
{
    struct server *self = pointer;
    const struct strategy_calls *calls = &self->setup.calls;
    TRY_NVTX("join", server_join(self));
    TRY(calls->mark(calls->context, PHASE_COMMUNICATION));
    TRY(server_update(self));
    if (self->setup.comm)
        TRY_NVTX("broadcast", weights_broadcast(self));
    return calls->mark(calls->context, PHASE_WEIGHTS);
}

/* The parameters are equal already. */
static alnico_status_t server_rehearse(void *pointer)
{
    struct server *self = pointer;
    if (!self->setup.comm)
        return ALNICO_SUCCESS;
    TRY(server_join(self));
    return weights_broadcast(self);
}

/* All begin with rank 0's parameters. The first call of each operation blocks (buckets_largest). */
static alnico_status_t server_begin(struct server *self)
{
    const struct strategy_setup *setup = &self->setup;
    if (!setup->comm || !setup->count)
        return ALNICO_SUCCESS;
    TRY(weights_broadcast(self));
    if (encodes(setup))
        return bucket_exchange_create(setup, BUCKETS_TO_ROOT, self->buckets, &self->exchange);
    const struct bucket *largest = buckets_largest(setup, self->buckets);
    return alnico_gatherv(setup->arenas->gradients, self->rank == 0 ? 0 : largest->count,
                          self->gathered, counts_of(self, largest), self->at, setup->type, 0,
                          setup->comm);
}

static void server_destroy(void *pointer)
{
    struct server *self = pointer;
    if (!self)
        return;
    bucket_exchange_destroy(self->exchange);
    if (self->gathered)
        self->setup.device->free(self->gathered);
    free(self->at);
    free(self->counts);
    free(self->buckets);
    free(self);
}

static alnico_status_t server_create(const struct strategy_setup *setup, void **out)
{
    *out = NULL;
    TRY(strategy_check_ends(setup, "server"));
    struct server *self = calloc(1, sizeof *self);
    if (!self)
        return error_set(ALNICO_ERROR_MEMORY, "strategy server: no memory");
    self->setup = *setup;
    self->rank = setup->comm ? alnico_comm_rank(setup->comm) : 0;
    self->ranks = setup->comm ? alnico_comm_size(setup->comm) : 1;
    self->stride = (setup->count + STRIDE_UNIT - 1) / STRIDE_UNIT * STRIDE_UNIT;
    alnico_status_t status = server_allocate(self);
    if (status == ALNICO_SUCCESS) {
        buckets_make(self);
        status = server_begin(self);
    }
    if (status != ALNICO_SUCCESS)
        server_destroy(self);
    else
        *out = self;
    return status;
}

static size_t server_own(const void *pointer, struct strategy_memory *out)
{
    const struct server *self = pointer;
    float *residual = self->exchange ? bucket_exchange_residual(self->exchange) : NULL;
    *out = (struct strategy_memory){residual, self->setup.count};
    return residual ? 1 : 0;
}

/* Of the broadcast that is rank 0's parameters once: other ranks may pass them on. */
static size_t server_sent(const void *pointer)
{
    const struct server *self = pointer;
    const bool broadcasts = self->rank == 0 && self->ranks > 1;
    return self->bytes + (broadcasts ? self->setup.count * sizeof(float) : 0);
}

static size_t server_bytes(alnico_datatype_t type, alnico_datatype_t wire, int rank, int ranks)
{
    if (wire != type)
        return (rank == 0 ? 1 + (size_t)ranks : 1) * datatype_bytes(wire);
    return rank == 0 ? (size_t)(ranks - 1) * datatype_bytes(type) : 0;
}

const struct strategy_ops strategy_server = {
    .name = "server",
    .about = "rank 0 gathers the gradients, updates the parameters and broadcasts them",
    .capturable = true,
    .rooted = true,
    .takes = STRATEGY_TAKES_BUCKETS | STRATEGY_TAKES_OVERLAP | STRATEGY_TAKES_WIRE |
             STRATEGY_TAKES_NARROW | STRATEGY_TAKES_CODEC | STRATEGY_TAKES_SPLIT,
    .phases = {[PHASE_COMMUNICATION] = "gather", [PHASE_WEIGHTS] = "broadcast"},
    .bytes = server_bytes,
    .create = server_create,
    .destroy = server_destroy,
    .advance = server_advance,
    .finish = server_finish,
    .rehearse = server_rehearse,
    .own = server_own,
    .sent = server_sent,
};
