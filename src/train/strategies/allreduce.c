/*
 * Synchronous data parallelism: the gradients are averaged over all ranks, in buckets that leave as
 * soon as backward has filled them, and are joined before the update. Where the wire type is not
 * the gradients', a bucket is narrowed into an arena of its own before it leaves, and widened after
 * it came back. Called through strategy_allreduce (strategy.h).
 */
#include "train/strategies/strategy.h"

#include "base/datatype.h"
#include "base/status.h"
#include "train/base/nvtx.h"
#include "train/kernels/elementwise.h"

#include <stdio.h>
#include <stdlib.h>

struct bucket {
    struct allreduce *owner;
    char name[32];            /* of its span */
    size_t begin, count;      /* elements */
    alnico_request_t request; /* NULL: not sent, or done */
};

struct allreduce {
    struct strategy_setup setup;
    struct bucket *buckets;
    size_t sent;    /* buckets on their way or done, in this pass */
    uint16_t *wire; /* the narrowed arena; NULL: the gradients travel themselves */
    alnico_registration_t registration;
};

static alnico_status_t wire_check(const struct strategy_setup *setup)
{
    const bool narrow = setup->wire == ALNICO_FLOAT16 || setup->wire == ALNICO_BFLOAT16;
    if (setup->wire == setup->type ||
        (narrow && setup->type == ALNICO_FLOAT32 && setup->device->kind == ALNICO_DEVICE_CPU))
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "strategy allreduce: gradients of datatype %d cannot travel as datatype %d on "
                     "device %s",
                     (int)setup->type, (int)setup->wire, setup->device->name);
}

static alnico_status_t allreduce_prepare(struct allreduce *self)
{
    const struct strategy_setup *setup = &self->setup;
    void *arena = setup->arenas->gradients;
    self->buckets = calloc(setup->buckets + 1, sizeof *self->buckets);
    if (!self->buckets)
        return error_set(ALNICO_ERROR_MEMORY, "strategy allreduce: no memory");
    for (size_t i = 0; i < setup->buckets; i++) {
        const size_t begin = i ? setup->ends[i - 1] : 0;
        self->buckets[i] =
            (struct bucket){.owner = self, .begin = begin, .count = setup->ends[i] - begin};
        snprintf(self->buckets[i].name, sizeof self->buckets[i].name, "allreduce %zu", i);
    }
    if (setup->wire != setup->type) {
        TRY(setup->device->alloc(setup->count * sizeof *self->wire + 1, &arena));
        self->wire = arena;
    }
    if (!setup->comm || !setup->count)
        return ALNICO_SUCCESS;
    const alnico_status_t status = alnico_comm_register(
        setup->comm, arena, setup->count * datatype_bytes(self->setup.wire), &self->registration);
    return status == ALNICO_ERROR_UNSUPPORTED ? ALNICO_SUCCESS : status;
}

static void allreduce_destroy(void *self)
{
    struct allreduce *allreduce = self;
    if (!allreduce)
        return;
    if (allreduce->registration)
        alnico_comm_deregister(allreduce->setup.comm, allreduce->registration);
    if (allreduce->wire)
        allreduce->setup.device->free(allreduce->wire);
    free(allreduce->buckets);
    free(allreduce);
}

static alnico_status_t allreduce_create(const struct strategy_setup *setup, void **out)
{
    *out = NULL;
    TRY(strategy_check_ends(setup, "allreduce"));
    TRY(wire_check(setup));
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

static void bucket_narrow(void *argument)
{
    const struct bucket *bucket = argument;
    const struct allreduce *self = bucket->owner;
    const float *gradients = self->setup.arenas->gradients;
    elementwise_narrow(self->wire + bucket->begin, gradients + bucket->begin, bucket->count,
                       self->setup.wire == ALNICO_FLOAT16);
}

static void bucket_widen(void *argument)
{
    const struct bucket *bucket = argument;
    const struct allreduce *self = bucket->owner;
    float *gradients = self->setup.arenas->gradients;
    elementwise_widen(gradients + bucket->begin, self->wire + bucket->begin, bucket->count,
                      self->setup.wire == ALNICO_FLOAT16);
}

static alnico_status_t bucket_send(struct allreduce *self, struct bucket *bucket)
{
    char *arena = self->wire ? (char *)self->wire : self->setup.arenas->gradients;
    if (self->wire)
        TRY(alnico_stream_enqueue(self->setup.stream, bucket_narrow, bucket));
    return alnico_iallreduce(
        ALNICO_IN_PLACE, arena + bucket->begin * datatype_bytes(self->setup.wire), bucket->count,
        self->setup.wire, ALNICO_AVERAGE, self->setup.comm, &bucket->request);
}

static alnico_status_t bucket_join(struct allreduce *self, struct bucket *bucket)
{
    TRY(strategy_wait(&self->setup, &bucket->request));
    return self->wire ? alnico_stream_enqueue(self->setup.stream, bucket_widen, bucket)
                      : ALNICO_SUCCESS;
}

/* Lets what is on its way proceed, where nobody else does. */
static alnico_status_t allreduce_pump(struct allreduce *self)
{
    bool done;
    for (size_t i = 0; strategy_is_inline(&self->setup) && i < self->sent; i++)
        if (self->buckets[i].request)
            TRY(alnico_test(&self->buckets[i].request, &done));
    return ALNICO_SUCCESS;
}

static alnico_status_t allreduce_send(struct allreduce *self, size_t filled)
{
    for (; self->sent < self->setup.buckets && self->setup.ends[self->sent] <= filled; self->sent++)
        TRY_NVTX(self->buckets[self->sent].name, bucket_send(self, &self->buckets[self->sent]));
    return allreduce_pump(self);
}

static alnico_status_t allreduce_advance(void *self, size_t filled)
{
    struct allreduce *allreduce = self;
    if (!allreduce->setup.comm || allreduce->setup.late)
        return ALNICO_SUCCESS;
    return allreduce_send(allreduce, filled);
}

static alnico_status_t allreduce_exchange(void *self)
{
    struct allreduce *allreduce = self;
    if (!allreduce->setup.comm)
        return ALNICO_SUCCESS;
    TRY(allreduce_send(allreduce, allreduce->setup.count));
    for (size_t i = 0; i < allreduce->sent; i++)
        TRY(bucket_join(allreduce, &allreduce->buckets[i]));
    allreduce->sent = 0;
    return ALNICO_SUCCESS;
}

static alnico_status_t allreduce_finish(void *self)
{
    struct allreduce *allreduce = self;
    const struct strategy_calls *calls = &allreduce->setup.calls;
    TRY_NVTX("join", allreduce_exchange(allreduce));
    TRY(calls->mark(calls->context, PHASE_COMMUNICATION));
    TRY_NVTX("update", calls->update(calls->context));
    return calls->mark(calls->context, PHASE_UPDATE);
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
             STRATEGY_TAKES_NARROW,
    .bytes = allreduce_bytes,
    .create = allreduce_create,
    .destroy = allreduce_destroy,
    .advance = allreduce_advance,
    .finish = allreduce_finish,
    .exchange = allreduce_exchange,
};
