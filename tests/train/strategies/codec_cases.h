/* Numbers for tests of the codecs, on the CPU and on GPUs: as many as there are in a block or not, and
 * distributions that a choice of the largest finds hard. */
#ifndef ALNICO_TESTS_TRAIN_CODEC_CASES_H
#define ALNICO_TESTS_TRAIN_CODEC_CASES_H

#include "train/base/random.h"
#include "train/strategies/codecs/codec.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The last ones are large enough that topk guesses its bound. */
static const size_t codec_counts[] = {1,   2,    3,    4,     31,    255,   256,
                                      257, 1000, 4095, 65535, 65536, 70001, 200003};
enum { CODEC_COUNTS = sizeof codec_counts / sizeof *codec_counts };

enum codec_fill {
    FILL_NORMAL,
    FILL_TIES,    /* whole numbers from -3 to 3 */
    FILL_EQUAL,   /* all the same */
    FILL_ZEROS,   /* one in 500 is none */
    FILL_CLUSTER, /* the large ones stand together, at the end */
    FILL_TINY,    /* around the smallest normal numbers and below */
    FILL_HUGE,
    FILL_BROKEN, /* a few are infinite or no numbers */
    CODEC_FILLS
};

static inline float codec_number(enum codec_fill fill, size_t i, size_t count, uint64_t *state)
{
    const double normal =
        sqrt(-2 * log(1 - random_unit(state))) * cos(6.283185307179586 * random_unit(state));
    const float broken[] = {INFINITY, -INFINITY, NAN};
    switch (fill) {
    case FILL_TIES:
        return (float)((int)(random_next(state) % 7) - 3);
    case FILL_EQUAL:
        return 0.1f;
    case FILL_ZEROS:
        return random_next(state) % 500 ? 0 : (float)normal;
    case FILL_CLUSTER:
        return (float)(normal * (i > count - count / 64 ? 1 : 1e-3));
    case FILL_TINY:
        return (float)(normal * 0x1p-127);
    case FILL_HUGE:
        return (float)(normal * 1e37);
    case FILL_BROKEN:
        return random_next(state) % 1000 ? (float)normal : broken[random_next(state) % 3];
    default:
        return (float)normal;
    }
}

static inline void codec_fill(enum codec_fill fill, float *out, size_t count, uint64_t *state)
{
    for (size_t i = 0; i < count; i++)
        out[i] = codec_number(fill, i, count, state);
}

/* Codecs as options name them. */
static const char *const codec_texts[] = {"bf16",      "fp16",     "int8",     "topk:0.01",
                                          "topk:1e-4", "topk:0.2", "topk:0.6", "topk:1"};
enum { CODEC_TEXTS = sizeof codec_texts / sizeof *codec_texts };

#endif
