/*
 * Codec int8: blocks of 256 numbers, each a float32 scale, the largest |x| / 127, and a byte for
 * each number, x / scale rounded (nearest, ties to even). The last block is shorter, padded to four
 * bytes. A block with a number that is not finite has the scale NaN. See codec.h.
 *
 * There is no residual: the error of a number is at most scale / 2, far below the noise of the
 * gradients. Error feedback is what codecs need that drop most of a gradient, to 1 bit (Seide, Fu,
 * Droppo, Li, Yu 2014) or to the signs or largest numbers (Karimireddy, Rebjock, Stich, Jaggi 2019).
 */
#include "train/strategies/codecs/codec.h"

#include "base/float16.h"
#include "base/vectorised.h"
#include "train/strategies/codecs/share.h"
#ifdef ALNICO_HAVE_CUDNN
#include "train/kernels/cuda/codec.h"
#endif

/* Added to a float of up to 2^22, it leaves the nearest whole number in the lowest bits. */
#define WHOLE 0x1.8p23f

static size_t int8_bytes(size_t count, size_t keep)
{
    (void)keep;
    const size_t rest = count % CODEC_BLOCK;
    return count / CODEC_BLOCK * CODEC_BLOCK_BYTES +
           (rest ? sizeof(float) + (rest + 3) / 4 * 4 : 0);
}

/* The bits of |x| order as the numbers do, and NaN is above all. */
static inline uint32_t largest(const float *x, size_t count)
{
    uint32_t most = 0;
#pragma omp simd reduction(max : most)
    for (size_t i = 0; i < count; i++) {
        const uint32_t bits = bits32(x[i]) & 0x7fffffff;
        most = bits > most ? bits : most;
    }
    return most;
}

static inline void block_encode(const float *x, size_t count, uint8_t *out)
{
    const uint32_t bits = largest(x, count);
    const float most = float32(bits);
    const bool finite = bits < CODEC_INFINITE, some = finite && most >= CODEC_LEAST;
    const float scale = some     ? most / 127
                        : finite ? 0
                                 : float32(0x7fc00000),
                inverse = some ? 127 / most : 0;
    uint8_t *bytes = out + sizeof scale;
    memcpy(out, &scale, sizeof scale);
#pragma omp simd
    for (size_t i = 0; i < count; i++) /* x may be what no number times 0 is 0 of */
        bytes[i] = (uint8_t)bits32(some ? x[i] * inverse + WHOLE : 0);
    for (size_t i = count; i % 4; i++)
        bytes[i] = 0;
}

VECTORISED static void blocks_encode(const float *x, size_t count, uint8_t *out)
{
    for (; count >= CODEC_BLOCK; count -= CODEC_BLOCK) {
        block_encode(x, CODEC_BLOCK, out);
        x += CODEC_BLOCK;
        out += CODEC_BLOCK_BYTES;
    }
    if (count)
        block_encode(x, count, out);
}

static inline void block_decode(const uint8_t *in, size_t count, bool first, float *x)
{
    const int8_t *bytes = (const int8_t *)in + sizeof(float);
    float scale;
    memcpy(&scale, in, sizeof scale);
    if (first) {
#pragma omp simd
        for (size_t i = 0; i < count; i++)
            x[i] = (float)bytes[i] * scale;
    } else {
#pragma omp simd
        for (size_t i = 0; i < count; i++)
            x[i] += (float)bytes[i] * scale;
    }
}

/* The blocks that begin at number `begin`: all parts of one before the next. */
VECTORISED static void blocks_decode(const struct codec_pass *pass, size_t begin, size_t count)
{
    const uint8_t *in = (const uint8_t *)pass->encoded + begin / CODEC_BLOCK * CODEC_BLOCK_BYTES;
    for (size_t at = 0; at < count; at += CODEC_BLOCK, in += CODEC_BLOCK_BYTES) {
        const size_t length = count - at < CODEC_BLOCK ? count - at : CODEC_BLOCK;
        float *x = pass->values + begin + at;
        for (size_t part = 0; part < pass->parts; part++)
            block_decode(in + part * pass->stride, length, part == 0, x);
        for (size_t i = 0; pass->factor != 1 && i < length; i++)
            x[i] *= pass->factor;
    }
}

static void int8_encode(void *argument)
{
    const struct codec_pass *pass = argument;
#pragma omp parallel if (pass->count > CODEC_SHARE_LEAST)
    {
        const struct codec_share share = codec_share(pass->count, CODEC_BLOCK);
        blocks_encode(pass->values + share.begin, share.count,
                      (uint8_t *)pass->encoded + share.begin / CODEC_BLOCK * CODEC_BLOCK_BYTES);
    }
}

static void int8_decode(void *argument)
{
    const struct codec_pass *pass = argument;
#pragma omp parallel if (pass->count > CODEC_SHARE_LEAST)
    {
        const struct codec_share share = codec_share(pass->count, CODEC_BLOCK);
        blocks_decode(pass, share.begin, share.count);
    }
}

const struct codec_ops codec_int8 = {
    .name = "int8",
    .about = "8 bits, and a float32 scale for 256 numbers",
    .exchange = CODEC_SHARDED,
    .type = ALNICO_UINT32,
    .bytes = int8_bytes,
    .encode = int8_encode,
    .decode = int8_decode,
#ifdef ALNICO_HAVE_CUDNN
    .gpu_encode = train_int8_encode,
    .gpu_decode = train_int8_decode,
#endif
};
