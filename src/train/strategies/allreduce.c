/*
 * Synchronous data parallelism: the gradients are averaged over all ranks, in buckets that leave as
 * soon as backward has filled them, and are joined before the update. bucket_exchange.h says how a
 * bucket travels: where a codec needs a second round, that begins on a stream when the next bucket
 * has left, and on the CPU's inline stream, which would wait, after the backward pass. Called
 * through strategy_allreduce (strategy.h).
 */
#include "train/strategies/strategy.h"

#include "base/datatype.h"
#include "base/status.h"
#include "train/base/nvtx.h"
#include "train/strategies/bucket_exchange.h"

#include <stdio.h>
#include <stdlib.h>

struct allreduce {
    struct strategy_setup setup;
    struct bucket_exchange *exchange; /* NULL: this rank is alone */
    struct bucket *buckets;
    size_t sent;  /* buckets on their way or done, in this pass */
    size_t bytes; /* that this rank sent in the last step */
};

static alnico_status_t allreduce_prepare(struct allreduce *self)
{
    const struct strategy_setup *setup = &self->setup;
    self->buckets = calloc(setup->buckets + 1, sizeof *self->buckets);
    if (!self->buckets)
        return error_set(ALNICO_ERROR_MEMORY, "strategy allreduce: no memory");
    for (size_t i = 0; i < setup->buckets; i++) {
        const size_t begin = i ? setup->ends[i - 1] : 0;
        self->buckets[i] = (struct bucket){.begin = begin, .count = setup->ends[i] - begin};
        snprintf(self->buckets[i].name, sizeof self->buckets[i].name, "allreduce %zu", i);
    }
    return bucket_exchange_create(setup, BUCKETS_TO_ALL, self->buckets, &self->exchange);
}

static void allreduce_destroy(void *self)
{
    struct allreduce *allreduce = self;
    if (!allreduce)
        return;
    bucket_exchange_destroy(allreduce->exchange);
    free(allreduce->buckets);
    free(allreduce);
}

static alnico_status_t allreduce_create(const struct strategy_setup *setup, void **out)
{
    *out = NULL;
    TRY(strategy_check_ends(setup, "allreduce"));
    struct allreduce *self = calloc(1, sizeof *self);
    if (!self)
        return error_set(ALNICO_ERROR_MEMORY, "strategy allreduce: no memory");
    self->setup = *setup;
    const alnico_status_t status = allreduce_prepare(self);
    if (status != ALNICO_SUCCESS)
        allreduce_destroy(self);
    else
        *out = self;
    return status;
}

/* Sends a bucket, and on a stream folds the one before it, which has had time to arrive. */
static alnico_status_t bucket_send(struct allreduce *self, struct bucket *bucket)
{
    TRY(bucket_exchange_send(self->exchange, bucket));
    return bucket > self->buckets && !strategy_is_inline(&self->setup)
               ? bucket_exchange_fold(self->exchange, bucket - 1)
               : ALNICO_SUCCESS;
}

static alnico_status_t allreduce_send(struct allreduce *self, size_t filled)
{
    for (; self->sent < self->setup.buckets && self->setup.ends[self->sent] <= filled; self->sent++)
        TRY_NVTX(self->buckets[self->sent].name, bucket_send(self, &self->buckets[self->sent]));
    return buckets_pump(&self->setup, self->buckets, self->sent);
}

static alnico_status_t allreduce_advance(void *self, size_t filled)
{
    struct allreduce *allreduce = self;
    if (!allreduce->exchange || allreduce->setup.late)
        return ALNICO_SUCCESS;
    return allreduce_send(allreduce, filled);
}

static alnico_status_t allreduce_join(void *self)
{
    struct allreduce *allreduce = self;
    if (!allreduce->exchange)
        return ALNICO_SUCCESS;
    TRY(allreduce_send(allreduce, allreduce->setup.count));
    for (size_t i = 0; i < allreduce->sent; i++)
        TRY(bucket_exchange_fold(allreduce->exchange, &allreduce->buckets[i]));
    for (size_t i = 0; i < allreduce->sent; i++)
        TRY(bucket_exchange_join(allreduce->exchange, &allreduce->buckets[i]));
    allreduce->sent = 0;
    allreduce->bytes = bucket_exchange_take_sent(allreduce->exchange);
    return ALNICO_SUCCESS;
}

static alnico_status_t allreduce_finish(void *self)
{
    struct allreduce *allreduce = self;
    const struct strategy_calls *calls = &allreduce->setup.calls;
    TRY_NVTX("join", allreduce_join(allreduce));
    TRY(calls->mark(calls->context, PHASE_COMMUNICATION));
    TRY_NVTX("update", calls->update(calls->context));
    return calls->mark(calls->context, PHASE_UPDATE);
}

static size_t allreduce_own(const void *self, struct strategy_memory *out)
{
    const struct allreduce *allreduce = self;
    float *residual = allreduce->exchange ? bucket_exchange_residual(allreduce->exchange) : NULL;
    *out = (struct strategy_memory){residual, allreduce->setup.count};
    return residual ? 1 : 0;
}

static size_t allreduce_sent(const void *self)
{
    return ((const struct allreduce *)self)->bytes;
}

static size_t allreduce_bytes(alnico_datatype_t type, alnico_datatype_t wire, int rank, int ranks)
{
    (void)rank;
    (void)ranks;
    return wire == type ? 0 : datatype_bytes(wire);
}

const struct strategy_ops strategy_allreduce = {
    .name = "allreduce",
    .about = "average the gradients over all ranks in every step",
    .capturable = true,
    .takes = STRATEGY_TAKES_BUCKETS | STRATEGY_TAKES_OVERLAP | STRATEGY_TAKES_WIRE |
             STRATEGY_TAKES_NARROW | STRATEGY_TAKES_CODEC | STRATEGY_TAKES_SPLIT |
             STRATEGY_TAKES_SHRINK,
    .bytes = allreduce_bytes,
    .create = allreduce_create,
    .destroy = allreduce_destroy,
    .advance = allreduce_advance,
    .finish = allreduce_finish,
    .rehearse = allreduce_join,
    .own = allreduce_own,
    .sent = allreduce_sent,
};
