/*
 * Several batches a step: the gradients of all backward passes but the last are added up, and in
 * the last each range that a bucket waits for becomes the mean over the passes before it is sent.
 * See trainer/state.h.
 */
#include "train/trainer/state.h"

#include "base/status.h"
#include "train/kernels/elementwise.h"

#include <stdlib.h>

/* The part that the CPU's stream works on. */
struct accumulation_part {
    const struct arenas *arenas;
    struct gradient_part part;
};

size_t trainer_passes(const struct trainer_options *options)
{
    return options->accumulate ? options->accumulate : 1;
}

/* The first pass, those between, and of the last each bucket and what is in none. */
alnico_status_t trainer_accumulation(struct trainer *trainer)
{
    const struct buckets *buckets = &trainer->buckets;
    const size_t passes = trainer_passes(trainer->options), all = trainer->network->parameters;
    if (passes == 1)
        return ALNICO_SUCCESS;
    trainer->parts = calloc(PASS_LAST + buckets->count + 1, sizeof *trainer->parts);
    if (!trainer->parts)
        return error_set(ALNICO_ERROR_MEMORY, "trainer: no memory");
    for (int pass = PASS_FIRST; pass < PASS_LAST; pass++)
        trainer->parts[pass].part =
            (struct gradient_part){.pass = (enum gradient_pass)pass, .count = all};
    for (size_t i = 0; i <= buckets->count; i++) {
        const size_t begin = i ? buckets->ends[i - 1] : 0,
                     end = i < buckets->count ? buckets->ends[i] : all;
        trainer->parts[PASS_LAST + i].part = (struct gradient_part){
            .pass = PASS_LAST, .begin = begin, .count = end - begin, .share = 1 / (float)passes};
    }
    for (size_t i = 0; i <= PASS_LAST + buckets->count; i++)
        trainer->parts[i].arenas = &trainer->replica->arenas;
    return ALNICO_SUCCESS;
}

/* The CPU's gradients are float32. */
static void part_run(void *argument)
{
    const struct accumulation_part *self = argument;
    const struct gradient_part *part = &self->part;
    float *sums = self->arenas->sums + part->begin,
          *gradients = (float *)self->arenas->gradients + part->begin;
    if (part->pass == PASS_FIRST)
        elementwise_copy(sums, gradients, NULL, part->count);
    else if (part->pass == PASS_NEXT)
        elementwise_accumulate(sums, gradients, NULL, part->count);
    else
        elementwise_mean(gradients, sums, part->share, part->count);
}

static alnico_status_t part_start(struct trainer *trainer, struct accumulation_part *part)
{
    const struct replica *replica = trainer->replica;
    if (replica->ops->accumulate)
        return replica->ops->accumulate(replica->kernels, &part->part);
    if (trainer->place.stream)
        return alnico_stream_enqueue(trainer->place.stream, part_run, part);
    part_run(part);
    return ALNICO_SUCCESS;
}

alnico_status_t trainer_accumulate(struct trainer *trainer)
{
    return part_start(trainer, &trainer->parts[trainer->pass ? PASS_NEXT : PASS_FIRST]);
}

alnico_status_t trainer_combine(struct trainer *trainer, size_t *filled)
{
    const struct buckets *buckets = &trainer->buckets;
    size_t next = trainer->combined;
    if (!trainer->parts)
        return ALNICO_SUCCESS;
    for (; next < buckets->count && buckets->ends[next] <= *filled; next++)
        TRY(part_start(trainer, &trainer->parts[PASS_LAST + next]));
    *filled = next ? buckets->ends[next - 1] : 0;
    trainer->combined = next;
    return ALNICO_SUCCESS;
}

alnico_status_t trainer_combine_own(struct trainer *trainer)
{
    const size_t buckets = trainer->buckets.count;
    trainer->combined = 0;
    if (!trainer->parts || trainer->network->shared == trainer->network->parameters)
        return ALNICO_SUCCESS;
    return part_start(trainer, &trainer->parts[PASS_LAST + buckets]);
}
