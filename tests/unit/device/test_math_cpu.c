/* Element-wise arithmetic against references that share no code with it: integers by 128-bit or
 * modular arithmetic, floats by float64 and ldexp. Results are compared bit by bit. */
#include "base/datatype.h"
#include "device/cpu/math.h"
#include "train/base/random.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { LONGEST = 5000, SHIFTS = 4, POISON = 0xa5 };

static uint64_t seed, generator;

/* Short floats, by their definition. */

struct layout {
    int bits, fraction_bits, bias, special, nan; /* special: the first that is no finite number */
    int beyond; /* what is beyond the greatest finite number, or halfway to what would be the next */
};

static const struct layout half = {16, 10, 15, 0x7c00, 0x7e00, 0x7c00};
static const struct layout bfloat = {16, 7, 127, 0x7f80, 0x7fc0, 0x7f80};
static const struct layout e4m3 = {8, 3, 7, 0x7f, 0x7f, 0x7e};
static const struct layout e5m2 = {8, 2, 15, 0x7c, 0x7f, 0x7b};

static const struct layout *layout_of(alnico_datatype_t type)
{
    return type == ALNICO_FLOAT16       ? &half
           : type == ALNICO_BFLOAT16    ? &bfloat
           : type == ALNICO_FLOAT8_E4M3 ? &e4m3
           : type == ALNICO_FLOAT8_E5M2 ? &e5m2
                                        : NULL;
}

static double short_value(struct layout layout, unsigned bits)
{
    unsigned top = 1u << (layout.bits - 1);
    int exponent = (int)(bits & (top - 1)) >> layout.fraction_bits;
    int fraction = (int)bits & ((1 << layout.fraction_bits) - 1);
    double sign = bits & top ? -1 : 1;
    if ((int)(bits & (top - 1)) >= layout.special)
        return fraction ? (double)NAN : sign * (double)INFINITY;
    int whole = exponent ? fraction + (1 << layout.fraction_bits) : fraction;
    int power = (exponent ? exponent : 1) - layout.bias - layout.fraction_bits;
    return sign * ldexp(whole, power);
}

/* Nearest, ties to even: scale to units of the last place and let rint round. */
static uint16_t round_short(struct layout layout, double value)
{
    if (isnan(value))
        return (uint16_t)layout.nan;
    unsigned sign = signbit(value) ? 1u << (layout.bits - 1) : 0;
    double magnitude = fabs(value);
    int exponent = 0;
    frexp(magnitude, &exponent);
    if (exponent < 2 - layout.bias || magnitude == 0)
        exponent = 2 - layout.bias;
    int power = exponent - 1 - layout.fraction_bits;
    unsigned bits = (unsigned)layout.special;
    if (isfinite(value)) {
        unsigned whole = (unsigned)rint(ldexp(magnitude, -power));
        bits = ((unsigned)(exponent - 2 + layout.bias) << layout.fraction_bits) + whole;
    }
    return (uint16_t)(sign | (bits < (unsigned)layout.special ? bits : (unsigned)layout.beyond));
}

/* Elements as their bits in a word. */

static uint64_t load(alnico_datatype_t type, const void *from, size_t index)
{
    uint64_t bits = 0;
    size_t width = datatype_bytes(type);
    memcpy(&bits, (const char *)from + index * width, width);
    return bits;
}

static void store(alnico_datatype_t type, void *to, size_t index, uint64_t bits)
{
    size_t width = datatype_bytes(type);
    memcpy((char *)to + index * width, &bits, width);
}

static float float_of(uint64_t bits)
{
    uint32_t low = (uint32_t)bits;
    float value;
    memcpy(&value, &low, sizeof value);
    return value;
}

static uint32_t bits_of_float(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double decode(alnico_datatype_t type, uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    if (layout_of(type))
        return short_value(*layout_of(type), (unsigned)bits);
    return type == ALNICO_FLOAT32 ? (double)float_of(bits) : value;
}

/* `value` is exact, or rounded once to float64; short types round to float32 on the way. */
static uint64_t encode(alnico_datatype_t type, double value)
{
    uint64_t bits;
    if (isnan(value))
        value = (double)NAN;
    memcpy(&bits, &value, sizeof bits);
    if (layout_of(type))
        return round_short(*layout_of(type), (double)(float)value);
    return type == ALNICO_FLOAT32 ? bits_of_float((float)value) : bits;
}

static double least(double a, double b)
{
    if (isnan(a) || isnan(b))
        return (double)NAN;
    if (a == 0 && b == 0)
        return signbit(a) ? a : b;
    return a < b ? a : b;
}

static double float_reference(alnico_op_t op, double a, double b)
{
    switch ((int)op) {
    case ALNICO_SUM:
    case ALNICO_AVERAGE:
        return a + b;
    case ALNICO_PRODUCT:
        return a * b;
    case ALNICO_MINIMUM:
        return least(a, b);
    default:
        return -least(-a, -b);
    }
}

static bool is_signed(alnico_datatype_t type)
{
    return type == ALNICO_INT8 || type == ALNICO_INT32 || type == ALNICO_INT64;
}

/* The integer that the bits stand for. */
__extension__ typedef __int128 wide;

static wide integer_of(alnico_datatype_t type, uint64_t bits)
{
    int width = 8 * (int)datatype_bytes(type);
    bool negative = is_signed(type) && bits >> (width - 1) & 1;
    return (wide)bits - (negative ? (wide)1 << width : 0);
}

static uint64_t wrapped(alnico_datatype_t type, wide value)
{
    int unused = 64 - 8 * (int)datatype_bytes(type);
    return (uint64_t)value << unused >> unused;
}

static uint64_t integer_reference(alnico_datatype_t type, alnico_op_t op, uint64_t x, uint64_t y)
{
    wide a = integer_of(type, x), b = integer_of(type, y);
    switch (op) {
    case ALNICO_SUM:
    case ALNICO_AVERAGE:
        return wrapped(type, a + b);
    case ALNICO_PRODUCT:
        return wrapped(type, (wide)(x * y));
    case ALNICO_MINIMUM:
        return wrapped(type, a < b ? a : b);
    case ALNICO_MAXIMUM:
        return wrapped(type, a < b ? b : a);
    case ALNICO_LOGICAL_AND:
        return a && b;
    case ALNICO_LOGICAL_OR:
        return a || b;
    case ALNICO_LOGICAL_XOR:
        return !a != !b;
    case ALNICO_BITWISE_AND:
        return x & y;
    case ALNICO_BITWISE_OR:
        return x | y;
    case ALNICO_BITWISE_XOR:
        return x ^ y;
    }
    return 0;
}

static uint64_t reference(alnico_datatype_t type, alnico_op_t op, uint64_t x, uint64_t y)
{
    if (datatype_is_integer(type))
        return integer_reference(type, op, x, y);
    return encode(type, float_reference(op, decode(type, x), decode(type, y)));
}

static uint64_t divide_reference(alnico_datatype_t type, uint64_t x, int ranks)
{
    if (datatype_is_integer(type))
        return wrapped(type, integer_of(type, x) / ranks);
    if (type == ALNICO_FLOAT64)
        return encode(type, decode(type, x) * (1.0 / ranks));
    return encode(type, decode(type, x) * (double)(1.0f / (float)ranks));
}

/* Mostly any bits at all; else zero, one, all ones, the sign bit, or for floats something
 * special. */
static uint64_t random_element(alnico_datatype_t type)
{
    static const double special[] = {0.0, -0.0,  INFINITY, -INFINITY, 1.0,  -1.0,
                                     448, 57344, 65504,    3e38,      1e-41};
    uint64_t bits = random_next(&generator);
    uint64_t choice = random_next(&generator) % 16;
    int width = 8 * (int)datatype_bytes(type);
    if (choice > 3)
        return bits >> (64 - width);
    if (choice == 0 && !datatype_is_integer(type))
        return encode(type, (double)NAN) ^ bits % 64 ^ bits >> 63 << (width - 1);
    if (!datatype_is_integer(type))
        return encode(type, special[bits % (sizeof special / sizeof *special)]);
    const uint64_t edges[] = {0, 1, wrapped(type, -1), UINT64_C(1) << (width - 1)};
    return edges[bits % 4];
}

static void fill(alnico_datatype_t type, void *array, size_t count)
{
    for (size_t i = 0; i < count; i++)
        store(type, array, i, random_element(type));
}

struct arrays {
    _Alignas(64) unsigned char a[(LONGEST + SHIFTS) * 8], b[(LONGEST + SHIFTS) * 8];
    unsigned char out[(LONGEST + SHIFTS) * 8], expected[(LONGEST + SHIFTS) * 8];
};

static struct arrays arrays;

enum placement { APART, OVER_A, OVER_B, PLACEMENTS };

static void check(alnico_datatype_t type, const char *what, const void *out, size_t count)
{
    size_t width = datatype_bytes(type);
    if (memcmp(out, arrays.expected, (count + 1) * width) == 0)
        return;
    for (size_t i = 0; i <= count; i++)
        if (load(type, out, i) != load(type, arrays.expected, i))
            fail_msg("%s of %zu %s: element %zu is %llx, not %llx (seed %llu)", what, count,
                     datatype_name(type), i, (unsigned long long)load(type, out, i),
                     (unsigned long long)load(type, arrays.expected, i), (unsigned long long)seed);
}

/* One call; the element behind the end must stay as it was. */
static void reduce_case(alnico_datatype_t type, alnico_op_t op, size_t count, size_t shift,
                        enum placement placement)
{
    size_t width = datatype_bytes(type);
    unsigned char *a = arrays.a + shift * width, *b = arrays.b + (SHIFTS - 1 - shift) * width;
    unsigned char *out = arrays.out + (shift + 2) % SHIFTS * width;
    fill(type, a, count + 1);
    fill(type, b, count + 1);
    memset(out, POISON, (count + 1) * width);
    out = placement == OVER_A ? a : placement == OVER_B ? b : out;
    for (size_t i = 0; i < count; i++)
        store(type, arrays.expected, i, reference(type, op, load(type, a, i), load(type, b, i)));
    store(type, arrays.expected, count, load(type, out, count));
    math_reduce(out, a, b, count, type, op);
    check(type, op_name(op), out, count);
}

static const size_t counts[] = {0,  1,  2,  3,  7,  8,  9,   15,  16,
                                17, 31, 33, 63, 64, 65, 127, 129, 1001};
enum { COUNTS = sizeof counts / sizeof *counts };

static void every_operation_of_every_type_matches_the_reference(void **state)
{
    (void)state;
    for (int t = 0; t < DATATYPES; t++)
        for (int o = 0; o < OPS; o++) {
            alnico_datatype_t type = (alnico_datatype_t)t;
            alnico_op_t op = (alnico_op_t)o;
            if (!op_supports(op, type))
                continue;
            for (int i = 0; i < COUNTS * SHIFTS * PLACEMENTS; i++)
                reduce_case(type, op, counts[i / PLACEMENTS % COUNTS],
                            (size_t)(i / PLACEMENTS / COUNTS), (enum placement)(i % PLACEMENTS));
            reduce_case(type, op, LONGEST - 1, 1, APART);
        }
}

static void divide_case(alnico_datatype_t type, int ranks, size_t count, size_t shift,
                        bool in_place)
{
    size_t width = datatype_bytes(type);
    unsigned char *in = arrays.a + shift * width, *out = in_place ? in : arrays.out + width;
    memset(arrays.out, POISON, sizeof arrays.out);
    fill(type, in, count + 1);
    for (size_t i = 0; i < count; i++)
        store(type, arrays.expected, i, divide_reference(type, load(type, in, i), ranks));
    store(type, arrays.expected, count, load(type, out, count));
    math_divide(out, in, count, type, ranks);
    check(type, "division", out, count);
}

static void division_matches_the_reference(void **state)
{
    (void)state;
    static const int ranks[] = {1, 2, 3, 5, 7, 128, 129, 1000003, 2147483647};
    for (int t = 0; t < DATATYPES; t++)
        for (size_t r = 0; r < sizeof ranks / sizeof *ranks; r++)
            for (int i = 0; i < COUNTS; i++) {
                divide_case((alnico_datatype_t)t, ranks[r], counts[i], r % SHIFTS, false);
                divide_case((alnico_datatype_t)t, ranks[r], counts[i], r % SHIFTS, true);
            }
}

static void integers_wrap(void **state)
{
    (void)state;
    int32_t a = INT32_MAX, b = 1, out = 0;
    math_reduce(&out, &a, &b, 1, ALNICO_INT32, ALNICO_SUM);
    assert_int_equal(out, INT32_MIN);
    int64_t c = INT64_MIN, d = -1, wide_out = 0;
    math_reduce(&wide_out, &c, &d, 1, ALNICO_INT64, ALNICO_SUM);
    assert_true(wide_out == INT64_MAX);
    math_reduce(&wide_out, &c, &d, 1, ALNICO_INT64, ALNICO_PRODUCT);
    assert_true(wide_out == INT64_MIN);
    int8_t e = -7, narrow_out = 0;
    math_divide(&narrow_out, &e, 1, ALNICO_INT8, 2);
    assert_int_equal(narrow_out, -3);
}

/* Zeros of both signs, NaNs of several payloads and numbers, each pair in both orders and at every
 * place of a vector and of its remainder. */
static void bits_do_not_depend_on_position_or_order(void **state)
{
    (void)state;
    enum { PAIRS = 200, LENGTH = 71 };
    for (int t = ALNICO_FLOAT16; t < DATATYPES; t++)
        for (int trial = 0; trial < PAIRS; trial++) {
            alnico_datatype_t type = (alnico_datatype_t)t;
            alnico_op_t op = (alnico_op_t)(trial % (ALNICO_AVERAGE + 1));
            uint64_t x = random_element(type), y = random_element(type);
            for (size_t i = 0; i < LENGTH; i++) {
                store(type, arrays.a, i, i % 2 ? x : y);
                store(type, arrays.b, i, i % 2 ? y : x);
            }
            math_reduce(arrays.out, arrays.a, arrays.b, LENGTH, type, op);
            for (size_t i = 0; i <= LENGTH; i++)
                store(type, arrays.expected, i, load(type, arrays.out, i < LENGTH ? 0 : i));
            check(type, op_name(op), arrays.out, LENGTH);
        }
}

static float widened(alnico_datatype_t type, uint16_t bits)
{
    float value;
    math_widen(&value, &bits, 1, type);
    return value;
}

static uint16_t narrowed(alnico_datatype_t type, float value)
{
    uint16_t bits = 0;
    math_narrow(&bits, &value, 1, type);
    return bits;
}

static void every_16_bit_float_converts_both_ways(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 65536; bits++) {
        double a = (double)widened(ALNICO_FLOAT16, (uint16_t)bits), b = short_value(half, bits);
        assert_true(isnan(b) ? isnan(a) : a == b && !signbit(a) == !signbit(b));
        assert_int_equal(narrowed(ALNICO_FLOAT16, (float)a), isnan(b) ? 0x7e00 : bits);
        a = (double)widened(ALNICO_BFLOAT16, (uint16_t)bits), b = short_value(bfloat, bits);
        assert_true(isnan(b) ? isnan(a) : a == b && !signbit(a) == !signbit(b));
        assert_int_equal(narrowed(ALNICO_BFLOAT16, (float)a), isnan(b) ? 0x7fc0 : bits);
    }
}

/* Each pair of neighbours: their midpoint and the floats beside it, one by one and through a
 * loop. */
static void neighbourhoods_round_to_nearest_even(void **state)
{
    (void)state;
    for (unsigned bits = 0; bits < 65535; bits++) {
        float low = widened(ALNICO_FLOAT16, (uint16_t)bits),
              high = widened(ALNICO_FLOAT16, (uint16_t)(bits + 1));
        float middle = bits % 0x8000 == 0x7bff ? copysignf(65520, low) : (low + high) / 2;
        if (bits % 0x8000 < 0x7c00) {
            assert_int_equal(narrowed(ALNICO_FLOAT16, middle), bits + bits % 2);
            assert_int_equal(narrowed(ALNICO_FLOAT16, nextafterf(middle, 0)), bits);
            assert_int_equal(narrowed(ALNICO_FLOAT16, nextafterf(middle, 2 * middle)), bits + 1);
        }
        if (bits % 0x8000 < 0x7f80) {
            uint32_t tie = bits << 16 | 0x8000;
            assert_int_equal(narrowed(ALNICO_BFLOAT16, float_of(tie)), bits + bits % 2);
            assert_int_equal(narrowed(ALNICO_BFLOAT16, float_of(tie - 1)), bits);
            assert_int_equal(narrowed(ALNICO_BFLOAT16, float_of(tie + 1)), bits + 1);
        }
    }
}

static void random_floats_round_like_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 300000; i++) {
        float value = float_of(random_next(&generator));
        assert_int_equal(narrowed(ALNICO_FLOAT16, value), round_short(half, (double)value));
        assert_int_equal(narrowed(ALNICO_BFLOAT16, value), round_short(bfloat, (double)value));
    }
}

/* Division by one passes every 16-bit float through the vectorised conversions. */
static void loops_convert_every_16_bit_float(void **state)
{
    (void)state;
    enum { ALL = 65536 };
    uint16_t *in = malloc(ALL * sizeof *in), *out = malloc(ALL * sizeof *out);
    assert_true(in && out);
    for (unsigned i = 0; i < ALL; i++)
        in[i] = (uint16_t)i;
    math_divide(out, in, ALL, ALNICO_FLOAT16, 1);
    for (unsigned i = 0; i < ALL; i++)
        assert_int_equal(out[i], i % 0x8000 > 0x7c00 ? 0x7e00 : i);
    math_divide(out, in, ALL, ALNICO_BFLOAT16, 1);
    for (unsigned i = 0; i < ALL; i++)
        assert_int_equal(out[i], i % 0x8000 > 0x7f80 ? 0x7fc0 : i);
    free(in);
    free(out);
}

static const alnico_datatype_t float8[] = {ALNICO_FLOAT8_E4M3, ALNICO_FLOAT8_E5M2};

/* Neighbours of every 8-bit float, the greatest and what is beyond it included. */
static void every_8_bit_float_converts_and_rounds(void **state)
{
    (void)state;
    for (int t = 0; t < 2; t++)
        for (unsigned bits = 0; bits < 256; bits++) {
            struct layout layout = *layout_of(float8[t]);
            float value = widened(float8[t], (uint16_t)bits);
            double expected = short_value(layout, bits);
            assert_true(isnan(expected)
                            ? isnan(value)
                            : (double)value == expected && !signbit(value) == !(bits >> 7));
            assert_int_equal(narrowed(float8[t], value), round_short(layout, expected));
            if ((int)(bits & 0x7f) >= layout.special)
                continue;
            double next = short_value(layout, (bits & 0x7f) + 1);
            double step = isfinite(next)              ? next - fabs(expected)
                          : layout.fraction_bits == 3 ? 32
                                                      : 8192;
            float middle = copysignf((float)(fabs(expected) + step / 2), value);
            const float around[] = {nextafterf(middle, 0), middle, nextafterf(middle, 2 * middle)};
            for (int i = 0; i < 3; i++)
                assert_int_equal(narrowed(float8[t], around[i]),
                                 round_short(layout, (double)around[i]));
        }
    assert_int_equal(narrowed(ALNICO_FLOAT8_E4M3, 449), 0x7e);
    assert_int_equal(narrowed(ALNICO_FLOAT8_E4M3, -INFINITY), 0xfe);
    assert_int_equal(narrowed(ALNICO_FLOAT8_E5M2, INFINITY), 0x7b);
    assert_int_equal(narrowed(ALNICO_FLOAT8_E5M2, -1e9f), 0xfb);
}

static void random_floats_round_to_8_bits_like_the_reference(void **state)
{
    (void)state;
    for (int i = 0; i < 300000; i++)
        for (int t = 0; t < 2; t++) {
            float value = float_of(random_next(&generator));
            value = i % 2 ? value : (float)ldexp(frexp((double)value, &(int){0}), i % 40 - 22);
            assert_int_equal(narrowed(float8[t], value),
                             round_short(*layout_of(float8[t]), (double)value));
        }
}

/* The greatest finite numbers, infinity and one NaN. */
static void sums_of_8_bits_saturate(void **state)
{
    (void)state;
    static const uint8_t a[] = {0x7e, 0xfe, 0x7f, 0xff}, b[] = {0x7e, 0x80, 0x7e, 0x38};
    static const uint8_t sums[] = {0x7e, 0xfe, 0x7f, 0x7f};
    static const uint8_t c[] = {0x7c, 0xfc, 0x7b, 0x7c}, d[] = {0x38, 0x7c, 0x7b, 0x7c};
    static const uint8_t others[] = {0x7b, 0x7f, 0x7b, 0x7b};
    uint8_t out[4];
    math_reduce(out, a, b, 4, ALNICO_FLOAT8_E4M3, ALNICO_SUM);
    assert_memory_equal(out, sums, 4);
    math_reduce(out, c, d, 4, ALNICO_FLOAT8_E5M2, ALNICO_SUM);
    assert_memory_equal(out, others, 4);
}

int main(void)
{
    const char *given = getenv("TEST_SEED");
    seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    generator = seed;
    printf("TEST_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_operation_of_every_type_matches_the_reference),
        cmocka_unit_test(division_matches_the_reference),
        cmocka_unit_test(integers_wrap),
        cmocka_unit_test(bits_do_not_depend_on_position_or_order),
        cmocka_unit_test(every_16_bit_float_converts_both_ways),
        cmocka_unit_test(neighbourhoods_round_to_nearest_even),
        cmocka_unit_test(random_floats_round_like_the_reference),
        cmocka_unit_test(loops_convert_every_16_bit_float),
        cmocka_unit_test(every_8_bit_float_converts_and_rounds),
        cmocka_unit_test(random_floats_round_to_8_bits_like_the_reference),
        cmocka_unit_test(sums_of_8_bits_saturate),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
