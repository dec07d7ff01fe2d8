/* Several batches a step: a run ends where one with batches as large as all of them together does,
 * for a network without batch norm; alone and as ranks, on their threads and on streams, over the
 * ends of epochs; and goes on from a checkpoint to the bit. Ranks are threads. */
#include "tests/support/ranks.h"
#include "tests/train/input/folder.h"

#include "train/trainer/checkpoint_file.h"
#include "train/trainer/trainer.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

/* Of the 61 images. One rank: an epoch is 7 steps of 8 images, and 5 of 12; so one or no batch of 4
 * is left. */
enum { BATCH = 4, STEPS = 17 };

struct job {
    struct trainer_options options;
    bool streamed;
    struct trainer_report report;
    size_t when; /* step after which it is stopped; 0: none */
    atomic_bool stop;
};

static struct folder folder;
static char saved[64];
static const char *model = "cnn", *data = folder.source;

static void stop_when(void *context, const struct trainer_progress *progress)
{
    struct job *job = context;
    if (progress->step == job->when)
        job->stop = true;
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
    options.progress = stop_when;
    options.context = job;
    options.stop = &job->stop;
    REQUIRE_STATUS(trainer_run(&options, &place, &report), ALNICO_SUCCESS);
    if (rank->rank == 0)
        job->report = report;
    alnico_comm_destroy(device);
    alnico_comm_destroy(host);
    alnico_stream_destroy(stream);
}

static struct job job_make(size_t batch, size_t accumulate)
{
    return (struct job){.options = {.model = model,
                                    .data = data,
                                    .kernels = "naive",
                                    .strategy = "allreduce",
                                    .batch = batch,
                                    .accumulate = accumulate,
                                    .steps = STEPS,
                                    .seed = 3,
                                    .save = saved,
                                    .rule = BUCKETS_OF_COUNT,
                                    .buckets = 3,
                                    .compute = {.threads = 1, .deterministic = true},
                                    .wire = ALNICO_FLOAT32,
                                    .optimizer = optimizer_defaults(OPTIMIZER_SGD, 4)}};
}

/* What a run ends with, which the caller frees. */
static struct checkpoint job_run(struct job *job, int ranks)
{
    struct checkpoint checkpoint;
    ranks_run(ranks, rank_run, job);
    assert_int_equal(checkpoint_read(saved, &checkpoint), ALNICO_SUCCESS);
    assert_int_equal(checkpoint.step, job->when ? job->when : STEPS);
    return checkpoint;
}

/* Both parameters and momentum. */
static void check_close(const struct checkpoint *got, const struct checkpoint *expected,
                        const char *what)
{
    const size_t count = 2 * expected->parameters;
    double far = 0;
    assert_true(count > 10000 && got->parameters == expected->parameters);
    for (size_t i = 0; i < count; i++)
        far = fmax(far, fabs((double)got->values[i] - (double)expected->values[i]));
    printf("%s: at most %.2g apart\n", what, far);
    assert_true(far <= 1e-6);
}

static void batches_count_as_one(void **unused)
{
    (void)unused;
    for (int i = 0; i < 24; i++) {
        const int ranks = 1 + i % 2;
        const size_t times = i / 2 % 2 ? 3 : 2;
        char what[96];
        struct job whole = job_make(times * BATCH, i % 3 ? 0 : 1), parts = job_make(BATCH, times);
        parts.streamed = i / 4 % 2;
        parts.options.late = i / 8 == 1;
        parts.options.strategy = i / 8 == 2 ? "server" : "allreduce";
        snprintf(what, sizeof what, "%d ranks, %zu batches, %s%s%s", ranks, times,
                 parts.options.strategy, parts.options.late ? ", late" : "",
                 parts.streamed ? ", on streams" : "");
        struct checkpoint expected = job_run(&whole, ranks), got = job_run(&parts, ranks);
        check_close(&got, &expected, what);
        assert_true(fabs(parts.report.epochs - whole.report.epochs) < 1e-9);
        assert_int_equal(parts.report.train.images, whole.report.train.images);
        assert_true(fabs(parts.report.train.loss / whole.report.train.loss - 1) < 1e-5);
        if (whole.options.strategy == parts.options.strategy)
            assert_int_equal(parts.report.memory.gradients,
                             whole.report.memory.gradients +
                                 whole.report.parameters * sizeof(float));
        checkpoint_free(&expected);
        checkpoint_free(&got);
    }
}

/* One asynchronous worker is as one rank of the others. */
static void one_worker_adds_up_too(void **unused)
{
    (void)unused;
    struct job one = job_make(BATCH, 3), worker = job_make(BATCH, 3);
    worker.options.strategy = "async"; /* which has no buckets */
    worker.options.rule = BUCKETS_OF_SIZE;
    worker.options.buckets = 0;
    worker.options.compute.deterministic = false; /* of the order of updates, and here is one */
    struct checkpoint expected = job_run(&one, 1);
    checkpoint_free(&expected);
    expected = job_run(&worker, 1);
    checkpoint_free(&expected);
    assert_true(worker.report.hash == one.report.hash);
}

/* From within an epoch, and from the end of one. */
static void runs_go_on_to_the_bit(void **unused)
{
    (void)unused;
    struct job whole = job_make(BATCH, 2);
    struct checkpoint expected = job_run(&whole, 1);
    for (size_t i = 0; i < 4; i++) {
        struct job begun = job_make(BATCH, 2), rest = job_make(BATCH, 2);
        begun.when = 5 + i;
        struct checkpoint first = job_run(&begun, 1);
        rest.options.load = saved;
        struct checkpoint got = job_run(&rest, 1);
        assert_memory_equal(got.values, expected.values,
                            2 * expected.parameters * sizeof *got.values);
        checkpoint_free(&first);
        checkpoint_free(&got);
    }
    checkpoint_free(&expected);
}

/* Dropout numbers the images of a step over its passes and ranks, and goes on with the step: so two
 * ranks end where one does. */
static void masks_count_as_one(void **unused)
{
    (void)unused;
    model = "mnist";
    data = "synthetic:8x8x1";
    struct job one = job_make(2 * BATCH, 0), ranks = job_make(BATCH, 0), parts = job_make(BATCH, 2);
    parts.streamed = true;
    struct checkpoint expected = job_run(&one, 1), got = job_run(&ranks, 2);
    check_close(&got, &expected, "dropout, 2 ranks");
    checkpoint_free(&got);
    got = job_run(&parts, 1);
    check_close(&got, &expected, "dropout, 2 batches, on a stream");
    checkpoint_free(&got);
    checkpoint_free(&expected);
    runs_go_on_to_the_bit(NULL);
    model = "cnn";
    data = folder.source;
}

static void too_few_images_are_refused(void **unused)
{
    (void)unused;
    struct job job = job_make(BATCH, 16);
    const struct trainer_place alone = {0};
    assert_int_equal(trainer_run(&job.options, &alone, &job.report), ALNICO_ERROR_ARGUMENT);
    assert_non_null(strstr(alnico_error_detail(), "batch 4, 16 a step, on 1 ranks"));
    assert_non_null(strstr(alnico_error_detail(), "only 61 images"));
}

int main(void)
{
    snprintf(saved, sizeof saved, "/tmp/alnico-accumulate-%d", (int)getpid());
    folder_describe(&folder);
    folder_write(&folder, "wb");
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(batches_count_as_one),       cmocka_unit_test(one_worker_adds_up_too),
        cmocka_unit_test(runs_go_on_to_the_bit),      cmocka_unit_test(masks_count_as_one),
        cmocka_unit_test(too_few_images_are_refused),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    folder_remove(&folder);
    remove(saved);
    return failed;
}
