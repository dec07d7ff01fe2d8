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
    return type == ALNICO_FLOAT16    ? 11
           : type == ALNICO_BFLOAT16 ? 8
           : type == ALNICO_FLOAT32  ? 24
                                     : 53;
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

/* A rank's input of a float type, exact in it: within [-1, 1), for products 0.75 to 1.25 with a
 * sign. */
VALUE_CODE double value_float(const struct check *check, int rank, size_t index)
{
    int bits = value_precision(check->type);
    double unit = 1.0 / (double)((uint64_t)1 << bits);
    uint64_t drawn = value_draw(check, rank, index);
    if (check->op != ALNICO_PRODUCT)
        return (double)(drawn >> (63 - bits)) * unit - 1;
    double size = 0.75 + (double)(drawn >> (66 - bits)) * 2 * unit;
    return drawn & 1 ? -size : size;
}

/* binary16 and back, for finite values that it holds exactly and that are not subnormal. */
VALUE_CODE uint16_t value_to_half(double value)
{
    if (value == 0)
        return 0;
    int exponent;
    double fraction = frexp(fabs(value), &exponent);
    unsigned bits = (unsigned)(exponent + 14) << 10 | (unsigned)(fraction * 2048 - 1024);
    return (uint16_t)(bits | (value < 0 ? 0x8000u : 0));
}

VALUE_CODE double value_from_half(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double size = exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
                  : exponent     ? ldexp(1024.0 + fraction, exponent - 25)
                                 : ldexp((double)fraction, -24);
    return bits & 0x8000 ? -size : size;
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
    else
        *(uint16_t *)out = type == ALNICO_FLOAT16 ? value_to_half(value) : (uint16_t)(bits >> 16);
}

VALUE_CODE double value_load_float(alnico_datatype_t type, const void *from)
{
    if (type == ALNICO_FLOAT64)
        return *(const double *)from;
    if (type == ALNICO_FLOAT32)
        return *(const float *)from;
    uint16_t half = *(const uint16_t *)from;
    if (type == ALNICO_FLOAT16)
        return value_from_half(half);
    uint32_t bits = (uint32_t)half << 16;
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
