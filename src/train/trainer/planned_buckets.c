/*
 * Cutting the gradient arena for a run: by size, by number, or planned. For a plan every step's
 * time backward is measured with a batch that leaves no trace, and messages of two sizes; all ranks
 * take the means over the ranks, and so the same buckets; one rank alone, which sends nothing, has
 * one and measures nothing. See buckets.h for the rule.
 */
#include "train/trainer/state.h"

#include "base/datatype.h"
#include "base/status.h"

#include <stdlib.h>

enum {
    TRIALS = 5,
    SHORT_BYTES = 1 << 10,
    LONG_BYTES = 4 << 20,
    OVERLAP_FACTOR = 2 /* times that a message takes beside computation: a guess */
};

/* Stamps of a backward pass, in pinned memory: one where it begins, one after each step. */
struct timing {
    struct replica *replica;
    uint64_t *stamps;
    size_t taken;
};

static alnico_status_t timing_stamp(void *context, size_t elements)
{
    struct timing *timing = context;
    (void)elements;
    return timing->replica->device->stamp(&timing->stamps[timing->taken++],
                                          timing->replica->stream);
}

/* Lowers each step's time backward to that of one more pass. */
static alnico_status_t pass_measure(struct timing *timing, double *seconds)
{
    struct replica *replica = timing->replica;
    const size_t count = replica->plan->count;
    timing->taken = 0;
    TRY(replica_forward(replica, true));
    TRY(timing_stamp(timing, 0));
    TRY(replica_backward(replica, timing_stamp, timing));
    TRY(replica_synchronize(replica));
    for (size_t i = 0; i < count; i++) {
        const double lasted = 1e-9 * (double)(timing->stamps[i + 1] - timing->stamps[i]);
        double *least = &seconds[count - 1 - i];
        if (*least == 0 || lasted < *least)
            *least = lasted;
    }
    return ALNICO_SUCCESS;
}

/* Some passes, after which the running statistics and the score are as before. */
static alnico_status_t passes_measure(struct timing *timing, float *statistics, double *seconds)
{
    struct replica *replica = timing->replica;
    const size_t bytes = replica->network->statistics * sizeof(float);
    double score[SCORES];
    TRY(replica_read(replica, replica->arenas.statistics, statistics, bytes));
    TRY(replica_read(replica, replica->arenas.score, score, sizeof score));
    for (int i = 0; i < TRIALS; i++)
        TRY(pass_measure(timing, seconds));
    TRY(replica_write(replica, replica->arenas.statistics, statistics, bytes));
    return replica_write(replica, replica->arenas.score, score, sizeof score);
}

/* Times of each step of the plan backward. */
static alnico_status_t steps_measure(struct replica *replica, double *seconds)
{
    struct timing timing = {.replica = replica};
    float *statistics = malloc(replica->network->statistics * sizeof *statistics + 1);
    if (!statistics)
        return error_set(ALNICO_ERROR_MEMORY, "trainer: no memory to measure steps");
    alnico_status_t status = replica->device->pinned_alloc(
        (replica->plan->count + 1) * sizeof *timing.stamps, (void **)&timing.stamps);
    if (status == ALNICO_SUCCESS)
        status = passes_measure(&timing, statistics, seconds);
    if (status == ALNICO_SUCCESS) /* otherwise the stream may still write to them */
        replica->device->pinned_free(timing.stamps);
    free(statistics);
    return status;
}

static alnico_status_t message_send(struct trainer *trainer, size_t count, uint64_t *stamps)
{
    struct replica *replica = trainer->replica;
    alnico_request_t request;
    TRY(replica->device->stamp(&stamps[0], replica->stream));
    TRY(alnico_iallreduce(ALNICO_IN_PLACE, replica->arenas.gradients, count, trainer->options->wire,
                          ALNICO_AVERAGE, trainer->place.device, &request));
    TRY(alnico_wait(&request));
    TRY(replica->device->stamp(&stamps[1], replica->stream));
    return replica_synchronize(replica);
}

/* The least time of some allreduces of `bytes` bytes, which spoil the gradients. */
static alnico_status_t message_measure(struct trainer *trainer, size_t bytes, double *out)
{
    const struct replica *replica = trainer->replica;
    const struct device_ops *device = replica->device;
    const size_t count = bytes / datatype_bytes(trainer->options->wire);
    uint64_t *stamps;
    TRY(device->pinned_alloc(2 * sizeof *stamps, (void **)&stamps));
    alnico_status_t status = ALNICO_SUCCESS;
    *out = 0;
    for (int i = 0; i < TRIALS && status == ALNICO_SUCCESS; i++) {
        status = message_send(trainer, count, stamps);
        const double lasted = 1e-9 * (double)(stamps[1] - stamps[0]);
        if (i == 0 || lasted < *out)
            *out = lasted;
    }
    if (status == ALNICO_SUCCESS) /* as above */
        device->pinned_free(stamps);
    return status;
}

/* alpha and beta of a message, as it is before gradients are registered and steps are graphs:
 * rather too much. */
static alnico_status_t costs_measure(struct trainer *trainer, struct bucket_costs *out)
{
    const size_t all = trainer->network->shared * datatype_bytes(trainer->options->wire);
    const size_t small = all < SHORT_BYTES ? all : SHORT_BYTES;
    const size_t large = all < LONG_BYTES ? all : LONG_BYTES;
    double soon, late;
    TRY(message_measure(trainer, small, &soon));
    TRY(message_measure(trainer, large, &late));
    out->alpha = soon;
    out->beta =
        large > small && late > soon ? OVERLAP_FACTOR * (late - soon) / (double)(large - small) : 0;
    return ALNICO_SUCCESS;
}

static alnico_status_t trainer_plan(struct trainer *trainer)
{
    const struct plan *plan = trainer->replica->plan;
    struct bucket_costs costs = {0};
    double *numbers = calloc(plan->count + 2, sizeof *numbers);
    if (!numbers)
        return error_set(ALNICO_ERROR_MEMORY, "trainer: no memory to measure steps");
    alnico_status_t status = steps_measure(trainer->replica, numbers);
    if (status == ALNICO_SUCCESS)
        status = costs_measure(trainer, &costs);
    numbers[plan->count] = costs.alpha;
    numbers[plan->count + 1] = costs.beta;
    if (status == ALNICO_SUCCESS)
        status = trainer_allreduce(trainer, numbers, plan->count + 2, ALNICO_AVERAGE);
    costs = (struct bucket_costs){numbers[plan->count], numbers[plan->count + 1]};
    if (status == ALNICO_SUCCESS)
        status = buckets_planned(plan, numbers, datatype_bytes(trainer->options->wire), costs,
                                 &trainer->buckets);
    free(numbers);
    return status;
}

alnico_status_t trainer_buckets(struct trainer *trainer)
{
    const struct trainer_options *options = trainer->options;
    const size_t elements = trainer->network->shared;
    const size_t each = options->buckets / datatype_bytes(options->wire);
    const bool cuts = trainer->strategy->takes & STRATEGY_TAKES_BUCKETS;
    if (!cuts || (options->rule == BUCKETS_PLANNED && !trainer->place.device))
        return buckets_of_count(elements, 1, &trainer->buckets);
    if (options->rule == BUCKETS_PLANNED)
        return trainer_plan(trainer);
    if (options->rule == BUCKETS_OF_COUNT && options->buckets)
        return buckets_of_count(elements, options->buckets, &trainer->buckets);
    if (each)
        return buckets_of_size(elements, each, &trainer->buckets);
    return error_set(ALNICO_ERROR_ARGUMENT, "trainer: buckets of %zu %s, expected at least %zu",
                     options->buckets, options->rule == BUCKETS_OF_COUNT ? "in number" : "bytes",
                     options->rule == BUCKETS_OF_COUNT ? 1 : datatype_bytes(options->wire));
}
