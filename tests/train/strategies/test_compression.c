/*
 * Strategies allreduce and server with each codec on 1 to 4 ranks, which are threads, on the inline
 * stream and on streams, during the backward pass and after it: the mean that every rank gets, or
 * the server, step after step, against plain loops over the gradients of all ranks; the residuals;
 * and the bytes that are sent.
 */
#include "tests/support/ranks.h"
#include "tests/train/cases.h"

#include "base/float16.h"
#include "train/strategies/strategy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <string.h>

#include <cmocka.h>

enum { COUNT = 5000, BUCKETS = 6, STEPS = 4, RANKS = 4 };

/* Buckets of one number, of less than a block, and that begin anywhere. */
static const size_t ends[BUCKETS] = {1, 700, 701, 957, 3333, COUNT};

static uint64_t seed;

/* A way to meet, and what came of it. */
struct meeting {
    const struct strategy_ops *strategy;
    const char *text;
    int size;
    bool streamed, late;
    float result[RANKS][STEPS][COUNT], residual[RANKS][COUNT];
    size_t sent[RANKS];
};

static void gradients_fill(float *out, int rank, int step)
{
    uint64_t state = random_stream(seed, (uint64_t)(rank * STEPS + step));
    random_fill(out, COUNT, &state);
    for (size_t i = 0; i < COUNT; i += 7) /* equal magnitudes */
        out[i] = i % 2 ? 0.5f : -0.5f;
}

/* ---- Plain loops ---- */

static float int8_once(float x, float most)
{
    return most > 0 ? nearbyintf(x * (127 / most)) * (most / 127) : 0;
}

static float largest(const float *x, size_t count)
{
    float most = 0;
    for (size_t i = 0; i < count; i++)
        most = fmaxf(most, fabsf(x[i]));
    return most;
}

/* What a block of 256 becomes by encoding and decoding. */
static void int8_block(const float *x, size_t count, float *out)
{
    const float most = largest(x, count);
    for (size_t i = 0; i < count; i++)
        out[i] = int8_once(x[i], most);
}

/* The mean is encoded once more where all ranks have to get it. */
static void int8_mean(const struct meeting *meeting, float gradients[RANKS][COUNT], size_t begin,
                      size_t end, float *out)
{
    const int size = meeting->size;
    for (size_t at = begin; at < end; at += 256) {
        const size_t count = end - at < 256 ? end - at : 256;
        float sum[256] = {0}, one[256];
        for (int r = 0; r < size; r++) {
            int8_block(gradients[r] + at, count, one);
            for (size_t i = 0; i < count; i++)
                sum[i] = r ? sum[i] + one[i] : one[i];
        }
        for (size_t i = 0; i < count; i++)
            sum[i] *= 1.0f / (float)size;
        if (meeting->strategy == &strategy_server)
            memcpy(out + at, sum, count * sizeof *sum);
        else
            int8_block(sum, count, out + at);
    }
}

/* Takes the largest `keep` times; of equal ones the first. */
static void topk_mean(int size, float corrected[RANKS][COUNT], size_t begin, size_t end,
                      double share, float *out)
{
    size_t keep = (size_t)(share * (double)(end - begin) + 0.5);
    keep = keep ? keep : 1;
    memset(out + begin, 0, (end - begin) * sizeof *out);
    for (int r = 0; r < size; r++)
        for (size_t k = 0; k < keep; k++) {
            size_t best = begin;
            for (size_t i = begin; i < end; i++)
                if (fabsf(corrected[r][i]) > fabsf(corrected[r][best]))
                    best = i;
            out[best] += corrected[r][best];
            corrected[r][best] = 0;
        }
    for (size_t i = begin; i < end; i++)
        out[i] *= 1.0f / (float)size;
}

static double mean_of(int size, float gradients[RANKS][COUNT], size_t i)
{
    double sum = 0;
    for (int r = 0; r < size; r++)
        sum += gradients[r][i];
    return sum / size;
}

/* ---- The ranks ---- */

static alnico_status_t call_nothing(void *context)
{
    (void)context;
    return ALNICO_SUCCESS;
}

static alnico_status_t call_mark(void *context, enum phase ended)
{
    (void)context;
    (void)ended;
    return ALNICO_SUCCESS;
}

/* Gradients of a step, which a stream makes in its order. */
struct filling {
    float *out;
    int rank, step;
};

static void fill_run(void *argument)
{
    const struct filling *filling = argument;
    gradients_fill(filling->out, filling->rank, filling->step);
}

static void rank_step(struct meeting *meeting, void *strategy, alnico_stream_t stream,
                      struct filling *filling)
{
    REQUIRE_STATUS(alnico_stream_enqueue(stream, fill_run, filling), ALNICO_SUCCESS);
    for (size_t filled = 0; filled < COUNT; filled += 450)
        REQUIRE_STATUS(meeting->strategy->advance(strategy, filled), ALNICO_SUCCESS);
    REQUIRE_STATUS(meeting->strategy->finish(strategy), ALNICO_SUCCESS);
    if (stream)
        REQUIRE_STATUS(alnico_stream_synchronize(stream), ALNICO_SUCCESS);
    memcpy(meeting->result[filling->rank][filling->step], filling->out,
           COUNT * sizeof *filling->out);
}

static void rank_meet(struct rank *rank)
{
    struct meeting *meeting = rank->argument;
    float *gradients = malloc(COUNT * sizeof *gradients),
          *parameters = calloc(COUNT, sizeof *parameters);
    struct strategy_memory own[STRATEGY_OWN_MOST];
    void *strategy;
    alnico_stream_t stream = NULL;
    REQUIRE(gradients && parameters);
    if (meeting->streamed)
        REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    alnico_comm_t comm = ranks_comm(rank, stream);
    const struct arenas arenas = {.gradients = gradients, .parameters = parameters};
    struct strategy_setup setup = {
        .comm = comm,
        .device = &device_cpu,
        .stream = stream,
        .arenas = &arenas,
        .count = COUNT,
        .type = ALNICO_FLOAT32,
        .wire = ALNICO_FLOAT32,
        .late = meeting->late,
        .ends = ends,
        .buckets = BUCKETS,
        .calls = {.update = call_nothing, .loaded = call_nothing, .mark = call_mark}};
    REQUIRE_STATUS(codec_parse(meeting->text, &setup.codec), ALNICO_SUCCESS);
    REQUIRE_STATUS(meeting->strategy->create(&setup, &strategy), ALNICO_SUCCESS);
    for (int step = 0; step < STEPS; step++) {
        struct filling filling = {gradients, rank->rank, step};
        rank_step(meeting, strategy, stream, &filling);
    }
    REQUIRE(meeting->strategy->own(strategy, own) == setup.codec.ops->residual);
    REQUIRE(!setup.codec.ops->residual || own->count == COUNT);
    if (setup.codec.ops->residual)
        memcpy(meeting->residual[rank->rank], own->memory, sizeof meeting->residual[0]);
    meeting->sent[rank->rank] = meeting->strategy->sent(strategy);
    meeting->strategy->destroy(strategy);
    alnico_comm_destroy(comm);
    alnico_stream_destroy(stream);
    free(gradients);
    free(parameters);
}

/* ---- Comparing ---- */

static void same_bits(const struct meeting *meeting, const float *got, const float *expected,
                      const char *what)
{
    for (size_t i = 0; i < COUNT; i++)
        if (got[i] != expected[i])
            fail_msg("%s on %d ranks: %s %zu is %.9g, expected %.9g", meeting->text, meeting->size,
                     what, i, got[i], expected[i]);
}

static void check_exact(const struct meeting *meeting)
{
    static float gradients[RANKS][COUNT], residual[RANKS][COUNT], mean[COUNT];
    const double share = strncmp(meeting->text, "topk:", 5) ? 0 : atof(meeting->text + 5);
    memset(residual, 0, sizeof residual);
    for (int step = 0; step < STEPS; step++) {
        for (int r = 0; r < meeting->size; r++) {
            gradients_fill(gradients[r], r, step);
            for (size_t i = 0; i < COUNT; i++)
                residual[r][i] += gradients[r][i];
        }
        for (size_t b = 0, begin = 0; b < BUCKETS; begin = ends[b++])
            if (share > 0)
                topk_mean(meeting->size, residual, begin, ends[b], share, mean);
            else
                int8_mean(meeting, gradients, begin, ends[b], mean);
        same_bits(meeting, meeting->result[0][step], mean, "mean");
    }
    for (int r = 0; share > 0 && r < meeting->size; r++)
        same_bits(meeting, meeting->residual[r], residual[r], "residual");
}

/* Each contribution, and the sum after each addition, is rounded once. */
static void check_near(const struct meeting *meeting)
{
    static float gradients[RANKS][COUNT];
    const double unit = strcmp(meeting->text, "bf16") == 0   ? 0x1p-8
                        : strcmp(meeting->text, "fp16") == 0 ? 0x1p-11
                                                             : 0x1p-23;
    for (int step = 0; step < STEPS; step++) {
        for (int r = 0; r < meeting->size; r++)
            gradients_fill(gradients[r], r, step);
        for (size_t i = 0; i < COUNT; i++) {
            const double expected = mean_of(meeting->size, gradients, i),
                         got = meeting->result[0][step][i];
            if (!(fabs(got - expected) <= (meeting->size + 2) * unit))
                fail_msg("%s on %d ranks: %.9g, expected %.9g", meeting->text, meeting->size, got,
                         expected);
        }
    }
}

static void meet(struct meeting *meeting)
{
    memset(meeting->result, 0xff, sizeof meeting->result);
    ranks_run(meeting->size, rank_meet, meeting);
    for (int r = 1; meeting->strategy == &strategy_allreduce && r < meeting->size; r++)
        assert_memory_equal(meeting->result[r], meeting->result[0], sizeof meeting->result[0]);
}

static void each_way(const char *text, void (*check)(const struct meeting *))
{
    static struct meeting meeting;
    for (int size = 1; size <= RANKS; size++)
        for (int way = 0; way < 4; way++)
            for (size_t s = 0; s < 2; s++) {
                meeting = (struct meeting){.strategy = s ? &strategy_server : &strategy_allreduce,
                                           .text = text,
                                           .size = size,
                                           .streamed = way & 1,
                                           .late = way & 2};
                if (s && strcmp(text, "none") == 0) /* it asks for the trainer's average */
                    continue;
                meet(&meeting);
                check(&meeting);
            }
}

static void numbers_of_16_bits_are_near(void **unused)
{
    (void)unused;
    each_way("none", check_near);
    each_way("bf16", check_near);
    each_way("fp16", check_near);
}

static void int8_is_exact(void **unused)
{
    (void)unused;
    each_way("int8", check_exact);
}

static void topk_is_exact(void **unused)
{
    (void)unused;
    each_way("topk:0.01", check_exact);
    each_way("topk:0.3", check_exact);
    each_way("topk:1", check_exact);
}

/* By the sizes of what is handed over, on each rank. */
static void fewer_bytes_are_sent(void **unused)
{
    (void)unused;
    static struct meeting meeting;
    const char *const texts[] = {"none", "bf16", "int8", "topk:0.01"};
    for (int size = 2; size <= RANKS; size++) {
        size_t none = 0;
        for (size_t t = 0; t < 4; t++) {
            meeting =
                (struct meeting){.strategy = &strategy_allreduce, .text = texts[t], .size = size};
            meet(&meeting);
            none = t ? none : meeting.sent[0];
            const double share[] = {1, 0.5, 0.3, 0.03 * size}; /* blocks and shards are small */
            for (int r = 0; r < size; r++)
                if (meeting.sent[r] > share[t] * (double)none || meeting.sent[r] == 0)
                    fail_msg("%s on %d ranks: rank %d sent %zu bytes of %zu", texts[t], size, r,
                             meeting.sent[r], none);
        }
        const size_t parts = 2 * ((size_t)size - 1); /* each bucket is rounded down */
        assert_true(none <= parts * COUNT * 4 / (size_t)size &&
                    none + BUCKETS >= parts * COUNT * 4 / (size_t)size);
    }
}

static void codecs_need_float32(void **unused)
{
    (void)unused;
    const size_t end = 10;
    struct strategy_setup setup = {.device = &device_cpu,
                                   .count = end,
                                   .type = ALNICO_FLOAT16,
                                   .wire = ALNICO_FLOAT16,
                                   .codec = {&codec_int8, 1},
                                   .ends = &end,
                                   .buckets = 1};
    void *strategy;
    assert_int_equal(strategy_allreduce.create(&setup, &strategy), ALNICO_ERROR_ARGUMENT);
    assert_null(strategy);
    assert_non_null(strstr(alnico_error_detail(), "codec int8 of gradients of datatype"));
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_of_16_bits_are_near),
        cmocka_unit_test(int8_is_exact),
        cmocka_unit_test(topk_is_exact),
        cmocka_unit_test(fewer_bytes_are_sent),
        cmocka_unit_test(codecs_need_float32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
