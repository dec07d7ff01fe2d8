/* Inputs and reference values of alnico-perf. Integers are reduced modulo 2^64 and cut to their type;
 * floats are drawn from the type's own grid, reduced in float64 and compared within
 * ((1 + u)^roundings - 1) * scale, where u is the unit roundoff. Shares nothing with the library's
 * arithmetic. Any thread. */
#include "perf_check.h"

#include "datatype.h"

#include <math.h>
#include <string.h>

enum { BLOCK = 512 };

/* Bits of a float type's precision, with the hidden one. */
static int precision(alnico_datatype_t type)
{
    switch (type) {
    case ALNICO_FLOAT16:
        return 11;
    case ALNICO_BFLOAT16:
        return 8;
    case ALNICO_FLOAT32:
        return 24;
    default:
        return 53;
    }
}

static bool is_signed(alnico_datatype_t type)
{
    return type == ALNICO_INT8 || type == ALNICO_INT32 || type == ALNICO_INT64;
}

/* splitmix64 (Steele, Lea, Flood 2014) of a position in the rank's own sequence. */
static uint64_t draw(const struct check *check, int rank, size_t index)
{
    uint64_t x = check->seed + (uint64_t)rank * 0xD1342543DE82EF95u +
                 ((uint64_t)index + 1) * 0x9E3779B97F4A7C15u;
    x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
    x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
    return x ^ (x >> 31);
}

/* Cuts a 64-bit pattern to the integer type and extends it again by its sign. */
static uint64_t narrow(alnico_datatype_t type, uint64_t value)
{
    switch (type) {
    case ALNICO_INT8:
        return (uint64_t)(int64_t)(int8_t)value;
    case ALNICO_UINT8:
        return (uint8_t)value;
    case ALNICO_INT32:
        return (uint64_t)(int64_t)(int32_t)value;
    case ALNICO_UINT32:
        return (uint32_t)value;
    default:
        return value;
    }
}

/* Inputs index..index+n of a rank. Products of odd numbers never vanish; logical operations meet a
 * zero in every fourth input. */
static void draw_integers(const struct check *check, int rank, size_t index, size_t n,
                          uint64_t *out)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t bits = draw(check, rank, index + i);
        if (check->op == ALNICO_PRODUCT)
            bits |= 1;
        else if (check->op >= ALNICO_LOGICAL_AND && check->op <= ALNICO_LOGICAL_XOR)
            bits = bits >> 62 ? (bits & 63) + 1 : 0;
        out[i] = narrow(check->type, bits);
    }
}

/* The same for floats, exact in the type: within [-1, 1), for products 0.75 to 1.25 with a sign. */
static void draw_floats(const struct check *check, int rank, size_t index, size_t n, double *out)
{
    int bits = precision(check->type);
    double unit = ldexp(1, -bits);
    for (size_t i = 0; i < n; i++) {
        uint64_t drawn = draw(check, rank, index + i);
        if (check->op == ALNICO_PRODUCT) {
            double size = 0.75 + (double)(drawn >> (66 - bits)) * 2 * unit;
            out[i] = drawn & 1 ? -size : size;
        } else {
            out[i] = (double)(drawn >> (63 - bits)) * unit - 1;
        }
    }
}

/* binary16 and back, for finite values that it holds exactly and that are not subnormal. */
static uint16_t encode_half(double value)
{
    if (value == 0)
        return 0;
    int exponent;
    double fraction = frexp(fabs(value), &exponent);
    unsigned bits = (unsigned)(exponent + 14) << 10 | (unsigned)(fraction * 2048 - 1024);
    return (uint16_t)(bits | (value < 0 ? 0x8000u : 0));
}

static double decode_half(uint16_t bits)
{
    int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double size = exponent == 31 ? (fraction ? (double)NAN : (double)INFINITY)
                  : exponent     ? ldexp(1024 + fraction, exponent - 25)
                                 : ldexp(fraction, -24);
    return bits & 0x8000 ? -size : size;
}

static void store_float(alnico_datatype_t type, void *out, size_t i, double value)
{
    float single = (float)value;
    uint32_t bits;
    memcpy(&bits, &single, sizeof bits);
    if (type == ALNICO_FLOAT64)
        ((double *)out)[i] = value;
    else if (type == ALNICO_FLOAT32)
        ((float *)out)[i] = single;
    else
        ((uint16_t *)out)[i] = type == ALNICO_FLOAT16 ? encode_half(value) : (uint16_t)(bits >> 16);
}

static double load_float(alnico_datatype_t type, const void *from, size_t i)
{
    if (type == ALNICO_FLOAT64)
        return ((const double *)from)[i];
    if (type == ALNICO_FLOAT32)
        return ((const float *)from)[i];
    uint16_t half = ((const uint16_t *)from)[i];
    if (type == ALNICO_FLOAT16)
        return decode_half(half);
    uint32_t bits = (uint32_t)half << 16;
    float single;
    memcpy(&single, &bits, sizeof single);
    return single;
}

static uint64_t load_integer(alnico_datatype_t type, const void *from, size_t i)
{
    uint64_t value = 0;
    size_t bytes = datatype_bytes(type);
    memcpy(&value, (const char *)from + i * bytes, bytes); /* little endian */
    return narrow(type, value);
}

void check_fill(const struct check *check, int rank, void *out, size_t count)
{
    bool integer = datatype_is_integer(check->type);
    size_t bytes = datatype_bytes(check->type);
    for (size_t at = 0; at < count; at += BLOCK) {
        size_t n = count - at < BLOCK ? count - at : BLOCK;
        uint64_t integers[BLOCK];
        double floats[BLOCK];
        if (integer)
            draw_integers(check, rank, at, n, integers);
        else
            draw_floats(check, rank, at, n, floats);
        for (size_t i = 0; i < n; i++)
            if (integer)
                memcpy((char *)out + (at + i) * bytes, &integers[i], bytes);
            else
                store_float(check->type, out, at + i, floats[i]);
    }
}

static uint64_t combine_integers(const struct check *check, uint64_t a, uint64_t b)
{
    bool less = is_signed(check->type) ? (int64_t)a < (int64_t)b : a < b;
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

/* What is left to do once all ranks' inputs are combined. One rank combines nothing. */
static uint64_t finish_integer(const struct check *check, uint64_t value)
{
    value = narrow(check->type, value);
    bool logical = check->op >= ALNICO_LOGICAL_AND && check->op <= ALNICO_LOGICAL_XOR;
    if (logical && check->ranks > 1)
        return value != 0;
    if (check->op != ALNICO_AVERAGE)
        return value;
    return is_signed(check->type) ? (uint64_t)((int64_t)value / check->ranks)
                                  : value / (uint64_t)check->ranks;
}

static size_t compare_integers(const struct check *check, const void *result, size_t at, size_t n,
                               struct check_fault *first)
{
    uint64_t all[BLOCK], next[BLOCK];
    draw_integers(check, 0, at, n, all);
    for (int rank = 1; rank < check->ranks; rank++) {
        draw_integers(check, rank, at, n, next);
        for (size_t i = 0; i < n; i++)
            all[i] = combine_integers(check, all[i], next[i]);
    }
    size_t wrong = 0;
    for (size_t i = 0; i < n; i++) {
        uint64_t found = load_integer(check->type, result, at + i);
        uint64_t expected = finish_integer(check, all[i]);
        if (found == expected)
            continue;
        if (wrong++ == 0)
            *first =
                (struct check_fault){at + i, (double)(int64_t)found, (double)(int64_t)expected, 0};
    }
    return wrong;
}

static double combine_floats(alnico_op_t op, double a, double b)
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

/* The greatest relative error of the result: ranks - 1 roundings of the wire type, each of a float32
 * result for the 16-bit ones; three more for an average (1/n, the product with it, the wire). The
 * float64 reference makes as many errors as a float64 result. */
static double relative_bound(const struct check *check)
{
    if (check->op == ALNICO_MINIMUM || check->op == ALNICO_MAXIMUM)
        return 0;
    int roundings = check->ranks - 1 + (check->op == ALNICO_AVERAGE ? 3 : 0);
    double each = log1p(ldexp(1, -precision(check->type)));
    if (precision(check->type) < 24)
        each += log1p(ldexp(1, -24));
    return expm1(roundings * each * (check->type == ALNICO_FLOAT64 ? 2 : 1));
}

/* The greatest error by subnormal results, one for every rounding. */
static double absolute_bound(const struct check *check)
{
    if (check->op == ALNICO_MINIMUM || check->op == ALNICO_MAXIMUM)
        return 0;
    double smallest = check->type == ALNICO_FLOAT64   ? 0x1p-1074
                      : check->type == ALNICO_FLOAT32 ? 0x1p-149
                      : check->type == ALNICO_FLOAT16 ? 0x1p-24
                                                      : 0x1p-133;
    return (check->ranks + 2) * smallest;
}

static size_t compare_floats(const struct check *check, const void *result, size_t at, size_t n,
                             struct check_fault *first)
{
    double all[BLOCK], next[BLOCK], scale[BLOCK];
    draw_floats(check, 0, at, n, all);
    for (size_t i = 0; i < n; i++)
        scale[i] = fabs(all[i]);
    for (int rank = 1; rank < check->ranks; rank++) {
        draw_floats(check, rank, at, n, next);
        for (size_t i = 0; i < n; i++) {
            all[i] = combine_floats(check->op, all[i], next[i]);
            scale[i] = combine_floats(check->op, scale[i], fabs(next[i]));
        }
    }
    size_t wrong = 0;
    double relative = relative_bound(check), absolute = absolute_bound(check);
    double divisor = check->op == ALNICO_AVERAGE ? check->ranks : 1;
    for (size_t i = 0; i < n; i++) {
        double found = load_float(check->type, result, at + i), expected = all[i] / divisor;
        double tolerance = relative * fabs(scale[i]) / divisor + absolute;
        if (fabs(found - expected) <= tolerance)
            continue;
        if (wrong++ == 0)
            *first = (struct check_fault){at + i, found, expected, tolerance};
    }
    return wrong;
}

size_t check_compare(const struct check *check, const void *result, size_t begin, size_t end,
                     struct check_fault *first)
{
    size_t wrong = 0;
    for (size_t at = begin; at < end; at += BLOCK) {
        size_t n = end - at < BLOCK ? end - at : BLOCK;
        struct check_fault fault;
        size_t found = datatype_is_integer(check->type)
                           ? compare_integers(check, result, at, n, &fault)
                           : compare_floats(check, result, at, n, &fault);
        if (found && !wrong)
            *first = fault;
        wrong += found;
    }
    return wrong;
}

uint64_t check_hash(const void *data, size_t bytes)
{
    uint64_t hash = 0x9E3779B97F4A7C15u ^ bytes;
    const char *from = data;
    for (size_t at = 0; at < bytes; at += 8) {
        uint64_t word = 0;
        memcpy(&word, from + at, bytes - at < 8 ? bytes - at : 8);
        hash = (hash ^ word) * 0xD6E8FEB86659FD93u;
        hash ^= hash >> 32;
    }
    return hash;
}
