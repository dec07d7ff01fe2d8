/*
 * Element-wise reductions on host memory: one loop for each type and operation, in a table. The CPU
 * device calls them on the thread that runs the stream; any thread may.
 *
 * A loop is plain C that the compiler vectorises, on x86-64 once for each level of instruction
 * sets, of which the loader picks one. Every level and every position gives the same bits: a result
 * is one IEEE operation, and a NaN result is always the same quiet NaN, whatever the operands'
 * payloads.
 */
#include "device/cpu/math.h"

#include "base/datatype.h"
#include "base/float8.h"
#include "base/vectorised.h"

#include <assert.h>
#include <math.h>
#include <string.h>

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define HAVE_F16C 1
#include <immintrin.h>
#else
#define HAVE_F16C 0
#endif

/* dst is a source itself or does not overlap it, so no iteration depends on another. */
#if defined(__clang__)
#define INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#elif defined(__GNUC__)
#define INDEPENDENT _Pragma("GCC ivdep")
#else
#define INDEPENDENT
#endif

typedef void reduce_kernel(void *dst, const void *a, const void *b, size_t count);
typedef void divide_kernel(void *dst, const void *src, size_t count, int ranks);

static inline uint64_t bits64(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline double float64(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* Loading, combining and storing one element. */
#define SAME(x) (x)
#define ONE_NAN32(x) (isnan(x) ? NAN : (x))
#define ONE_NAN64(x) (isnan(x) ? (double)NAN : (x))

#define ADD(x, y) ((x) + (y))
#define MULTIPLY(x, y) ((x) * (y))
#define SMALLER(x, y) ((x) < (y) ? (x) : (y))
#define LARGER(x, y) ((x) > (y) ? (x) : (y))
#define BOTH(x, y) (((x) != 0) & ((y) != 0))
#define EITHER(x, y) (((x) != 0) | ((y) != 0))
#define ONE_OF(x, y) (((x) != 0) ^ ((y) != 0))
#define BITS_AND(x, y) ((x) & (y))
#define BITS_OR(x, y) ((x) | (y))
#define BITS_XOR(x, y) ((x) ^ (y))

/* If neither is smaller, the operands are equal, differ in the sign of zero, or one is NaN. The
 * union of their bits is right for all three: -0 is the smaller zero, and NaN stays NaN. The
 * maximum does it with both signs turned. */
static inline float smaller32(float x, float y)
{
    float other = y < x ? y : float32(bits32(x) | bits32(y));
    return x < y ? x : other;
}

static inline float larger32(float x, float y)
{
    return -smaller32(-x, -y);
}

static inline double smaller64(double x, double y)
{
    double other = y < x ? y : float64(bits64(x) | bits64(y));
    return x < y ? x : other;
}

static inline double larger64(double x, double y)
{
    return -smaller64(-x, -y);
}

/* Orders 16-bit floats: as float, with -0 below +0. */
static inline int order16(uint16_t x)
{
    int bits = (int16_t)x;
    return bits < 0 ? bits ^ 0x7fff : bits;
}

static inline bool ordered16(uint16_t x, uint16_t y, int infinity)
{
    return ((x & 0x7fff) <= infinity) & ((y & 0x7fff) <= infinity);
}

static inline uint16_t smaller16(uint16_t x, uint16_t y, int infinity, int nan)
{
    uint16_t smaller = order16(x) < order16(y) ? x : y;
    return ordered16(x, y, infinity) ? smaller : (uint16_t)nan;
}

static inline uint16_t larger16(uint16_t x, uint16_t y, int infinity, int nan)
{
    uint16_t larger = order16(x) > order16(y) ? x : y;
    return ordered16(x, y, infinity) ? larger : (uint16_t)nan;
}

#define SMALLER_HALF(x, y) smaller16(x, y, 0x7c00, 0x7e00)
#define LARGER_HALF(x, y) larger16(x, y, 0x7c00, 0x7e00)
#define SMALLER_BFLOAT(x, y) smaller16(x, y, 0x7f80, 0x7fc0)
#define LARGER_BFLOAT(x, y) larger16(x, y, 0x7f80, 0x7fc0)

#define REDUCE_PORTABLE(name, type, wide, load, store, combine)                                    \
    static void name(void *dst, const void *a, const void *b, size_t count)                        \
    {                                                                                              \
        type *out = dst;                                                                           \
        const type *left = a, *right = b;                                                          \
        INDEPENDENT                                                                                \
        for (size_t i = 0; i < count; i++) {                                                       \
            wide x = load(left[i]), y = load(right[i]);                                            \
            wide result = (wide)combine(x, y);                                                     \
            out[i] = (type)store(result);                                                          \
        }                                                                                          \
    }

#define REDUCE(...) VECTORISED REDUCE_PORTABLE(__VA_ARGS__)

#define DIVIDE_INTEGER(name, type, wide)                                                           \
    VECTORISED static void name(void *dst, const void *src, size_t count, int ranks)               \
    {                                                                                              \
        type *out = dst;                                                                           \
        const type *in = src;                                                                      \
        INDEPENDENT                                                                                \
        for (size_t i = 0; i < count; i++)                                                         \
            out[i] = (type)((wide)in[i] / (wide)ranks);                                            \
    }

#define DIVIDE_PORTABLE(name, type, wide, load, store)                                             \
    static void name(void *dst, const void *src, size_t count, int ranks)                          \
    {                                                                                              \
        type *out = dst;                                                                           \
        const type *in = src;                                                                      \
        const wide factor = (wide)1 / (wide)ranks;                                                 \
        INDEPENDENT                                                                                \
        for (size_t i = 0; i < count; i++) {                                                       \
            wide result = load(in[i]) * factor;                                                    \
            out[i] = (type)store(result);                                                          \
        }                                                                                          \
    }

#define DIVIDE_FLOAT(...) VECTORISED DIVIDE_PORTABLE(__VA_ARGS__)

/* Operations whose bits are the same for signed and unsigned integers run unsigned, where overflow
 * is defined and wraps. */
#define UNSIGNED_KERNELS(n)                                                                        \
    REDUCE(sum_##n, uint##n##_t, uint##n##_t, SAME, SAME, ADD)                                     \
    REDUCE(product_##n, uint##n##_t, uint##n##_t, SAME, SAME, MULTIPLY)                            \
    REDUCE(logical_and_##n, uint##n##_t, uint##n##_t, SAME, SAME, BOTH)                            \
    REDUCE(logical_or_##n, uint##n##_t, uint##n##_t, SAME, SAME, EITHER)                           \
    REDUCE(logical_xor_##n, uint##n##_t, uint##n##_t, SAME, SAME, ONE_OF)                          \
    REDUCE(bitwise_and_##n, uint##n##_t, uint##n##_t, SAME, SAME, BITS_AND)                        \
    REDUCE(bitwise_or_##n, uint##n##_t, uint##n##_t, SAME, SAME, BITS_OR)                          \
    REDUCE(bitwise_xor_##n, uint##n##_t, uint##n##_t, SAME, SAME, BITS_XOR)

#define ORDERED_KERNELS(name, type, wide)                                                          \
    REDUCE(minimum_##name, type, type, SAME, SAME, SMALLER)                                        \
    REDUCE(maximum_##name, type, type, SAME, SAME, LARGER)                                         \
    DIVIDE_INTEGER(divide_##name, type, wide)

#define FLOAT_KERNELS(name, type, wide, load, store)                                               \
    REDUCE(sum_##name, type, wide, load, store, ADD)                                               \
    REDUCE(product_##name, type, wide, load, store, MULTIPLY)                                      \
    DIVIDE_FLOAT(divide_##name, type, wide, load, store)

UNSIGNED_KERNELS(8)
UNSIGNED_KERNELS(32)
UNSIGNED_KERNELS(64)
ORDERED_KERNELS(int8, int8_t, int32_t)
ORDERED_KERNELS(uint8, uint8_t, uint32_t)
ORDERED_KERNELS(int32, int32_t, int32_t)
ORDERED_KERNELS(uint32, uint32_t, uint32_t)
ORDERED_KERNELS(int64, int64_t, int64_t)
ORDERED_KERNELS(uint64, uint64_t, uint64_t)
FLOAT_KERNELS(bfloat16, uint16_t, float, from_bfloat, to_bfloat)
FLOAT_KERNELS(float8_e4m3, uint8_t, float, from_e4m3, to_e4m3)
FLOAT_KERNELS(float8_e5m2, uint8_t, float, from_e5m2, to_e5m2)
FLOAT_KERNELS(float32, float, float, SAME, ONE_NAN32)
FLOAT_KERNELS(float64, double, double, SAME, ONE_NAN64)
REDUCE(minimum_float16, uint16_t, uint16_t, SAME, SAME, SMALLER_HALF)
REDUCE(maximum_float16, uint16_t, uint16_t, SAME, SAME, LARGER_HALF)
REDUCE(minimum_bfloat16, uint16_t, uint16_t, SAME, SAME, SMALLER_BFLOAT)
REDUCE(maximum_bfloat16, uint16_t, uint16_t, SAME, SAME, LARGER_BFLOAT)
REDUCE(minimum_float8_e4m3, uint8_t, float, from_e4m3, to_e4m3, smaller32)
REDUCE(maximum_float8_e4m3, uint8_t, float, from_e4m3, to_e4m3, larger32)
REDUCE(minimum_float8_e5m2, uint8_t, float, from_e5m2, to_e5m2, smaller32)
REDUCE(maximum_float8_e5m2, uint8_t, float, from_e5m2, to_e5m2, larger32)
REDUCE(minimum_float32, float, float, SAME, ONE_NAN32, smaller32)
REDUCE(maximum_float32, float, float, SAME, ONE_NAN32, larger32)
REDUCE(minimum_float64, double, double, SAME, ONE_NAN64, smaller64)
REDUCE(maximum_float64, double, double, SAME, ONE_NAN64, larger64)

/* Halves are converted eight at a time where the processor does it; what is left, or all of them
 * elsewhere, goes through the portable loops, with the same bits. */
REDUCE_PORTABLE(sum_halves, uint16_t, float, from_half, to_half, ADD)
REDUCE_PORTABLE(product_halves, uint16_t, float, from_half, to_half, MULTIPLY)
DIVIDE_PORTABLE(divide_halves, uint16_t, float, from_half, to_half)

#if HAVE_F16C
#define F16C __attribute__((target("avx2,f16c")))

static inline bool have_f16c(void)
{
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("f16c");
}

static inline F16C __m256 load_halves(const uint16_t *from)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)from));
}

static inline F16C void store_halves(uint16_t *to, __m256 x)
{
    __m256 nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q);
    x = _mm256_blendv_ps(x, _mm256_set1_ps(NAN), nan);
    _mm_storeu_si128((__m128i *)to, _mm256_cvtps_ph(x, _MM_FROUND_TO_NEAREST_INT));
}

#define REDUCE_HALVES(name, combine)                                                               \
    F16C static size_t name(uint16_t *dst, const uint16_t *a, const uint16_t *b, size_t count)     \
    {                                                                                              \
        size_t i = 0;                                                                              \
        for (; i + 8 <= count; i += 8)                                                             \
            store_halves(dst + i, combine(load_halves(a + i), load_halves(b + i)));                \
        return i;                                                                                  \
    }

REDUCE_HALVES(sum_f16c, _mm256_add_ps)
REDUCE_HALVES(product_f16c, _mm256_mul_ps)

F16C static size_t divide_f16c(uint16_t *dst, const uint16_t *src, size_t count, int ranks)
{
    __m256 factor = _mm256_set1_ps(1.0f / (float)ranks);
    size_t i = 0;
    for (; i + 8 <= count; i += 8)
        store_halves(dst + i, _mm256_mul_ps(load_halves(src + i), factor));
    return i;
}
#else
#define have_f16c() false
#define sum_f16c(dst, a, b, count) 0
#define product_f16c(dst, a, b, count) 0
#define divide_f16c(dst, src, count, ranks) 0
#endif

#define REDUCE_FLOAT16(name, wide, rest)                                                           \
    static void name(void *dst, const void *a, const void *b, size_t count)                        \
    {                                                                                              \
        uint16_t *out = dst;                                                                       \
        const uint16_t *x = a, *y = b;                                                             \
        size_t done = have_f16c() ? wide(out, x, y, count) : 0;                                    \
        rest(out + done, x + done, y + done, count - done);                                        \
    }

REDUCE_FLOAT16(sum_float16, sum_f16c, sum_halves)
REDUCE_FLOAT16(product_float16, product_f16c, product_halves)

static void divide_float16(void *dst, const void *src, size_t count, int ranks)
{
    uint16_t *out = dst;
    const uint16_t *x = src;
    size_t done = have_f16c() ? divide_f16c(out, x, count, ranks) : 0;
    divide_halves(out + done, x + done, count - done, ranks);
}

#define INTEGER_ROW(name, n)                                                                       \
    {                                                                                              \
        [ALNICO_SUM] = sum_##n, [ALNICO_PRODUCT] = product_##n, [ALNICO_MINIMUM] = minimum_##name, \
        [ALNICO_MAXIMUM] = maximum_##name, [ALNICO_AVERAGE] = sum_##n,                             \
        [ALNICO_LOGICAL_AND] = logical_and_##n, [ALNICO_LOGICAL_OR] = logical_or_##n,              \
        [ALNICO_LOGICAL_XOR] = logical_xor_##n, [ALNICO_BITWISE_AND] = bitwise_and_##n,            \
        [ALNICO_BITWISE_OR] = bitwise_or_##n, [ALNICO_BITWISE_XOR] = bitwise_xor_##n               \
    }

#define FLOAT_ROW(name)                                                                            \
    {                                                                                              \
        [ALNICO_SUM] = sum_##name, [ALNICO_PRODUCT] = product_##name,                              \
        [ALNICO_MINIMUM] = minimum_##name, [ALNICO_MAXIMUM] = maximum_##name,                      \
        [ALNICO_AVERAGE] = sum_##name                                                              \
    }

static reduce_kernel *const reduce_kernels[DATATYPES][OPS] = {
    [ALNICO_INT8] = INTEGER_ROW(int8, 8),          [ALNICO_UINT8] = INTEGER_ROW(uint8, 8),
    [ALNICO_INT32] = INTEGER_ROW(int32, 32),       [ALNICO_UINT32] = INTEGER_ROW(uint32, 32),
    [ALNICO_INT64] = INTEGER_ROW(int64, 64),       [ALNICO_UINT64] = INTEGER_ROW(uint64, 64),
    [ALNICO_FLOAT16] = FLOAT_ROW(float16),         [ALNICO_BFLOAT16] = FLOAT_ROW(bfloat16),
    [ALNICO_FLOAT32] = FLOAT_ROW(float32),         [ALNICO_FLOAT64] = FLOAT_ROW(float64),
    [ALNICO_FLOAT8_E4M3] = FLOAT_ROW(float8_e4m3), [ALNICO_FLOAT8_E5M2] = FLOAT_ROW(float8_e5m2),
};

static divide_kernel *const divide_kernels[DATATYPES] = {
    [ALNICO_INT8] = divide_int8,
    [ALNICO_UINT8] = divide_uint8,
    [ALNICO_INT32] = divide_int32,
    [ALNICO_UINT32] = divide_uint32,
    [ALNICO_INT64] = divide_int64,
    [ALNICO_UINT64] = divide_uint64,
    [ALNICO_FLOAT16] = divide_float16,
    [ALNICO_BFLOAT16] = divide_bfloat16,
    [ALNICO_FLOAT32] = divide_float32,
    [ALNICO_FLOAT64] = divide_float64,
    [ALNICO_FLOAT8_E4M3] = divide_float8_e4m3,
    [ALNICO_FLOAT8_E5M2] = divide_float8_e5m2,
};

void math_reduce(void *dst, const void *a, const void *b, size_t count, alnico_datatype_t type,
                 alnico_op_t op)
{
    assert(datatype_valid(type) && op_valid(op) && op_supports(op, type));
    reduce_kernels[type][op](dst, a, b, count);
}

void math_divide(void *dst, const void *src, size_t count, alnico_datatype_t type, int ranks)
{
    assert(datatype_valid(type) && ranks > 0);
    divide_kernels[type](dst, src, count, ranks);
}

#define CONVERT(name, to, from, convert)                                                           \
    VECTORISED static void name(void *restrict dst, const void *restrict src, size_t count)        \
    {                                                                                              \
        to *restrict out = dst;                                                                    \
        const from *restrict in = src;                                                             \
        for (size_t i = 0; i < count; i++)                                                         \
            out[i] = convert(in[i]);                                                               \
    }

CONVERT(widen_half, float, uint16_t, from_half)
CONVERT(widen_bfloat, float, uint16_t, from_bfloat)
CONVERT(widen_e4m3, float, uint8_t, from_e4m3)
CONVERT(widen_e5m2, float, uint8_t, from_e5m2)
CONVERT(narrow_half, uint16_t, float, to_half)
CONVERT(narrow_bfloat, uint16_t, float, to_bfloat)
CONVERT(narrow_e4m3, uint8_t, float, to_e4m3)
CONVERT(narrow_e5m2, uint8_t, float, to_e5m2)

typedef void convert_kernel(void *restrict dst, const void *restrict src, size_t count);

static const struct {
    convert_kernel *widen, *narrow;
} conversions[DATATYPES] = {
    [ALNICO_FLOAT16] = {widen_half, narrow_half},
    [ALNICO_BFLOAT16] = {widen_bfloat, narrow_bfloat},
    [ALNICO_FLOAT8_E4M3] = {widen_e4m3, narrow_e4m3},
    [ALNICO_FLOAT8_E5M2] = {widen_e5m2, narrow_e5m2},
};

void math_widen(float *dst, const void *src, size_t count, alnico_datatype_t type)
{
    assert(datatype_is_short_float(type));
    conversions[type].widen(dst, src, count);
}

void math_narrow(void *dst, const float *src, size_t count, alnico_datatype_t type)
{
    assert(datatype_is_short_float(type));
    conversions[type].narrow(dst, src, count);
}
