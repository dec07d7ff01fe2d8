/* A codec's pass over one range of gradients and its encoded form, for the CPU (strategies/codecs)
 * and GPUs (kernels/cuda), which make the same bits of it. */
#ifndef ALNICO_TRAIN_KERNELS_CODEC_PASS_H
#define ALNICO_TRAIN_KERNELS_CODEC_PASS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __CUDACC__
#define CODEC_ANYWHERE __host__ __device__
#else
#define CODEC_ANYWHERE
#endif

struct codec_pass {
    float *values; /* `count` numbers: what is encoded, or where the decoded ones go */
    size_t count, keep;
    void *encoded; /* aligned to 4 bytes; of a decoding `parts` of them, `stride` bytes apart */
    size_t parts, stride;
    float factor; /* of the decoded sum */
    /* `count` numbers that were not sent yet, with codecs that keep a residual. It is in units of
     * the gradients divided by *scale; NULL: 1. */
    float *residual;
    const float *scale;
    void *scratch; /* passes on one stream may share it */
};

/* int8: blocks of so many numbers, each a float32 scale and a byte a number. */
enum { CODEC_BLOCK = 256, CODEC_BLOCK_BYTES = sizeof(float) + CODEC_BLOCK };

/* Below this a block's largest number is taken for zero. */
#define CODEC_LEAST 0x1p-100f

/* The bits of the smallest |x| that is not finite. */
#define CODEC_INFINITE 0x7f800000u

/* topk: the encoded form is `keep` of these, by rising index; ranges have fewer than 2^31 numbers. */
struct codec_pair {
    uint32_t index;
    float value;
};

/* topk looks for a bound that a few more than `keep` of the numbers reach, in a sample of so many. */
enum { CODEC_SAMPLE = 8192, CODEC_SAMPLE_PER = 8 };

/* The index of number i of the sample: steps of the golden ratio meet no pattern. */
CODEC_ANYWHERE static inline size_t codec_sample_at(uint32_t i, size_t count)
{
    return (size_t)((uint64_t)(i * 2654435769u) * (count - 1) >> 32);
}

/* The rank in the sample of that bound: three deviations more than expected. 0: no sample is worth
 * it, all numbers are candidates. */
static inline size_t codec_sample_rank(size_t count, size_t keep)
{
    const double expected = (double)keep / (double)(count ? count : 1) * CODEC_SAMPLE;
    if (count < (size_t)CODEC_SAMPLE * CODEC_SAMPLE_PER || expected > CODEC_SAMPLE / 4)
        return 0;
    return (size_t)(expected + 3 * sqrt(expected) + 4);
}

/* Candidates that there is room for: twice what the bound should give. */
static inline size_t codec_candidates(size_t count, size_t keep)
{
    return codec_sample_rank(count, keep) * 2 * (count / CODEC_SAMPLE + 1);
}

#endif
