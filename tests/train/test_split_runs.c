/* Runs whose network is split over ranks, which are threads: they learn as one rank with all images
 * does, count the same images, and refuse what does not go together. */
#include "tests/support/ranks.h"

#include "base/status.h"
#include "train/trainer/trainer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { MOST_TESTS = 16, MOST_STEPS = 64 };

struct job {
    struct trainer_options options;
    bool streamed;
    const char *other; /* the last rank's split; NULL: the same */
    struct trainer_report report;
    double losses[MOST_TESTS]; /* of the tests so far */
    size_t tests;
    double terms[MOST_STEPS]; /* training losses that were told, of all ranks' terms */
    size_t told;
    alnico_status_t expected;
    const char *detail; /* that every rank's error has */
};

static void tested(void *context, const struct trainer_progress *progress)
{
    struct job *job = context;
    if (progress->tested && job->tests < MOST_TESTS)
        job->losses[job->tests++] = progress->test.loss;
    if (progress->latest.count && job->told < MOST_STEPS)
        job->terms[job->told++] = progress->latest.loss / (double)progress->latest.count;
}

static void rank_run(struct rank *rank)
{
    struct job *job = rank->argument;
    struct trainer_options options = job->options;
    struct trainer_report report;
    alnico_stream_t stream = NULL;
    alnico_comm_t device = NULL, host = ranks_comm(rank, NULL);
    if (job->streamed) {
        REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_comm_duplicate(host, stream, &device), ALNICO_SUCCESS);
    }
    const struct trainer_place place = {.host = host, .device = device, .stream = stream};
    options.progress = tested;
    options.context = job;
    if (job->other && rank->rank + 1 == rank->size)
        options.split = job->other;
    REQUIRE_STATUS(trainer_run(&options, &place, &report), job->expected);
    if (job->detail)
        ranks_require_detail(job->detail);
    if (rank->rank == 0)
        job->report = report;
    alnico_comm_destroy(device);
    alnico_comm_destroy(host);
    alnico_stream_destroy(stream);
}

/* At a rate at which rounding errors do not grow. */
static struct job job_make(const char *model, const char *data, size_t batch, size_t steps)
{
    struct job job = {.options = {.model = model,
                                  .data = data,
                                  .kernels = "onednn",
                                  .strategy = "allreduce",
                                  .batch = batch,
                                  .steps = steps,
                                  .seed = 3,
                                  .tests = 8,
                                  .validate_every = 5,
                                  .rule = BUCKETS_OF_COUNT,
                                  .buckets = 3,
                                  .compute = {.threads = 1},
                                  .wire = ALNICO_FLOAT32,
                                  .optimizer = optimizer_defaults(OPTIMIZER_SGD, batch)}};
    job.options.optimizer.rate = 1e-4;
    return job;
}

/* A model's run on some ranks, in batches of the part of the images that each takes. */
static const struct {
    const char *model, *data, *split;
    size_t batch, parts, steps;
    int ranks;
    enum norm_group norm;
    bool streamed;
} runs[] = {
    {"resnet20", "synthetic:16x16x3", "rows=2", 8, 1, 50, 2, NORM_SAMPLE, false},
    {"resnet20", "synthetic:16x16x3", "images=2,rows=2", 8, 2, 15, 4, NORM_ALL, true},
    {"resnet20", "synthetic:16x16x3", "columns=2@1.1..2.3", 8, 2, 15, 2, NORM_ALL, false},
    {"resnet20", "synthetic:16x16x3", NULL, 8, 2, 15, 2, NORM_ALL, false},
    {"mesh:64", "mesh:64", "rows=2", 16, 1, 5, 2, NORM_SAMPLE, false},
    {"cnn", "synthetic:16x16x3", "rows=3", 4, 1, 15, 3, NORM_SAMPLE, false},
    {"mnist", "synthetic:28x28x1", "columns=2", 4, 1, 15, 2, NORM_SAMPLE, true},
    {"mnist", "synthetic:28x28x1", "dense1:channels=2", 4, 2, 15, 2, NORM_SAMPLE, true},
    {"cnn", "synthetic:16x16x3", "dense1..dense2:channels=3", 6, 3, 15, 3, NORM_SAMPLE, false},
    {"cnn", "synthetic:16x16x3", "rows=2;conv2..dense1:channels=2", 4, 1, 15, 2, NORM_SAMPLE,
     false},
};

static void runs_learn_as_one_rank(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < sizeof runs / sizeof *runs; i++) {
        struct job one = job_make(runs[i].model, runs[i].data, runs[i].batch, runs[i].steps),
                   split = job_make(runs[i].model, runs[i].data, runs[i].batch / runs[i].parts,
                                    runs[i].steps);
        split.options.optimizer = one.options.optimizer;
        split.options.split = runs[i].split;
        split.options.norm = runs[i].norm;
        split.streamed = runs[i].streamed;
        ranks_run(1, rank_run, &one);
        ranks_run(runs[i].ranks, rank_run, &split);
        double far = fabs(one.report.train.loss - split.report.train.loss);
        assert_true(one.tests == split.tests && one.tests >= runs[i].steps / 5);
        for (size_t t = 0; t < one.tests; t++)
            far = fmax(far, fabs(one.losses[t] - split.losses[t]) / fmax(1, one.losses[t]));
        for (size_t t = 0; t < one.told && !split.streamed; t++)
            far = fmax(far, fabs(one.terms[t] - split.terms[t]) / fmax(1, one.terms[t]));
        assert_true(split.streamed || (one.told == split.told && one.told == runs[i].steps));
        printf("%s by %s: losses at most %.2g apart\n", runs[i].model,
               runs[i].split ? runs[i].split : "images", far);
        assert_true(far < 1e-3);
        assert_true(one.report.phases[PHASE_HALO] == 0 && split.report.phases[PHASE_HALO] > 0);
        assert_true(one.report.move_bytes == 0);
        assert_int_equal(one.report.train.images, split.report.train.images);
        assert_int_equal(one.report.test.images, split.report.test.images);
    }
}

/* By rows=2 and in batches of 4 a rank sends one row of 8 x 16 numbers an image to the second convolution,
 * and two of 4 x 32 of every other image to the first dense layer; as much comes back. */
static void bytes_of_moves_are_counted(void **unused)
{
    (void)unused;
    for (size_t passes = 1; passes <= 2; passes++) {
        struct job job = job_make("cnn", "synthetic:16x16x3", 4, 1);
        job.options.tests = job.options.validate_every = 0;
        job.options.split = "rows=2";
        job.options.norm = NORM_SAMPLE;
        job.options.accumulate = passes;
        ranks_run(2, rank_run, &job);
        assert_int_equal(job.report.move_bytes,
                         passes * 2 * sizeof(float) * (4 * 8 * 16 + 2 * 2 * 4 * 32));
    }
}

struct costs {
    const char *model;
    int parts;
    bool late;
    size_t moves;
    struct trainer_move first[4]; /* without what is computed beside them */
};

static void costs_run(struct rank *rank)
{
    const struct costs *costs = rank->argument;
    struct job job = job_make(costs->model, "synthetic:16x16x3", 4, 1);
    struct trainer_communication out;
    alnico_comm_t host = ranks_comm(rank, NULL);
    char split[16];
    const struct trainer_place place = {.host = host, .part = rank->rank, .parts = costs->parts};
    snprintf(split, sizeof split, "rows=%d", costs->parts);
    job.options.split = split;
    job.options.norm = NORM_SAMPLE;
    job.options.late = costs->late;
    job.options.tests = job.options.validate_every = 0;
    REQUIRE_STATUS(trainer_communication(&job.options, &place, &out), ALNICO_SUCCESS);
    REQUIRE(out.moves == costs->moves);
    for (size_t i = 0; i < 4; i++) {
        const struct trainer_move *move = &out.move[i], *expected = &costs->first[i];
        REQUIRE(move->bucket == expected->bucket && move->messages == expected->messages &&
                move->bytes == expected->bytes && move->beside >= 0);
    }
    for (size_t i = 0; i < TRAINER_SIZES; i++)
        REQUIRE(out.message_bytes[i] > 0 && out.message_seconds[i] > 0);
    trainer_communication_free(&out);
    alnico_comm_destroy(host);
}

/* The passes of two parts of two or four, which send nothing: of four there are only two ranks. The cnn's
 * moves as above; backward dense1's gradient leaves when no bucket is full, conv2's when dense1's weights
 * have filled two of three, as dense1's does if nothing is computed beside it. Of four parts a rank in the
 * middle has two neighbours, and an image for each of the others. ResNet-20 begins with the two sums of 16 channels, then a row of
 * 16 x 16 an image. */
static void moves_cost_as_by_hand(void **unused)
{
    (void)unused;
    const size_t row = 4 * 8 * 16 * sizeof(float), image = 4 * 32 * sizeof(float);
    struct costs cases[] = {
        {"cnn",
         2,
         false,
         4,
         {{0, 1, row, 0}, {0, 1, 4 * image, 0}, {1, 1, 4 * image, 0}, {3, 1, row, 0}}},
        {"cnn",
         2,
         true,
         4,
         {{0, 1, row, 0}, {0, 1, 4 * image, 0}, {3, 1, 4 * image, 0}, {3, 1, row, 0}}},
        {"cnn",
         4,
         false,
         4,
         {{0, 2, 2 * row, 0}, {0, 3, 3 * image, 0}, {1, 3, 3 * image, 0}, {3, 2, 2 * row, 0}}},
        {"resnet20",
         2,
         false,
         80,
         {{0, 1, 256, 0}, {0, 1, 2 * row, 0}, {0, 1, 256, 0}, {0, 1, 2 * row, 0}}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        ranks_run(2, costs_run, &cases[i]);
}

/* A part by itself goes through a run: of a split of channels, too, whose own filters are clipped. */
static void parts_run_by_themselves(void **unused)
{
    (void)unused;
    static const char *const splits[] = {"rows=2", "rows=2;dense1:channels=2"};
    for (int i = 0; i < 4; i++) {
        const struct trainer_place place = {.part = i % 2, .parts = 2};
        struct job job = job_make("cnn", "synthetic:16x16x3", 4, 10);
        struct trainer_report report;
        job.options.split = splits[i / 2];
        job.options.norm = NORM_SAMPLE;
        job.options.optimizer.rate = 0;
        job.options.optimizer.clip = 1e-3;
        job.options.tests = job.options.validate_every = 0;
        assert_int_equal(trainer_run(&job.options, &place, &report), ALNICO_SUCCESS);
        assert_true(report.own_steps == 10 && report.phases[PHASE_FORWARD] > 0);
    }
}

/* Clipping, LARS and the sums of several batches take the filters of all ranks as one rank does. */
static void filters_are_updated_as_one(void **unused)
{
    (void)unused;
    for (int i = 0; i < 4; i++) {
        struct job one = job_make("cnn", "synthetic:16x16x3", 4, 10),
                   split = job_make("cnn", "synthetic:16x16x3", 2, 10);
        one.options.optimizer.rate = 1e-2;
        one.options.optimizer.clip = i % 2 ? 0.05 : 0;
        one.options.optimizer.trust = i / 2 ? 0.02 : 0;
        one.options.accumulate = 2;
        split.options.accumulate = 2;
        split.options.optimizer = one.options.optimizer;
        split.options.split = "dense1:channels=2";
        split.options.norm = NORM_SAMPLE;
        split.streamed = i % 2;
        ranks_run(1, rank_run, &one);
        ranks_run(2, rank_run, &split);
        double far = 0;
        for (size_t t = 0; t < one.tests; t++)
            far = fmax(far, fabs(one.losses[t] - split.losses[t]) / fmax(1, one.losses[t]));
        printf("clip %g, trust %g: losses at most %.2g apart\n", one.options.optimizer.clip,
               one.options.optimizer.trust, far);
        assert_true(one.tests == split.tests && one.tests == 2 && far < 2e-6);
        assert_true(split.report.memory.optimizer < one.report.memory.optimizer * 6 / 10);
        assert_int_equal(split.report.parameters, one.report.parameters);
    }
}

/* A run on two ranks goes on where one rank's would, on one, two or three. */
static void checkpoints_go_on_with_other_splits(void **unused)
{
    (void)unused;
    static const struct {
        const char *model, *begun, *split;
        int ranks;
    } cases[] = {{"resnet20", "rows=2", "rows=2", 2},
                 {"resnet20", "rows=2", "columns=3", 3},
                 {"resnet20", "rows=2", NULL, 1},
                 {"cnn", "rows=2;dense1:channels=2", "rows=2;dense1:channels=2", 2},
                 {"cnn", "rows=2;dense1:channels=2", "rows=3;conv2..dense2:channels=3", 3},
                 {"cnn", "rows=2;dense1:channels=2", NULL, 1}};
    char file[] = "/tmp/alnico-split-XXXXXX";
    const int descriptor = mkstemp(file);
    assert_true(descriptor >= 0);
    close(descriptor);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct job straight = job_make(cases[i].model, "synthetic:16x16x3", 8, 10),
                   first = job_make(cases[i].model, "synthetic:16x16x3", 8, 5);
        straight.options.optimizer.warmup = first.options.optimizer.warmup = 0;
        for (int k = 0; k < OPTIMIZER_DROPS; k++)
            straight.options.optimizer.drops[k] = first.options.optimizer.drops[k] = 1;
        first.options.split = cases[i].begun;
        first.options.norm = NORM_SAMPLE;
        first.options.save = file;
        ranks_run(1, rank_run, &straight);
        ranks_run(2, rank_run, &first);
        struct job rest = straight;
        rest.tests = 0;
        rest.options.load = file;
        rest.options.split = cases[i].split;
        rest.options.norm = cases[i].split ? NORM_SAMPLE : NORM_LOCAL;
        ranks_run(cases[i].ranks, rank_run, &rest);
        assert_true(fabs(rest.losses[rest.tests - 1] - straight.losses[straight.tests - 1]) < 1e-4);
        assert_int_equal(rest.report.own_steps, 5);
    }
    unlink(file);
}

static void bad_runs_are_refused(void **unused)
{
    (void)unused;
    static const struct {
        const char *split, *other, *strategy, *detail;
        alnico_status_t status;
    } cases[] = {
        {"rows=2", "columns=2", "allreduce", "the ranks disagree on: split", ALNICO_ERROR_MISMATCH},
        {"rows=3", NULL, "allreduce", "3 parts, expected one for each of the 2 ranks",
         ALNICO_ERROR_ARGUMENT},
        {"rows=2@dense1", NULL, "allreduce", "dense 'dense1' reads whole images",
         ALNICO_ERROR_ARGUMENT},
        {"dense1:channels=2", NULL, "server", "a split of channels with strategy server",
         ALNICO_ERROR_ARGUMENT},
        {"rows=2", NULL, "weights", "a split network, which strategy weights does not take",
         ALNICO_ERROR_ARGUMENT},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct job job = job_make("cnn", "synthetic:16x16x3", 2, 2);
        job.options.split = cases[i].split;
        job.options.norm = NORM_SAMPLE;
        job.options.strategy = cases[i].strategy;
        if (strcmp(cases[i].strategy, "weights") == 0) {
            job.options.every = 1;
            job.options.buckets = 0;
        }
        job.other = cases[i].other;
        job.expected = cases[i].status;
        job.detail = cases[i].detail;
        ranks_run(2, rank_run, &job);
    }
}

/* The rank that needs the most; all of it fits where the whole network does not. */
static void parts_need_less_memory(void **unused)
{
    (void)unused;
    struct job job = job_make("mesh:256", "mesh:256", 1, 1);
    struct trainer_needs one, half;
    job.options.tests = job.options.validate_every = 0;
    assert_int_equal(trainer_measure(&job.options, 1, &one), ALNICO_SUCCESS);
    job.options.split = "rows=2";
    job.options.norm = NORM_SAMPLE;
    assert_int_equal(trainer_measure(&job.options, 2, &half), ALNICO_SUCCESS);
    assert_true(half.memory.activations < one.memory.activations * 6 / 10);
    assert_true(half.memory.messages > 0 && one.memory.messages == 0);
    job.options.memory_limit = (half.memory.total + one.memory.total) / 2;
    job.expected = ALNICO_SUCCESS;
    ranks_run(2, rank_run, &job);
    job.options.split = NULL;
    job.options.norm = NORM_LOCAL;
    job.expected = ALNICO_ERROR_MEMORY;
    job.detail = "not even a batch of 1 fits";
    ranks_run(1, rank_run, &job);
    trainer_needs_free(&one);
    trainer_needs_free(&half);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(runs_learn_as_one_rank),
        cmocka_unit_test(bytes_of_moves_are_counted),
        cmocka_unit_test(moves_cost_as_by_hand),
        cmocka_unit_test(parts_run_by_themselves),
        cmocka_unit_test(filters_are_updated_as_one),
        cmocka_unit_test(checkpoints_go_on_with_other_splits),
        cmocka_unit_test(bad_runs_are_refused),
        cmocka_unit_test(parts_need_less_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
