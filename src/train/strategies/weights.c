/*
 * Weight averaging: each rank updates parameters of its own by its own gradients, and every so many
 * steps the parameters become their mean over all ranks. In every step it is Biswas's weight
 * averaging (SHM-Learn-Dist); less often it is local SGD (Stich 2019, "Local SGD converges fast and
 * communicates little"; McMahan et al. 2017, "Communication-efficient learning of deep networks from
 * decentralized data"). Called through strategy_weights (strategy.h).
 */
#include "train/strategies/strategy.h"

#include "base/status.h"
#include "train/base/nvtx.h"

#include <stdlib.h>

/* Arenas that are averaged: parameters, statistics and states. */
enum { AREAS_MOST = 2 + OPTIMIZER_STATES };

struct area {
    struct division mean;               /* of all ranks' numbers */
    alnico_registration_t registration; /* NULL: none */
};

struct weights {
    struct strategy_setup setup;
    struct area areas[AREAS_MOST];
    size_t area_count;
    size_t step, averaged; /* steps done, and done when the ranks were last equal */
};

static void area_add(struct weights *self, float *memory, size_t count)
{
    const int ranks = self->setup.comm ? alnico_comm_size(self->setup.comm) : 1;
    if (count)
        self->areas[self->area_count++] =
            (struct area){.mean = {memory, ALNICO_FLOAT32, count, ranks}};
}

static void areas_add(struct weights *self)
{
    const struct strategy_setup *setup = &self->setup;
    area_add(self, setup->arenas->parameters, setup->count);
    if (!setup->average_state)
        return;
    for (size_t i = 0; i < setup->states; i++)
        area_add(self, setup->arenas->states[i], setup->count);
    area_add(self, setup->arenas->statistics, setup->statistics);
}

static alnico_status_t areas_register(struct weights *self)
{
    for (size_t i = 0; self->setup.comm && i < self->area_count; i++) {
        struct area *area = &self->areas[i];
        const alnico_status_t status =
            alnico_comm_register(self->setup.comm, area->mean.numbers,
                                 area->mean.count * sizeof(float), &area->registration);
        if (status != ALNICO_ERROR_UNSUPPORTED)
            TRY(status);
    }
    return ALNICO_SUCCESS;
}

static void weights_destroy(void *pointer)
{
    struct weights *self = pointer;
    for (size_t i = 0; self && i < self->area_count; i++)
        if (self->areas[i].registration)
            alnico_comm_deregister(self->setup.comm, self->areas[i].registration);
    free(self);
}

static alnico_status_t weights_create(const struct strategy_setup *setup, void **out)
{
    *out = NULL;
    if (!setup->every)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "strategy weights: averages every 0 steps, expected at least 1");
    struct weights *self = calloc(1, sizeof *self);
    if (!self)
        return error_set(ALNICO_ERROR_MEMORY, "strategy weights: no memory");
    self->setup = *setup;
    areas_add(self);
    const alnico_status_t status = areas_register(self);
    if (status != ALNICO_SUCCESS)
        weights_destroy(self);
    else
        *out = self;
    return status;
}

static alnico_status_t weights_advance(void *self, size_t filled)
{
    (void)self;
    (void)filled;
    return ALNICO_SUCCESS;
}

static alnico_status_t weights_finish(void *self)
{
    const struct strategy_calls *calls = &((struct weights *)self)->setup.calls;
    TRY_NVTX("update", calls->update(calls->context));
    return calls->mark(calls->context, PHASE_UPDATE);
}

/* ALNICO_AVERAGE would multiply by the rounded 1 / ranks, and parameters would grow or shrink with
 * every average. The ranks' loss scales are their own between two averages; then they take the
 * least, at which no rank's gradients were infinite. */
static alnico_status_t areas_average(struct weights *self)
{
    const struct strategy_setup *setup = &self->setup;
    for (size_t i = 0; i < self->area_count; i++) {
        const struct division *mean = &self->areas[i].mean;
        TRY(alnico_allreduce(ALNICO_IN_PLACE, mean->numbers, mean->count, ALNICO_FLOAT32,
                             ALNICO_SUM, setup->comm));
        TRY(setup->calls.divide(setup->calls.context, mean));
    }
    if (setup->scaled)
        TRY(alnico_allreduce(ALNICO_IN_PLACE, setup->arenas->control + CONTROL_LOSS_SCALE,
                             CONTROLS - CONTROL_LOSS_SCALE, ALNICO_FLOAT32, ALNICO_MINIMUM,
                             setup->comm));
    self->averaged = self->step;
    return setup->calls.loaded(setup->calls.context);
}

static alnico_status_t weights_after(void *pointer, size_t step)
{
    struct weights *self = pointer;
    const struct strategy_calls *calls = &self->setup.calls;
    self->step = step;
    if (!self->setup.comm || step % self->setup.every)
        return ALNICO_SUCCESS;
    TRY_NVTX("average", areas_average(self));
    return calls->mark(calls->context, PHASE_WEIGHTS);
}

static alnico_status_t weights_settle(void *pointer)
{
    struct weights *self = pointer;
    return self->setup.comm && self->averaged != self->step ? areas_average(self) : ALNICO_SUCCESS;
}

/* Without averages of them the optimizer's states. */
static size_t weights_own(const void *pointer, struct strategy_memory *out)
{
    const struct strategy_setup *setup = &((const struct weights *)pointer)->setup;
    for (size_t i = 0; i < setup->states; i++)
        out[i] = (struct strategy_memory){setup->arenas->states[i], setup->count};
    return setup->comm && !setup->average_state ? setup->states : 0;
}

const struct strategy_ops strategy_weights = {
    .name = "weights",
    .about = "each rank updates its own parameters; every so many steps they are averaged",
    .capturable = true,
    .takes = STRATEGY_TAKES_EVERY | STRATEGY_TAKES_SHRINK,
    .create = weights_create,
    .destroy = weights_destroy,
    .advance = weights_advance,
    .finish = weights_finish,
    .after = weights_after,
    .settle = weights_settle,
    .own = weights_own,
};
