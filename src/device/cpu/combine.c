/*
 * Several vectors combined at once, block by block, so that what is not finished stays in the first
 * cache and short floats keep float32 sums until the end; and a vector times a factor. Any thread.
 */
#include "device/cpu/math.h"

#include "base/datatype.h"

#include <string.h>

enum { BLOCK_BYTES = 4096 };

/* A type that is rounded only at the end, where the operation rounds at all. */
static bool is_widened(alnico_datatype_t type, alnico_op_t op)
{
    return datatype_is_short_float(type) && op != ALNICO_MINIMUM && op != ALNICO_MAXIMUM;
}

static const char *source_at(const void *const *sources, int k, size_t byte)
{
    return (const char *)sources[k] + byte;
}

/* One block of `count` elements, `at` elements into the vectors. */
static void combine_wide(char *dst, const void *const *sources, int number, size_t at, size_t count,
                         alnico_datatype_t type, alnico_op_t op)
{
    float sum[BLOCK_BYTES / sizeof(float)], next[BLOCK_BYTES / sizeof(float)];
    size_t begin = at * datatype_bytes(type);
    math_widen(sum, source_at(sources, 0, begin), count, type);
    for (int k = 1; k < number; k++) {
        math_widen(next, source_at(sources, k, begin), count, type);
        math_reduce(sum, sum, next, count, ALNICO_FLOAT32, op);
    }
    if (op == ALNICO_AVERAGE)
        math_divide(sum, sum, count, ALNICO_FLOAT32, number);
    math_narrow(dst + begin, sum, count, type);
}

static void combine_plain(char *dst, const void *const *sources, int number, size_t at,
                          size_t count, alnico_datatype_t type, alnico_op_t op)
{
    _Alignas(64) char block[BLOCK_BYTES];
    size_t bytes = datatype_bytes(type), begin = at * bytes;
    if (number == 1) {
        memmove(dst + begin, source_at(sources, 0, begin), count * bytes);
        return;
    }
    /* Two sources may be combined in place; with more, dst may be one that is still to come. */
    char *sum = number == 2 ? dst + begin : block;
    math_reduce(sum, source_at(sources, 0, begin), source_at(sources, 1, begin), count, type, op);
    for (int k = 2; k < number; k++)
        math_reduce(k == number - 1 ? dst + begin : sum, sum, source_at(sources, k, begin), count,
                    type, op);
    if (op == ALNICO_AVERAGE)
        math_divide(dst + begin, dst + begin, count, type, number);
}

void math_combine(void *dst, const void *const *sources, int number, size_t count,
                  alnico_datatype_t type, alnico_op_t op)
{
    bool wide = is_widened(type, op);
    size_t block = BLOCK_BYTES / (wide ? sizeof(float) : datatype_bytes(type));
    for (size_t at = 0; at < count; at += block) {
        size_t part = count - at < block ? count - at : block;
        (wide ? combine_wide : combine_plain)(dst, sources, number, at, part, type, op);
    }
}

/* A block of factors is a second vector. */
void math_scale(void *dst, const void *src, size_t count, alnico_datatype_t type,
                const void *factor)
{
    _Alignas(64) char factors[BLOCK_BYTES];
    size_t bytes = datatype_bytes(type), block = BLOCK_BYTES / bytes;
    for (size_t i = 0; i < block && i < count; i++)
        memcpy(factors + i * bytes, factor, bytes);
    for (size_t at = 0; at < count; at += block)
        math_reduce((char *)dst + at * bytes, (const char *)src + at * bytes, factors,
                    count - at < block ? count - at : block, type, ALNICO_PRODUCT);
}
