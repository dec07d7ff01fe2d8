/* Codecs bf16 and fp16: each number rounded to 16 bits (nearest, ties to even). An allreduce adds
 * such numbers, so that no other exchange is needed. See codec.h. */
#include "train/strategies/codecs/codec.h"

#include "base/float16.h"
#include "base/vectorised.h"
#include "train/kernels/elementwise.h"
#include "train/strategies/codecs/share.h"
#ifdef ALNICO_HAVE_CUDNN
#include "train/kernels/cuda/codec.h"
#define ON_GPU(ENCODE, DECODE) .gpu_encode = ENCODE, .gpu_decode = DECODE,
#else
#define ON_GPU(ENCODE, DECODE)
#endif

static size_t float16_bytes(size_t count, size_t keep)
{
    (void)keep;
    return count * sizeof(uint16_t);
}

static void encode(const struct codec_pass *pass, bool half)
{
    elementwise_narrow(pass->encoded, pass->values, pass->count, half);
}

static void bf16_encode(void *pass)
{
    encode(pass, false);
}

static void fp16_encode(void *pass)
{
    encode(pass, true);
}

VECTORISED static void bf16_add(float *sum, const uint16_t *x, size_t count)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++)
        sum[i] += from_bfloat(x[i]);
}

VECTORISED static void fp16_add(float *sum, const uint16_t *x, size_t count)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++)
        sum[i] += from_half(x[i]);
}

VECTORISED static void multiply(float *x, float factor, size_t count)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++)
        x[i] *= factor;
}

static const uint16_t *part_of(const struct codec_pass *pass, size_t part)
{
    return (const uint16_t *)((const char *)pass->encoded + part * pass->stride);
}

static void decode(const struct codec_pass *pass, bool half)
{
    elementwise_widen(pass->values, part_of(pass, 0), pass->count, half);
    if (pass->parts == 1 && pass->factor == 1)
        return;
#pragma omp parallel if (pass->count > CODEC_SHARE_LEAST)
    {
        const struct codec_share share = codec_share(pass->count, CODEC_SHARE_LINE);
        float *values = pass->values + share.begin;
        for (size_t part = 1; part < pass->parts; part++)
            (half ? fp16_add : bf16_add)(values, part_of(pass, part) + share.begin, share.count);
        multiply(values, pass->factor, share.count);
    }
}

static void bf16_decode(void *pass)
{
    decode(pass, false);
}

static void fp16_decode(void *pass)
{
    decode(pass, true);
}

const struct codec_ops codec_bf16 = {.name = "bf16",
                                     .about = "16 bits, the upper half of float32",
                                     .exchange = CODEC_REDUCED,
                                     .type = ALNICO_BFLOAT16,
                                     .bytes = float16_bytes,
                                     .encode = bf16_encode,
                                     .decode = bf16_decode,
                                     ON_GPU(train_bf16_encode, train_bf16_decode)};

const struct codec_ops codec_fp16 = {
    .name = "fp16",
    .about = "16 bits of IEEE 754: three more of precision, up to 65504",
    .exchange = CODEC_REDUCED,
    .type = ALNICO_FLOAT16,
    .bytes = float16_bytes,
    .encode = fp16_encode,
    .decode = fp16_decode,
    ON_GPU(train_fp16_encode, train_fp16_decode)};
