/* A run that is told to stop ends after the same step on all ranks, whichever was told, and goes on
 * from its checkpoint to what a run ends with that was not told; tests between the epochs included.
 * Ranks are threads. */
#include "tests/support/ranks.h"

#include "train/trainer/trainer.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS_MOST = 3, STEPS = 44, NAP_US = 250000 };

struct job {
    struct trainer_options options;
    bool streamed;
    int told;      /* rank */
    size_t when;   /* step; 0: never */
    size_t napped; /* steps that rank 0 naps after */
    size_t tests, reached;
    atomic_bool stop[RANKS_MOST];
    struct trainer_report reports[RANKS_MOST];
};

static char saved[64], ended[2][80];

/* On rank 0. */
static void note(void *context, const struct trainer_progress *progress)
{
    struct job *job = context;
    if (progress->tested)
        job->tests++;
    else if (progress->step <= job->napped)
        usleep(NAP_US);
    if (job->when && progress->step >= job->when && !job->stop[job->told])
        job->stop[job->told] = true;
    job->reached = progress->step;
}

static void rank_run(struct rank *rank)
{
    struct job *job = rank->argument;
    struct trainer_options options = job->options;
    alnico_stream_t stream = NULL;
    alnico_comm_t device = NULL, host = ranks_comm(rank, NULL);
    if (job->streamed) {
        REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_comm_duplicate(host, stream, &device), ALNICO_SUCCESS);
    }
    options.progress = note;
    options.context = job;
    options.stop = &job->stop[rank->rank];
    const struct trainer_place place = {.host = host, .device = device, .stream = stream};
    REQUIRE_STATUS(trainer_run(&options, &place, &job->reports[rank->rank]), ALNICO_SUCCESS);
    alnico_comm_destroy(device);
    alnico_comm_destroy(host);
    alnico_stream_destroy(stream);
}

static struct job job_make(bool streamed)
{
    return (struct job){.streamed = streamed,
                        .options = {.model = "resnet20",
                                    .data = "synthetic:4x4x1",
                                    .kernels = "naive",
                                    .strategy = "allreduce",
                                    .batch = 2,
                                    .steps = STEPS,
                                    .seed = 3,
                                    .tests = 12,
                                    .validate_every = 6,
                                    .rule = BUCKETS_OF_COUNT,
                                    .buckets = 3,
                                    .compute = {.threads = 1, .deterministic = true},
                                    .wire = ALNICO_FLOAT32,
                                    .optimizer = optimizer_defaults(OPTIMIZER_SGD, 4)}};
}

/* Told after step `when` at the earliest: by the next agreement, and what was enqueued. Returns the
 * step after which all stopped. */
static size_t check_stop(struct job *job, int ranks)
{
    const size_t latest = job->when + (ranks > 1 ? 8 : 0) + (job->streamed ? 20 : 0);
    memset(job->reports, 0, sizeof job->reports);
    ranks_run(ranks, rank_run, job);
    const struct trainer_report *first = &job->reports[0];
    printf("told on rank %d of %d after step %zu: ended after step %zu\n", job->told, ranks,
           job->when, first->steps);
    for (int r = 0; r < ranks; r++) {
        assert_true(job->reports[r].stopped == (job->when > 0));
        assert_int_equal(job->reports[r].steps, first->steps);
        assert_true(job->reports[r].hash == first->hash);
    }
    assert_true(!job->when || (first->steps >= job->when && first->steps <= latest));
    assert_int_equal(job->reached, first->steps);
    return first->steps;
}

/* All of the state is the same: parameters, momentum, running statistics, tests. */
static void checkpoints_compare(void)
{
    static char bytes[2][1 << 22];
    size_t count[2];
    for (int i = 0; i < 2; i++) {
        FILE *file = fopen(ended[i], "rb");
        assert_non_null(file);
        count[i] = fread(bytes[i], 1, sizeof bytes[i], file);
        fclose(file);
    }
    assert_true(count[0] > 1000 && count[0] < sizeof bytes[0]);
    assert_int_equal(count[1], count[0]);
    assert_memory_equal(bytes[1], bytes[0], count[0]);
}

static void all_ranks_stop_and_go_on(void **unused)
{
    (void)unused;
    for (int i = 0; i < 2 * RANKS_MOST; i++) {
        const int ranks = i / 2 + 1;
        struct job whole = job_make(i % 2), cut = job_make(i % 2), rest = job_make(i % 2);
        whole.options.save = ended[0];
        cut.options.save = rest.options.load = saved;
        rest.options.save = ended[1];
        cut.told = ranks - 1;
        cut.when = 4;
        assert_int_equal(check_stop(&whole, ranks), STEPS);
        assert_int_equal(whole.tests, STEPS / 6 + 1);
        const size_t stopped = check_stop(&cut, ranks);
        assert_true(stopped < STEPS);
        assert_int_equal(cut.tests, stopped / 6);
        assert_int_equal(check_stop(&rest, ranks), STEPS);
        assert_int_equal(rest.tests, STEPS / 6 + 1 - stopped / 6);
        assert_true(rest.reports[0].hash == whole.reports[0].hash);
        assert_true(rest.reports[0].test.images >= 12);
        checkpoints_compare();
    }
}

/* Where steps take long the ranks agree more often: steps of a quarter of a second, every four. */
static void slow_steps_stop_sooner(void **unused)
{
    (void)unused;
    struct job job = job_make(false);
    job.options.validate_every = 0;
    job.napped = 12;
    job.told = 1;
    job.when = 10;
    assert_true(check_stop(&job, 2) <= 10 + 5);
}

static void tests_between_epochs_need_images(void **unused)
{
    (void)unused;
    struct job job = job_make(false);
    const struct trainer_place alone = {0};
    job.options.tests = 0;
    assert_int_equal(trainer_run(&job.options, &alone, &job.reports[0]), ALNICO_ERROR_ARGUMENT);
    assert_non_null(strstr(alnico_error_detail(), "a test every 6 steps, but no test images"));
}

int main(void)
{
    snprintf(saved, sizeof saved, "/tmp/alnico-stop-%d", (int)getpid());
    for (int i = 0; i < 2; i++)
        snprintf(ended[i], sizeof ended[i], "%s-%d", saved, i);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_ranks_stop_and_go_on),
        cmocka_unit_test(slow_steps_stop_sooner),
        cmocka_unit_test(tests_between_epochs_need_images),
    };
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove(saved);
    remove(ended[0]);
    remove(ended[1]);
    return failed;
}
