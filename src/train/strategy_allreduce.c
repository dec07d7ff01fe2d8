/*
 * Synchronous data parallelism: the gradients are averaged over all ranks, in buckets of equal size that
 * leave as soon as backward has filled them, and are joined before the update. Called through
 * strategy_allreduce (strategy.h).
 */
#include "strategy.h"

#include "status.h"

#include <stdlib.h>

struct allreduce {
    struct strategy_setup setup;
    alnico_request_t *requests; /* by bucket; NULL: not sent, or done */
    size_t each, buckets;       /* elements of a bucket; how many there are */
    size_t sent;                /* buckets on their way or done, in this pass */
};

static alnico_status_t allreduce_create(const struct strategy_setup *setup, void **out)
{
    const size_t each = setup->bucket / sizeof(float);
    *out = NULL;
    if (!each)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "strategy allreduce: bucket of %zu bytes, expected at least %zu",
                         setup->bucket, sizeof(float));
    const size_t buckets = setup->count / each + (setup->count % each > 0);
    struct allreduce *self = malloc(sizeof *self);
    alnico_request_t *requests = calloc(buckets + 1, sizeof(alnico_request_t));
    if (!self || !requests) {
        free(self);
        free(requests);
        return error_set(ALNICO_ERROR_MEMORY, "strategy allreduce: no memory");
    }
    *self =
        (struct allreduce){.setup = *setup, .requests = requests, .each = each, .buckets = buckets};
    *out = self;
    return ALNICO_SUCCESS;
}

static void allreduce_destroy(void *self)
{
    struct allreduce *allreduce = self;
    if (!allreduce)
        return;
    free(allreduce->requests);
    free(allreduce);
}

/* Where a bucket ends, in elements. */
static size_t bucket_end(const struct allreduce *self, size_t bucket)
{
    return bucket + 1 < self->buckets ? (bucket + 1) * self->each : self->setup.count;
}

static alnico_status_t bucket_send(struct allreduce *self, size_t bucket)
{
    float *at = self->setup.gradients + bucket * self->each;
    return alnico_iallreduce(ALNICO_IN_PLACE, at, bucket_end(self, bucket) - bucket * self->each,
                             ALNICO_FLOAT32, ALNICO_AVERAGE, self->setup.comm,
                             &self->requests[bucket]);
}

static alnico_status_t allreduce_advance(void *self, size_t filled)
{
    struct allreduce *a = self;
    bool done;
    if (!a->setup.comm)
        return ALNICO_SUCCESS;
    for (; a->sent < a->buckets && bucket_end(a, a->sent) <= filled; a->sent++)
        TRY(bucket_send(a, a->sent));
    for (size_t i = 0; i < a->sent; i++)
        if (a->requests[i])
            TRY(alnico_test(&a->requests[i], &done));
    return ALNICO_SUCCESS;
}

static alnico_status_t allreduce_join(void *self)
{
    struct allreduce *a = self;
    TRY(allreduce_advance(a, a->setup.count));
    for (size_t i = 0; i < a->sent; i++)
        if (a->requests[i])
            TRY(alnico_request_synchronize(&a->requests[i]));
    a->sent = 0;
    return ALNICO_SUCCESS;
}

const struct strategy_ops strategy_allreduce = {
    .name = "allreduce",
    .about = "average the gradients over all ranks in every step",
    .create = allreduce_create,
    .destroy = allreduce_destroy,
    .advance = allreduce_advance,
    .join = allreduce_join,
};
