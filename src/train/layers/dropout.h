/*
 * Dropout's masks (Srivastava et al. 2014), for the plain loops, the CPU's and the GPU's kernels alike.
 * An element's number is a hash of the seed, the operation, the step, the image's number in the step
 * over all ranks, and the place in the image: the same for any number of ranks and batches a step.
 */
#ifndef ALNICO_TRAIN_LAYERS_DROPOUT_H
#define ALNICO_TRAIN_LAYERS_DROPOUT_H

#include "train/base/random.h"

#include <stddef.h>

/* Neighbouring channels that share one hash, 16 bits each. */
enum { DROPOUT_CHANNELS = 4, DROPOUT_ONE = 1 << 16 };

/* What the masks of a pass over a batch are drawn by; it changes from pass to pass. */
struct draw {
    uint32_t step;  /* of training */
    uint32_t image; /* number of the batch's first image in the step, over all ranks */
};

/* One operation's masks. */
struct dropout {
    uint64_t stream; /* of the seed and the operation */
    struct draw draw;
    uint32_t zeros; /* of DROPOUT_ONE: an element is kept if its 16 bits are not below */
    float scale;    /* of elements that are kept */
    /* Of a box of images: pixels of a row of it and of the whole (0: the box is whole), and the first
     * pixel's number in the whole. */
    uint32_t own_width, width, first;
};

/* `seed`: of the training, the same on all ranks; `node`: of the operation. */
RANDOM_FUNCTION struct dropout dropout_make(uint64_t seed, size_t node, float rate)
{
    struct dropout d = {
        random_stream(seed, node), {0, 0}, (uint32_t)(rate * DROPOUT_ONE + 0.5f), 1, 0, 0, 0};
    d.scale = (float)DROPOUT_ONE / (float)(DROPOUT_ONE - d.zeros);
    return d;
}

/* The state of the n-th image of the batch. */
RANDOM_FUNCTION uint64_t dropout_image(const struct dropout *d, size_t n)
{
    return random_stream(random_stream(d->stream, d->draw.step), d->draw.image + n);
}

/* The number in the whole image of a pixel of the box. */
RANDOM_FUNCTION size_t dropout_pixel(const struct dropout *d, size_t pixel)
{
    return d->width ? d->first + pixel / d->own_width * d->width + pixel % d->own_width : pixel;
}

/* The hash of four channels of an image: group k of a pixel, of `groups` that it has. */
RANDOM_FUNCTION uint64_t dropout_hash(uint64_t image, size_t pixel, size_t groups, size_t k)
{
    uint64_t state = image + (pixel * groups + k) * UINT64_C(0x9e3779b97f4a7c15);
    return random_next(&state);
}

RANDOM_FUNCTION size_t dropout_groups(size_t channels)
{
    return (channels + DROPOUT_CHANNELS - 1) / DROPOUT_CHANNELS;
}

/* What a channel is multiplied with, given the hash of its four. */
RANDOM_FUNCTION float dropout_factor(const struct dropout *d, uint64_t hash, size_t channel)
{
    const uint32_t bits = (uint32_t)(hash >> channel % DROPOUT_CHANNELS * 16) & 0xffff;
    return bits < d->zeros ? 0 : d->scale;
}

#endif
