/* The reference of the collectives' tests: plain loops over float64 and 64-bit integers. */
#include "tests/support/reference.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

uint64_t reference_random(uint64_t seed, uint64_t a, uint64_t b)
{
    uint64_t x = seed ^ a * 0x9e3779b97f4a7c15u ^ b * 0xc2b2ae3d27d4eb4fu;
    for (int i = 0; i < 2; i++) {
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
        x = (x ^ x >> 27) * 0x94d049bb133111ebu;
        x ^= x >> 31;
    }
    return x;
}

uint64_t reference_hash(const void *bytes, size_t count)
{
    const unsigned char *at = bytes;
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < count; i++)
        hash = (hash ^ at[i]) * 0x100000001b3u;
    return hash;
}

/* ---- Elements as numbers ---- */

static size_t element_bytes(alnico_datatype_t type)
{
    static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 2, 4, 8, 1, 1};
    return bytes[type];
}

static bool is_float(alnico_datatype_t type)
{
    return type >= ALNICO_FLOAT16;
}

static bool is_signed(alnico_datatype_t type)
{
    return type == ALNICO_INT8 || type == ALNICO_INT32 || type == ALNICO_INT64;
}

static bool is_float8(alnico_datatype_t type)
{
    return type == ALNICO_FLOAT8_E4M3 || type == ALNICO_FLOAT8_E5M2;
}

/* Bits of the fraction that are stored. */
static int fraction_bits(alnico_datatype_t type)
{
    static const int bits[] = {
        [ALNICO_FLOAT16] = 10, [ALNICO_BFLOAT16] = 7,    [ALNICO_FLOAT32] = 23,
        [ALNICO_FLOAT64] = 52, [ALNICO_FLOAT8_E4M3] = 3, [ALNICO_FLOAT8_E5M2] = 2};
    return bits[type];
}

/* Half the distance from 1 to the next number. */
static double roundoff(alnico_datatype_t type)
{
    return ldexp(1, -1 - fraction_bits(type));
}

/* Half the smallest number, where it is large enough to be seen. */
static double underflow(alnico_datatype_t type)
{
    return type == ALNICO_FLOAT8_E4M3 ? 0x1p-10 : type == ALNICO_FLOAT8_E5M2 ? 0x1p-17 : 0;
}

/* A number in the sign, the exponent and so many bits of fraction; of e4m3 only the last is no number. */
static double value_of_bits(unsigned bits, int exponent_bits, int fraction, bool e4m3)
{
    unsigned ones = (1u << exponent_bits) - 1, sign = bits >> (exponent_bits + fraction);
    unsigned part = bits & ((1u << fraction) - 1);
    int exponent = (int)(bits >> fraction & ones), bias = (int)(ones >> 1);
    double value = exponent ? ldexp((1 << fraction) + (int)part, exponent - bias - fraction)
                            : ldexp(part, 1 - bias - fraction);
    if (exponent == (int)ones && (!e4m3 || part == 7))
        value = part ? NAN : INFINITY;
    return sign ? -value : value;
}

static double float_value(const void *at, alnico_datatype_t type)
{
    double d;
    float f;
    uint16_t h;
    uint32_t w;
    switch (type) {
    case ALNICO_FLOAT8_E4M3:
        return value_of_bits(*(const unsigned char *)at, 4, 3, true);
    case ALNICO_FLOAT8_E5M2:
        return value_of_bits(*(const unsigned char *)at, 5, 2, false);
    case ALNICO_FLOAT16:
        memcpy(&h, at, 2);
        return value_of_bits(h, 5, 10, false);
    case ALNICO_BFLOAT16:
        memcpy(&h, at, 2);
        w = (uint32_t)h << 16;
        memcpy(&f, &w, 4);
        return f;
    case ALNICO_FLOAT32:
        memcpy(&f, at, 4);
        return f;
    default:
        memcpy(&d, at, 8);
        return d;
    }
}

/* The low bytes, zero-extended; all that arithmetic modulo 2^n needs. */
static uint64_t integer_value(const void *at, alnico_datatype_t type)
{
    uint64_t value = 0;
    memcpy(&value, at, element_bytes(type)); /* little-endian, as every machine of ours */
    return value;
}

static int64_t sign_extend(uint64_t value, alnico_datatype_t type)
{
    int shift = 64 - 8 * (int)element_bytes(type);
    return is_signed(type) ? (int64_t)(value << shift) >> shift : (int64_t)value;
}

/* ---- Inputs ---- */

/* A number that the type holds exactly: 7 bits of fraction, so that 16-bit floats do too. Roundings of
 * 8-bit ones soon add up to more than the result: every other term is 0, and all factors of a product are
 * 1 or -1 but one in eight. */
static double float_input(uint64_t random, alnico_datatype_t type, alnico_op_t op)
{
    int bits = fraction_bits(type) < 7 ? fraction_bits(type) : 7;
    double value = (double)(random >> 8 & ((1u << bits) - 1)) / (1 << bits);
    if (is_float8(type) && op == ALNICO_PRODUCT)
        value = random >> 32 & 7 ? 0 : value;
    else if (is_float8(type) && random >> 32 & 1)
        return 0;
    else if (op == ALNICO_PRODUCT)
        return 0.5 + value;
    return random & 1 ? -(1 + value) : 1 + value;
}

static void store_float(void *at, double value, alnico_datatype_t type)
{
    float f = (float)value;
    uint32_t w;
    memcpy(&w, &f, 4);
    uint16_t h = (uint16_t)(w >> 16);
    int exponent, bits = fraction_bits(type), bias = type == ALNICO_FLOAT8_E4M3 ? 7 : 15;
    double fraction = frexp(fabs(value), &exponent);
    if ((type == ALNICO_FLOAT16 || is_float8(type)) && value != 0)
        h = (uint16_t)((exponent - 1 + bias) << bits |
                       ((int)ldexp(fraction, bits + 1) & ((1 << bits) - 1)));
    if (type == ALNICO_FLOAT16)
        h |= (uint16_t)((value < 0) << 15);
    if (is_float8(type)) {
        unsigned char b = (unsigned char)(h | (value < 0) << 7);
        memcpy(at, &b, 1);
    } else if (type == ALNICO_FLOAT64)
        memcpy(at, &value, 8);
    else if (type == ALNICO_FLOAT32)
        memcpy(at, &f, 4);
    else
        memcpy(at, &h, 2);
}

static void make_input(void *at, size_t i, alnico_datatype_t type, alnico_op_t op, uint64_t seed,
                       int rank)
{
    uint64_t random = reference_random(seed, (uint64_t)rank + 1, i + 1);
    bool logical = op >= ALNICO_LOGICAL_AND && op <= ALNICO_LOGICAL_XOR;
    if (is_float(type))
        store_float(at, float_input(random, type, op), type);
    else if (logical && random % 3 == 0)
        memset(at, 0, element_bytes(type));
    else
        memcpy(at, &random, element_bytes(type));
}

void reference_fill(void *buffer, size_t count, alnico_datatype_t type, alnico_op_t op,
                    uint64_t seed, int rank)
{
    for (size_t i = 0; i < count; i++)
        make_input((char *)buffer + i * element_bytes(type), i, type, op, seed, rank);
}

/* ---- Results ---- */

static uint64_t combine_integers(uint64_t a, uint64_t b, alnico_datatype_t type, alnico_op_t op)
{
    bool less = is_signed(type) ? sign_extend(a, type) < sign_extend(b, type) : a < b;
    switch (op) {
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

static uint64_t low_bytes(uint64_t value, alnico_datatype_t type)
{
    int shift = 64 - 8 * (int)element_bytes(type);
    return value << shift >> shift;
}

static bool integer_right(const void *result, const uint64_t *inputs, int size,
                          alnico_datatype_t type, alnico_op_t op)
{
    bool logical = op >= ALNICO_LOGICAL_AND && op <= ALNICO_LOGICAL_XOR;
    uint64_t got = integer_value(result, type), value = inputs[0];
    for (int i = 1; i < size; i++)
        value = low_bytes(combine_integers(value, inputs[i], type, op), type);
    if (op == ALNICO_AVERAGE)
        value = low_bytes(is_signed(type) ? (uint64_t)(sign_extend(value, type) / size)
                                          : value / (uint64_t)size,
                          type);
    /* One rank's logical input is passed on as it is. */
    return logical && size > 1 ? got == (value != 0) : got == value;
}

/* The error of a sum in any order is below (1 + roundoff)^(terms - 1) - 1 times the sum of the magnitudes:
 * to add a 0, or to multiply by 1, is exact; scaling for an average adds one rounding of each input and of 1/size. */
static bool float_right(double got, const double *inputs, int size, alnico_datatype_t type,
                        alnico_op_t op)
{
    double value = inputs[0], magnitude = fabs(inputs[0]), neutral = op == ALNICO_PRODUCT ? 1 : 0;
    int terms = magnitude != neutral;
    for (int i = 1; i < size; i++) {
        magnitude += fabs(inputs[i]);
        terms += fabs(inputs[i]) != neutral;
        value = op == ALNICO_PRODUCT   ? value * inputs[i]
                : op == ALNICO_MINIMUM ? fmin(value, inputs[i])
                : op == ALNICO_MAXIMUM ? fmax(value, inputs[i])
                                       : value + inputs[i];
    }
    double steps = terms > 1 ? terms - 1 : 0, each = log1p(roundoff(type)),
           bound = expm1(steps * each) * magnitude;
    if (op == ALNICO_PRODUCT)
        bound = expm1(steps * each) * fabs(value);
    if (op == ALNICO_MINIMUM || op == ALNICO_MAXIMUM)
        bound = 0;
    if (op == ALNICO_AVERAGE) {
        value /= size;
        bound = expm1((steps + 2) * each) * magnitude / size + size * underflow(type);
        bound = size > 1 ? bound : 0;
    }
    return fabs(got - value) <= bound;
}

static bool element_right(const char *at, size_t i, alnico_datatype_t type, alnico_op_t op,
                          uint64_t seed, const int *ranks, int size)
{
    static _Thread_local uint64_t integers[256];
    static _Thread_local double floats[256];
    char input[8];
    for (int r = 0; r < size; r++) {
        make_input(input, i, type, op, seed, ranks[r]);
        if (is_float(type))
            floats[r] = float_value(input, type);
        else
            integers[r] = integer_value(input, type);
    }
    return is_float(type) ? float_right(float_value(at, type), floats, size, type, op)
                          : integer_right(at, integers, size, type, op);
}

size_t reference_check_part(const void *result, size_t first, size_t last, alnico_datatype_t type,
                            alnico_op_t op, uint64_t seed, const int *ranks, int size, char *text,
                            size_t text_bytes)
{
    size_t wrong = 0, bytes = element_bytes(type);
    for (size_t i = first; i < last; i++) {
        const char *at = (const char *)result + i * bytes;
        if (element_right(at, i, type, op, seed, ranks, size))
            continue;
        if (wrong++ == 0 && text)
            snprintf(text, text_bytes, "element %zu below %zu, type %d, op %d, %d ranks: %g", i,
                     last, (int)type, (int)op, size,
                     is_float(type) ? float_value(at, type)
                                    : (double)sign_extend(integer_value(at, type), type));
    }
    return wrong;
}

size_t reference_check(const void *result, size_t count, alnico_datatype_t type, alnico_op_t op,
                       uint64_t seed, const int *ranks, int size, char *text, size_t text_bytes)
{
    return reference_check_part(result, 0, count, type, op, seed, ranks, size, text, text_bytes);
}
