/*
 * The source step: one number x from 0 to 1, whose label is 1 if it is above 0.5. What one neuron
 * can learn (Biswas's SHM-Learn-Dist).
 */
#include "base/status.h"
#include "train/base/random.h"
#include "train/input/source.h"

#include <stdlib.h>

enum { STEP_TRAIN = 50000, STEP_TEST = 10000, STREAM_TRAIN = 21, STREAM_TEST };

static alnico_status_t open_step(const struct source_setup *setup, struct data_info *info,
                                 void **self)
{
    uint64_t *seed = malloc(sizeof *seed);
    if (!seed)
        return error_set(ALNICO_ERROR_MEMORY, "source step: no memory");
    *seed = random_stream(setup->seed, setup->train ? STREAM_TRAIN : STREAM_TEST);
    *info = (struct data_info){.images = setup->train ? STEP_TRAIN : STEP_TEST,
                               .height = 1,
                               .width = 1,
                               .channels = 1,
                               .classes = 2,
                               .labels = 1,
                               .type = SOURCE_FLOAT32,
                               .deviation = 1};
    *self = seed;
    return ALNICO_SUCCESS;
}

static alnico_status_t read_step(const void *self, size_t index, const struct source_crop *unused,
                                 void *pixels, int32_t *labels)
{
    uint64_t state = random_stream(*(const uint64_t *)self, index);
    const float x = (float)random_unit(&state);
    (void)unused;
    *(float *)pixels = x;
    labels[0] = x > 0.5F;
    return ALNICO_SUCCESS;
}

const struct source_ops source_step = {.name = "step",
                                       .about = "step",
                                       .own_classes = true,
                                       .accepts = source_accepts_nothing,
                                       .open = open_step,
                                       .close = free,
                                       .read = read_step};
