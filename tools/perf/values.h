/* The values of alnico-perf one by one: an input, the reference of a result, and whether a result
 * is right. Host and device code share it, so that perf/check.c's unit test holds for gpu/check.cu
 * as well; the library's arithmetic has no part in it. Integers are reduced modulo 2^64 and cut to
 * their type; floats are drawn from the type's own grid, reduced in float64 and compared within
 * perf/check.h's bounds. Any thread. */
#ifndef ALNICO_TOOLS_PERF_VALUES_H
#define ALNICO_TOOLS_PERF_VALUES_H

#include "tools/perf/check.h"

#include <math.h>
#include <string.h>

#ifdef __CUDACC__
#define VALUE_CODE static inline __host__ __device__
#else
#define VALUE_CODE static inline
#endif

/* splitmix64 (Steele, Lea, Flood 2014) of a position in the rank's own sequence. */
VALUE_CODE uint64_t value_draw(const struct check *check, int rank, size_t index)
{
    uint64_t x = check->seed + (uint64_t)rank * 0xD1342543DE82EF95u +
                 ((uint64_t)(index + check->shift) + 1) * 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

VALUE_CODE size_t value_bytes(alnico_datatype_t type)
{
    return type == ALNICO_INT8 || type == ALNICO_UINT8         ? 1
           : type >= ALNICO_FLOAT8_E4M3                        ? 1
           : type == ALNICO_FLOAT16 || type == ALNICO_BFLOAT16 ? 2
           : type == ALNICO_INT32 || type == ALNICO_UINT32     ? 4
           : type == ALNICO_FLOAT32                            ? 4
                                                               : 8;
}

VALUE_CODE bool value_is_integer(alnico_datatype_t type)
{
    return type < ALNICO_FLOAT16;
}

VALUE_CODE bool value_is_signed(alnico_datatype_t type)
{
    return type == ALNICO_INT8 || type == ALNICO_INT32 || type == ALNICO_INT64;
}

VALUE_CODE bool value_is_logical(alnico_op_t op)
{
    return op >= ALNICO_LOGICAL_AND && op <= ALNICO_LOGICAL_XOR;
}

/* Bits of a float type's precision, with the hidden one. */
VALUE_CODE int value_precision(alnico_datatype_t type)
{
    return type == ALNICO_FLOAT16       ? 11
           : type == ALNICO_BFLOAT16    ? 8
           : type == ALNICO_FLOAT32     ? 24
           : type == ALNICO_FLOAT64     ? 53
           : type == ALNICO_FLOAT8_E4M3 ? 4
                                        : 3;
}

/* Cuts a 64-bit pattern to the integer type and extends it again by its sign. */
VALUE_CODE uint64_t value_narrow(alnico_datatype_t type, uint64_t value)
{
    int shift = 64 - 8 * (int)value_bytes(type);
    return value_is_signed(type) ? (uint64_t)((int64_t)(value << shift) >> shift)
                                 : value << shift >> shift;
}

/* A rank's input. Products of odd numbers never vanish; logical operations meet a zero in every
 * fourth input. */
VALUE_CODE uint64_t value_integer(const struct check *check, int rank, size_t index)
{
    uint64_t bits = value_draw(check, rank, index);
    if (check->op == ALNICO_PRODUCT)
        bits |= 1;
    else if (value_is_logical(check->op))
        bits = bits >> 62 ? (bits & 63) + 1 : 0;
    return value_narrow(check->type, bits);
}

/* Roundings of 8-bit floats soon add up to more than the result: of all ranks' inputs to an element so
 * many at most are not 0, or in a product not 1 or -1. */
enum { VALUE_FLOAT8_TERMS = 4 };

VALUE_CODE bool value_is_neutral(const struct check *check, int rank, size_t index)
{
    size_t step = ((size_t)check->ranks + VALUE_FLOAT8_TERMS - 1) / VALUE_FLOAT8_TERMS;
    size_t place = (size_t)(rank - check->first) + index + check->shift;
    return check->type >= ALNICO_FLOAT8_E4M3 && place % step != 0;
}

/* A rank's input of a float type, exact in it: within [-1, 1), for products 0.75 to 1.25 with a
 * sign. */
VALUE_CODE double value_float(const struct check *check, int rank, size_t index)
{
    int bits = value_precision(check->type);
    double unit = 1.0 / (double)((uint64_t)1 << bits);
    uint64_t drawn = value_draw(check, rank, index);
    if (value_is_neutral(check, rank, index))
        return check->op != ALNICO_PRODUCT ? 0 : drawn & 1 ? -1 : 1;
    if (check->op != ALNICO_PRODUCT)
        return (double)(drawn >> (63 - bits)) * unit - 1;
    double size = 0.75 + (double)(drawn >> (66 - bits)) * 2 * unit;
    return drawn & 1 ? -size : size;
}

/* binary16 and the 8-bit floats: bits of the fraction, bias of the exponent, and the first magnitudes
 * that are no finite number and NaN. */
struct value_format {
    int bits, fraction, bias;
    unsigned infinite, nan;
};

VALUE_CODE struct value_format value_format(alnico_datatype_t type)
{
    struct value_format half = {16, 10, 15, 0x7c00, 0x7c01}, e4m3 = {8, 3, 7, 0x7f, 0x7f},
                        e5m2 = {8, 2, 15, 0x7c, 0x7d};
    return type == ALNICO_FLOAT16 ? half : type == ALNICO_FLOAT8_E4M3 ? e4m3 : e5m2;
}

/* The bits of a finite value that the format holds exactly and that is not subnormal. */
VALUE_CODE unsigned value_to_bits(alnico_datatype_t type, double value)
{
    struct value_format f = value_format(type);
    if (value == 0)
        return 0;
    int exponent;
    double fraction = frexp(fabs(value), &exponent);
    unsigned bits = (unsigned)(exponent - 1 + f.bias) << f.fraction |
                    (unsigned)ldexp(2 * fraction - 1, f.fraction);
    return bits | (value < 0 ? 1u << (f.bits - 1) : 0);
}

VALUE_CODE double value_from_bits(alnico_datatype_t type, unsigned bits)
{
    struct value_format f = value_format(type);
    unsigned sign = 1u << (f.bits - 1), magnitude = bits & (sign - 1);
    int exponent = (int)(magnitude >> f.fraction), whole = 1 << f.fraction;
    double fraction = (double)(magnitude & ((unsigned)whole - 1));
    double size = magnitude >= f.nan        ? (double)NAN
                  : magnitude >= f.infinite ? (double)INFINITY
                  : exponent ? ldexp(whole + fraction, exponent - f.bias - f.fraction)
                             : ldexp(fraction, 1 - f.bias - f.fraction);
    return bits & sign ? -size : size;
}

/* Writes and reads one element; memory as any host or device thread sees it, aligned to the
 * type. */
VALUE_CODE void value_store_float(alnico_datatype_t type, void *out, double value)
{
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    if (type == ALNICO_FLOAT64)
        *(double *)out = value;
    else if (type == ALNICO_FLOAT32)
        *(float *)out = single;
    else if (type == ALNICO_BFLOAT16)
        *(uint16_t *)out = (uint16_t)(bits >> 16);
    else if (type == ALNICO_FLOAT16)
        *(uint16_t *)out = (uint16_t)value_to_bits(type, value);
    else
        *(uint8_t *)out = (uint8_t)value_to_bits(type, value);
}

VALUE_CODE double value_load_float(alnico_datatype_t type, const void *from)
{
    if (type == ALNICO_FLOAT64)
        return *(const double *)from;
    if (type == ALNICO_FLOAT32)
        return *(const float *)from;
    if (type == ALNICO_FLOAT16)
        return value_from_bits(type, *(const uint16_t *)from);
    if (type != ALNICO_BFLOAT16)
        return value_from_bits(type, *(const uint8_t *)from);
    uint32_t bits = (uint32_t) * (const uint16_t *)from << 16;
    float single;
    memcpy(&single, &bits, sizeof single);
    return single;
}

VALUE_CODE void value_store_integer(alnico_datatype_t type, void *out, uint64_t value)
{
    size_t bytes = value_bytes(type);
    if (bytes == 1)
        *(uint8_t *)out = (uint8_t)value;
    else if (bytes == 4)
        *(uint32_t *)out = (uint32_t)value;
    else
        *(uint64_t *)out = value;
}

VALUE_CODE uint64_t value_load_integer(alnico_datatype_t type, const void *from)
{
    size_t bytes = value_bytes(type);
    return bytes == 1   ? value_narrow(type, *(const uint8_t *)from)
           : bytes == 4 ? value_narrow(type, *(const uint32_t *)from)
                        : *(const uint64_t *)from;
}

/* Writes a rank's input to its place. */
VALUE_CODE void value_fill(const struct check *check, int rank, size_t index, void *out)
{
    if (value_is_integer(check->type))
        value_store_integer(check->type, out, value_integer(check, rank, index));
    else
        value_store_float(check->type, out, value_float(check, rank, index));
}

VALUE_CODE uint64_t value_combine_integers(const struct check *check, uint64_t a, uint64_t b)
{
    bool less = value_is_signed(check->type) ? (int64_t)a < (int64_t)b : a < b;
    switch (check->op) {
    case ALNICO_PRODUCT:
        return a * b;
    case ALNICO_MINIMUM:
        return less ? a : b;
    case ALNICO_MAXIMUM:
        return less ? b : a;
    case ALNICO_LOGICAL_AND:
        return a && b;
    case ALNICO_LOGICAL_OR:
        return a || b;
    case ALNICO_LOGICAL_XOR:
        return !a != !b;
    case ALNICO_BITWISE_AND:
        return a & b;
    case ALNICO_BITWISE_OR:
        return a | b;
    case ALNICO_BITWISE_XOR:
        return a ^ b;
    default:
        return a + b;
    }
}

VALUE_CODE double value_combine_floats(alnico_op_t op, double a, double b)
{
    switch (op) {
    case ALNICO_PRODUCT:
        return a * b;
    case ALNICO_MINIMUM:
        return a < b ? a : b;
    case ALNICO_MAXIMUM:
        return a < b ? b : a;
    default:
        return a + b;
    }
}

/* The last step, once all ranks' inputs are combined. One rank combines nothing. */
VALUE_CODE uint64_t value_finish_integer(const struct check *check, uint64_t value)
{
    value = value_narrow(check->type, value);
    if (value_is_logical(check->op) && check->ranks > 1)
        return value != 0;
    if (check->op != ALNICO_AVERAGE)
        return value;
    return value_is_signed(check->type) ? (uint64_t)((int64_t)value / check->ranks)
                                        : value / (uint64_t)check->ranks;
}

VALUE_CODE bool value_check_integer(const struct check *check, const void *element, size_t index,
                                    struct check_fault *fault)
{
    uint64_t all = value_integer(check, check->first, index);
    for (int rank = 1; rank < check->ranks; rank++)
        all = value_combine_integers(check, all, value_integer(check, check->first + rank, index));
    uint64_t found = value_load_integer(check->type, element);
    uint64_t expected = value_finish_integer(check, all);
    fault->index = index;
    fault->found = (double)(int64_t)found;
    fault->expected = (double)(int64_t)expected;
    fault->tolerance = 0;
    return found == expected;
}

VALUE_CODE bool value_check_float(const struct check *check, const struct check_bounds *bounds,
                                  const void *element, size_t index, struct check_fault *fault)
{
    double all = value_float(check, check->first, index), scale = fabs(all);
    for (int rank = 1; rank < check->ranks; rank++) {
        double next = value_float(check, check->first + rank, index);
        all = value_combine_floats(check->op, all, next);
        scale = value_combine_floats(check->op, scale, fabs(next));
    }
    double divisor = check->op == ALNICO_AVERAGE ? check->ranks : 1;
    fault->index = index;
    fault->found = value_load_float(check->type, element);
    fault->expected = all / divisor;
    fault->tolerance = bounds->relative * fabs(scale) / divisor + bounds->absolute;
    return fabs(fault->found - fault->expected) <= fault->tolerance;
}

/* Whether the element at `index` of a result is right; `fault` says what was found and expected. */
VALUE_CODE bool value_check(const struct check *check, const struct check_bounds *bounds,
                            const void *element, size_t index, struct check_fault *fault)
{
    return value_is_integer(check->type) ? value_check_integer(check, element, index, fault)
                                         : value_check_float(check, bounds, element, index, fault);
}

#endif
