/* Each codec against plain loops, over counts around a block and numbers that are hard: ties, zeros,
 * infinite ones; and by other numbers of threads. */
#include "tests/train/cases.h"
#include "tests/train/strategies/codec_cases.h"

#include "base/float16.h"

#include <omp.h>
#include <setjmp.h>
#include <stdarg.h>

#include <cmocka.h>

static uint64_t state;

enum { GUARD = 64, MARK = 0x5a };

/* A codec at work on one range, with memory that is no larger than asked for. */
struct bench {
    struct codec codec;
    struct codec_place place;
    struct codec_pass pass;
    float *input, *before; /* what values and residual were */
    size_t bytes;          /* of the encoded form */
};

static struct bench bench_make(const char *text, enum codec_fill fill, size_t count)
{
    struct bench b = {0};
    assert_int_equal(codec_parse(text, &b.codec), ALNICO_SUCCESS);
    assert_int_equal(codec_place_make(&device_cpu, NULL, &b.place), ALNICO_SUCCESS);
    b.bytes = codec_bytes(&b.codec, count);
    b.pass = (struct codec_pass){.values = malloc(count * sizeof(float)),
                                 .count = count,
                                 .keep = codec_keep(&b.codec, count),
                                 .encoded = malloc(b.bytes + GUARD),
                                 .parts = 1,
                                 .stride = b.bytes,
                                 .factor = 1,
                                 .residual = calloc(count, sizeof(float))};
    b.pass.scratch = malloc(codec_scratch(&b.codec, &b.place, &b.pass) + 1);
    b.input = malloc(count * sizeof(float));
    b.before = calloc(count, sizeof(float));
    assert_true(b.pass.values && b.pass.encoded && b.pass.residual && b.pass.scratch && b.input &&
                b.before);
    codec_fill(fill, b.pass.values, count, &state);
    memcpy(b.input, b.pass.values, count * sizeof(float));
    memset(b.pass.encoded, MARK, b.bytes + GUARD);
    return b;
}

/* Residuals of about the size of the numbers. */
static void bench_residual(struct bench *b)
{
    codec_fill(FILL_NORMAL, b->pass.residual, b->pass.count, &state);
    memcpy(b->before, b->pass.residual, b->pass.count * sizeof(float));
}

static void bench_free(struct bench *b)
{
    free(b->pass.values);
    free(b->pass.encoded);
    free(b->pass.residual);
    free(b->pass.scratch);
    free(b->input);
    free(b->before);
}

static void bench_encode(struct bench *b)
{
    assert_int_equal(codec_encode(&b->codec, &b->place, &b->pass), ALNICO_SUCCESS);
    for (size_t i = 0; i < GUARD; i++)
        assert_int_equal(((unsigned char *)b->pass.encoded)[b->bytes + i], MARK);
}

static void bench_decode(struct bench *b)
{
    memset(b->pass.values, 0xff, b->pass.count * sizeof(float));
    assert_int_equal(codec_decode(&b->codec, &b->place, &b->pass), ALNICO_SUCCESS);
}

/* Runs a check for every distribution and count. */
static void each_case(const char *text, void (*check)(struct bench *))
{
    for (enum codec_fill fill = 0; fill < CODEC_FILLS; fill++)
        for (size_t i = 0; i < CODEC_COUNTS; i++) {
            struct bench b = bench_make(text, fill, codec_counts[i]);
            check(&b);
            bench_free(&b);
        }
}

/* ---- 16 bits ---- */

/* The nearest number of 16 bits, one of two neighbours, by distance in float64. */
static void check_float16(struct bench *b)
{
    const bool half = b->codec.ops == &codec_fp16;
    bench_encode(b);
    bench_decode(b);
    assert_int_equal(b->bytes, 2 * b->pass.count);
    for (size_t i = 0; i < b->pass.count; i++) {
        const double x = b->input[i], y = b->pass.values[i];
        const double most = half ? 65520 : 0x1.ffp127, bits = half ? 11 : 8;
        const double least = half ? 0x1p-24 : 0x1p-133;
        if (!isfinite(x) || fabs(x) >= most)
            assert_false(isfinite(y));
        else if (!(fabs(x - y) <= fmax(fabs(x) * exp2(-bits), least / 2)))
            fail_msg("%s: %.9g became %.9g", b->codec.ops->name, x, y);
    }
}

static void float16_is_near(void **unused)
{
    (void)unused;
    each_case("bf16", check_float16);
    each_case("fp16", check_float16);
}

/* ---- int8 ---- */

static float largest_of(const float *x, size_t count, bool *finite)
{
    float most = 0;
    *finite = true;
    for (size_t i = 0; i < count; i++) {
        *finite &= isfinite(x[i]) != 0;
        most = fabsf(x[i]) > most ? fabsf(x[i]) : most;
    }
    return most;
}

static void check_block(const float *x, const float *y, size_t count, const char *encoded)
{
    bool finite;
    const double most = largest_of(x, count, &finite);
    float scale;
    memcpy(&scale, encoded, sizeof scale);
    if (!finite) {
        for (size_t i = 0; i < count; i++)
            assert_true(isnan(y[i]));
        return;
    }
    const double expected = most < CODEC_LEAST ? 0 : most / 127;
    assert_true(fabs(scale - expected) <= expected * 0x1p-24);
    for (size_t i = 0; i < count; i++) {
        if (!(fabs((double)x[i] - y[i]) <= fmax(expected * (0.5 + 1e-4), CODEC_LEAST)))
            fail_msg("%.9g became %.9g at scale %.9g", x[i], y[i], scale);
        assert_true(y[i] == (float)((const signed char *)encoded)[sizeof scale + i] * scale);
    }
}

static void check_int8(struct bench *b)
{
    bench_encode(b);
    bench_decode(b);
    const size_t rest = b->pass.count % 256;
    assert_int_equal(b->bytes, b->pass.count / 256 * 260 + (rest ? 4 + (rest + 3) / 4 * 4 : 0));
    for (size_t at = 0; at < b->pass.count; at += 256)
        check_block(b->input + at, b->pass.values + at,
                    b->pass.count - at < 256 ? b->pass.count - at : 256,
                    (const char *)b->pass.encoded + at / 256 * 260);
}

static void int8_is_near(void **unused)
{
    (void)unused;
    each_case("int8", check_int8);
}

/* The largest number is 127, so that the others are what they round to: halves to even. */
static void int8_rounds_to_even(void **unused)
{
    (void)unused;
    const float in[] = {127, 0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 125.5f, 126.5f, -126.49f};
    const float expected[] = {127, 0, 2, 2, 0, -2, -2, 126, 126, -126};
    struct bench b = bench_make("int8", FILL_NORMAL, sizeof in / sizeof *in);
    memcpy(b.pass.values, in, sizeof in);
    bench_encode(&b);
    bench_decode(&b);
    for (size_t i = 0; i < sizeof in / sizeof *in; i++)
        assert_true(b.pass.values[i] == expected[i]);
    bench_free(&b);
}

/* ---- topk ---- */

/* A number and where it stands; NaN is the largest. */
struct entry {
    float value;
    uint32_t index;
};

static int entry_order(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    const uint32_t p = bits32(x->value) & 0x7fffffff, q = bits32(y->value) & 0x7fffffff;
    return p != q ? (p < q) - (p > q) : (x->index > y->index) - (x->index < y->index);
}

/* The entries in the order in which they are chosen. */
static struct entry *entries_sorted(const struct bench *b, float scale)
{
    struct entry *all = malloc(b->pass.count * sizeof *all);
    assert_non_null(all);
    for (size_t i = 0; i < b->pass.count; i++)
        all[i] = (struct entry){b->input[i] * (1 / scale) + b->before[i], (uint32_t)i};
    qsort(all, b->pass.count, sizeof *all, entry_order);
    return all;
}

static bool same(float a, float b)
{
    return (isnan(a) && isnan(b)) || bits32(a) == bits32(b);
}

static void check_topk_scaled(struct bench *b, float scale)
{
    bench_residual(b);
    b->pass.scale = scale == 1 ? NULL : &scale;
    bench_encode(b);
    struct entry *all = entries_sorted(b, scale);
    const struct codec_pair *pairs = b->pass.encoded;
    float *residual = malloc(b->pass.count * sizeof *residual);
    assert_non_null(residual);
    for (size_t i = 0; i < b->pass.count; i++)
        residual[all[i].index] = i < b->pass.keep || !isfinite(all[i].value) ? 0 : all[i].value;
    for (size_t i = 0; i < b->pass.count; i++)
        if (!same(residual[i], b->pass.residual[i]))
            fail_msg("residual %zu is %.9g, expected %.9g", i, b->pass.residual[i], residual[i]);
    /* The chosen entries by index: residual now is what is expected to be sent. */
    memset(residual, 0, b->pass.count * sizeof *residual);
    for (size_t i = 0; i < b->pass.keep; i++)
        residual[all[i].index] = all[i].value * scale;
    for (size_t i = 0; i < b->pass.keep; i++) {
        assert_true(i == 0 || pairs[i].index > pairs[i - 1].index);
        assert_true(pairs[i].index < b->pass.count);
        assert_true(same(pairs[i].value, residual[pairs[i].index]));
    }
    bench_decode(b);
    for (size_t i = 0; i < b->pass.count; i++)
        assert_true(b->pass.values[i] == residual[i] || same(b->pass.values[i], residual[i]));
    free(residual);
    free(all);
    b->pass.scale = NULL;
}

static void check_topk(struct bench *b)
{
    assert_int_equal(b->bytes, 8 * b->pass.keep);
    check_topk_scaled(b, 1);
}

static void check_topk_1024(struct bench *b)
{
    check_topk_scaled(b, 1024);
}

static void topk_takes_the_largest(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < CODEC_TEXTS; i++)
        if (!strncmp(codec_texts[i], "topk", 4))
            each_case(codec_texts[i], check_topk);
    each_case("topk:0.01", check_topk_1024);
}

/* More of them than are sent: all are sent or dropped, and the next gradients are sound again. */
static void topk_keeps_nothing_broken(void **unused)
{
    (void)unused;
    const size_t count = 100000;
    struct bench b = bench_make("topk:0.001", FILL_NORMAL, count);
    for (size_t i = 0; i < count / 2; i++)
        b.pass.values[2 * i] = i % 2 ? NAN : -INFINITY;
    bench_encode(&b);
    for (size_t i = 0; i < b.pass.keep; i++)
        assert_false(isfinite(((struct codec_pair *)b.pass.encoded)[i].value));
    for (size_t i = 0; i < count; i++)
        assert_true(b.pass.residual[i] == (i % 2 ? b.input[i] : 0));
    bench_free(&b);
}

/* A bound from a sample that is not a number does not leave infinite ones behind. */
static void topk_finds_infinite_numbers_beside_others(void **unused)
{
    (void)unused;
    const size_t count = 100000;
    struct bench b = bench_make("topk:0.001", FILL_NORMAL, count);
    for (size_t i = 0; i < count; i++)
        b.pass.values[i] = i % 290 == 0 ? NAN : i % 1001 == 1 ? INFINITY : b.pass.values[i];
    bench_encode(&b);
    for (size_t i = 0; i < count; i++)
        assert_true(isfinite(b.pass.residual[i]));
    bench_free(&b);
}

/* Over many steps nothing is lost: sent and residual add up to all gradients. */
static void topk_sends_everything_in_time(void **unused)
{
    (void)unused;
    enum { COUNT = 300, STEPS = 50 };
    double in[COUNT] = {0}, out[COUNT] = {0};
    struct bench b = bench_make("topk:0.05", FILL_NORMAL, COUNT);
    for (size_t step = 0; step < STEPS; step++) {
        for (size_t i = 0; i < COUNT; i++) {
            b.pass.values[i] = (float)((int)(random_next(&state) % 2001) - 1000) / 1024;
            in[i] += b.pass.values[i];
        }
        bench_encode(&b);
        for (size_t i = 0; i < b.pass.keep; i++) {
            const struct codec_pair *pair = (struct codec_pair *)b.pass.encoded + i;
            out[pair->index] += pair->value;
        }
    }
    for (size_t i = 0; i < COUNT; i++) /* multiples of 1 / 1024 are exact */
        assert_true(in[i] == out[i] + b.pass.residual[i]);
    bench_free(&b);
}

/* ---- All ---- */

/* The sum of three parts, against the parts one by one in float64. */
static void sums_are_of_all_parts(void **unused)
{
    (void)unused;
    enum { PARTS = 3, COUNT = 70001 };
    for (size_t t = 0; t < CODEC_TEXTS; t++) {
        struct bench b = bench_make(codec_texts[t], FILL_NORMAL, COUNT);
        char *all = malloc(PARTS * b.bytes), *one = b.pass.encoded;
        double *sum = calloc(COUNT, sizeof *sum);
        assert_true(all && sum);
        for (size_t part = 0; part < PARTS; part++) {
            codec_fill(FILL_NORMAL, b.pass.values, COUNT, &state);
            bench_encode(&b);
            memcpy(all + part * b.bytes, one, b.bytes);
            bench_decode(&b);
            for (size_t i = 0; i < COUNT; i++)
                sum[i] += b.pass.values[i];
        }
        b.pass.parts = PARTS;
        b.pass.factor = 1.0f / PARTS;
        b.pass.encoded = all;
        free(b.pass.scratch);
        b.pass.scratch = malloc(codec_scratch(&b.codec, &b.place, &b.pass) + 1);
        assert_non_null(b.pass.scratch);
        bench_decode(&b);
        for (size_t i = 0; i < COUNT; i++)
            if (!(fabs(b.pass.values[i] - sum[i] / PARTS) <= 1e-6))
                fail_msg("%s: %.9g, expected %.9g", codec_texts[t], b.pass.values[i],
                         sum[i] / PARTS);
        free(sum);
        free(one);
        bench_free(&b);
    }
}

/* The bits do not depend on the number of threads. */
static void threads_make_the_same_bits(void **unused)
{
    (void)unused;
    enum { COUNT = 200003 };
    const int before = omp_get_max_threads();
    for (size_t t = 0; t < CODEC_TEXTS; t++)
        for (enum codec_fill fill = 0; fill < CODEC_FILLS; fill++) {
            struct bench b = bench_make(codec_texts[t], fill, COUNT);
            char *first = malloc(b.bytes);
            float *decoded = malloc(COUNT * sizeof *decoded);
            assert_true(first && decoded);
            for (int threads = 1; threads <= 5; threads += 2) {
                omp_set_num_threads(threads);
                memset(b.pass.residual, 0, COUNT * sizeof(float));
                memcpy(b.pass.values, b.input, COUNT * sizeof(float));
                bench_encode(&b);
                bench_decode(&b);
                if (threads == 1) {
                    memcpy(first, b.pass.encoded, b.bytes);
                    memcpy(decoded, b.pass.values, COUNT * sizeof *decoded);
                }
                assert_memory_equal(first, b.pass.encoded, b.bytes);
                assert_memory_equal(decoded, b.pass.values, COUNT * sizeof *decoded);
            }
            free(first);
            free(decoded);
            bench_free(&b);
        }
    omp_set_num_threads(before);
}

/* On a stream of its own, in order: encode, decode, encode. */
static void streams_run_passes_in_order(void **unused)
{
    (void)unused;
    for (size_t t = 0; t < CODEC_TEXTS; t++) {
        struct bench b = bench_make(codec_texts[t], FILL_NORMAL, 1000);
        alnico_stream_t stream;
        assert_int_equal(alnico_stream_create(&stream), ALNICO_SUCCESS);
        assert_int_equal(codec_place_make(&device_cpu, stream, &b.place), ALNICO_SUCCESS);
        assert_int_equal(codec_encode(&b.codec, &b.place, &b.pass), ALNICO_SUCCESS);
        assert_int_equal(codec_decode(&b.codec, &b.place, &b.pass), ALNICO_SUCCESS);
        assert_int_equal(alnico_stream_synchronize(stream), ALNICO_SUCCESS);
        alnico_stream_destroy(stream);
        for (size_t i = 0; i < 1000; i++) /* what was not sent is in the residual */
            assert_true(fabsf(b.pass.values[i] + b.pass.residual[i] - b.input[i]) < 0.05f);
        bench_free(&b);
    }
}

static void nothing_is_encoded_as_nothing(void **unused)
{
    (void)unused;
    for (size_t t = 0; t < CODEC_TEXTS; t++) {
        struct bench b = bench_make(codec_texts[t], FILL_NORMAL, 1);
        b.pass.count = b.pass.keep = 0;
        assert_int_equal(codec_keep(&b.codec, 0), 0);
        assert_int_equal(codec_bytes(&b.codec, 0), 0);
        assert_int_equal(codec_encode(&b.codec, &b.place, &b.pass), ALNICO_SUCCESS);
        assert_int_equal(codec_decode(&b.codec, &b.place, &b.pass), ALNICO_SUCCESS);
        assert_int_equal(((unsigned char *)b.pass.encoded)[0], MARK);
        bench_free(&b);
    }
}

static void shares_are_rounded(void **unused)
{
    (void)unused;
    const struct {
        double share;
        size_t count, keep;
    } rows[] = {{0.01, 1, 1},     {0.01, 149, 1}, {0.01, 150, 2},          {0.01, 1000, 10},
                {1e-9, 12345, 1}, {1, 777, 777},  {0.9999, 100, 100},      {0.5, 3, 2},
                {0.01, 0, 0},     {1, 0, 0},      {0.01, 62378344, 623783}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        const struct codec codec = {&codec_topk, rows[i].share};
        assert_int_equal(codec_keep(&codec, rows[i].count), rows[i].keep);
    }
    assert_true(codec_bytes(&(struct codec){&codec_int8, 1}, 1000000) <= 0.27 * 4000000);
    assert_true(codec_bytes(&(struct codec){&codec_topk, 0.01}, 1000000) <= 0.03 * 4000000);
}

static void names_are_read(void **unused)
{
    (void)unused;
    struct codec codec;
    for (size_t i = 0; codecs_all[i]; i++)
        if (!codecs_all[i]->shares) {
            assert_int_equal(codec_parse(codecs_all[i]->name, &codec), ALNICO_SUCCESS);
            assert_ptr_equal(codec.ops, codecs_all[i]);
        }
    assert_int_equal(codec_parse("topk:0.25", &codec), ALNICO_SUCCESS);
    assert_true(codec.ops == &codec_topk && codec.share == 0.25);
    const char *const bad[][2] = {
        {"int4", "'int4' is not known"},   {"", "'' is not known"},
        {"top", "'top' is not known"},     {"int8:0.1", "int8 takes no share"},
        {"none:1", "none takes no share"}, {"topk", "expected a share above 0 and up to 1"},
        {"topk:", "expected a share"},     {"topk:0", "expected a share"},
        {"topk:-0.1", "expected a share"}, {"topk:1.01", "expected a share"},
        {"topk:nan", "expected a share"},  {"topk:0.1x", "expected a share"}};
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        assert_int_equal(codec_parse(bad[i][0], &codec), ALNICO_ERROR_ARGUMENT);
        if (!strstr(alnico_error_detail(), bad[i][1]))
            fail_msg("'%s' does not say '%s'", alnico_error_detail(), bad[i][1]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(float16_is_near),
        cmocka_unit_test(int8_is_near),
        cmocka_unit_test(int8_rounds_to_even),
        cmocka_unit_test(topk_takes_the_largest),
        cmocka_unit_test(topk_keeps_nothing_broken),
        cmocka_unit_test(topk_finds_infinite_numbers_beside_others),
        cmocka_unit_test(topk_sends_everything_in_time),
        cmocka_unit_test(sums_are_of_all_parts),
        cmocka_unit_test(threads_make_the_same_bits),
        cmocka_unit_test(streams_run_passes_in_order),
        cmocka_unit_test(nothing_is_encoded_as_nothing),
        cmocka_unit_test(shares_are_rounded),
        cmocka_unit_test(names_are_read),
    };
    state = test_seed();
    return cmocka_run_group_tests(tests, NULL, NULL);
}
