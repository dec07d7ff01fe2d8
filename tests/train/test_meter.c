/* Waiting for a stream: it ends where no step does, not where steps are slow, and can be begun
 * again; and a run whose stream hangs ends with an error. The stream is the CPU's. */
#include "train/base/median.h"
#include "train/graph/split.h"
#include "train/models/models.h"
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

enum { STEPS = 12, NAP_US = 200000, RUN_STEPS = 60 };

#define DEADLINE "1.2" /* seconds; a timer waits for half again as long */

/* A replica with a batch on a stream, and a timer on it. */
struct fixture {
    alnico_stream_t stream;
    struct network *whole, *network;
    struct replica *replica;
    struct phase_timer *timer;
    struct device_flag *held;
};

/* split NULL: of all of the network; else rank 0 of two, without the other. */
static struct fixture fixture_of(const char *text)
{
    struct fixture f;
    struct split split;
    const float images[16] = {0};
    const int32_t labels[1] = {3};
    assert_int_equal(alnico_stream_create(&f.stream), ALNICO_SUCCESS);
    assert_int_equal(model_network(&model_cnn, 4, 4, 1, 10, &f.whole), ALNICO_SUCCESS);
    f.network = f.whole;
    if (text) {
        assert_int_equal(split_parse(text, &split), ALNICO_SUCCESS);
        assert_int_equal(network_split(f.whole, &split, 0, 2, &f.network), ALNICO_SUCCESS);
    }
    const struct replica_setup setup = {
        .kernels = &kernels_naive, .batch = 1, .gradient_type = ALNICO_FLOAT32, .stream = f.stream};
    assert_int_equal(replica_create(f.network, &setup, &f.replica), ALNICO_SUCCESS);
    assert_int_equal(phase_timer_create(f.replica, STEPS, 2, &f.timer), ALNICO_SUCCESS);
    assert_int_equal(replica_load(f.replica, images, labels, 1), ALNICO_SUCCESS);
    assert_int_equal(device_cpu.flag_create(&f.held), ALNICO_SUCCESS);
    return f;
}

static struct fixture fixture_make(void)
{
    return fixture_of(NULL);
}

static void fixture_free(struct fixture *f)
{
    replica_synchronize(f->replica);
    phase_timer_destroy(f->timer);
    replica_destroy(f->replica);
    if (f->network != f->whole)
        network_destroy(f->network);
    network_destroy(f->whole);
    device_cpu.flag_destroy(f->held);
    alnico_stream_destroy(f->stream);
}

static void step(struct fixture *f)
{
    struct phase_times reading;
    assert_int_equal(phase_timer_begin(f->timer, 0.1), ALNICO_SUCCESS);
    assert_int_equal(replica_forward(f->replica, true), ALNICO_SUCCESS);
    for (int p = 0; p < PHASES; p++)
        assert_int_equal(phase_timer_mark(f->timer, (enum phase)p), ALNICO_SUCCESS);
    assert_int_equal(phase_timer_end(f->timer, &reading), ALNICO_SUCCESS);
    assert_int_equal(reading.steps, 0);
}

static void nap(void *unused)
{
    (void)unused;
    usleep(NAP_US);
}

static void a_held_stream_is_not_waited_for(void **unused)
{
    (void)unused;
    struct fixture f = fixture_make();
    struct phase_times reading;
    double score[SCORES];
    step(&f);
    device_cpu.stream_await(f.stream, f.held, 1);
    step(&f);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(phase_timer_pause(f.timer, &reading), ALNICO_ERROR_TIMEOUT);
        if (!strstr(alnico_error_detail(),
                    "what follows step 1 of this run has not ended on the device within 1.8"))
            fail_msg("'%s'", alnico_error_detail());
    }
    assert_int_equal(replica_read(f.replica, f.replica->arenas.score, score, sizeof score),
                     ALNICO_ERROR_TIMEOUT);
    device_cpu.flag_raise(f.held, 1);
    assert_int_equal(phase_timer_pause(f.timer, &reading), ALNICO_SUCCESS);
    assert_int_equal(reading.steps, 2);
    assert_int_equal(reading.outcome.count, 2);
    assert_int_equal(phase_timer_pause(f.timer, &reading), ALNICO_SUCCESS);
    assert_int_equal(reading.steps, 0);
    assert_int_equal(replica_read(f.replica, f.replica->arenas.score, score, sizeof score),
                     ALNICO_SUCCESS);
    assert_true(score[SCORE_TERMS] == 2);
    fixture_free(&f);
}

/* All of them together take longer than what one may. */
static void slow_steps_are_waited_for(void **unused)
{
    (void)unused;
    struct fixture f = fixture_make();
    struct phase_times reading;
    for (int i = 0; i < STEPS - 1; i++) {
        alnico_stream_enqueue(f.stream, nap, NULL);
        step(&f);
    }
    assert_int_equal(phase_timer_pause(f.timer, &reading), ALNICO_SUCCESS);
    assert_int_equal(reading.steps, STEPS - 1);
    fixture_free(&f);
}

/* Each pass finds its own, however far ahead of the stream the steps are enqueued. */
static void draws_come_in_the_stream_s_order(void **unused)
{
    (void)unused;
    struct fixture f = fixture_make();
    struct phase_times reading;
    struct draw seen[STEPS - 2][2];
    step(&f);
    device_cpu.stream_await(f.stream, f.held, 1);
    for (uint32_t s = 0; s < STEPS - 2; s++) {
        for (uint32_t pass = 0; pass < 2; pass++) {
            const struct draw draw = {.step = 100 + s, .image = 7 * pass};
            assert_int_equal(phase_timer_draw(f.timer, pass, draw), ALNICO_SUCCESS);
            assert_int_equal(device_cpu.copy(&seen[s][pass], f.replica->arenas.draw,
                                             sizeof(struct draw), f.stream),
                             ALNICO_SUCCESS);
        }
        step(&f);
    }
    device_cpu.flag_raise(f.held, 1);
    assert_int_equal(phase_timer_pause(f.timer, &reading), ALNICO_SUCCESS);
    for (uint32_t s = 0; s < STEPS - 2; s++)
        for (uint32_t pass = 0; pass < 2; pass++)
            assert_true(seen[s][pass].step == 100 + s && seen[s][pass].image == 7 * pass);
    fixture_free(&f);
}

static void phase_end(struct fixture *f, enum phase phase, int naps)
{
    for (int i = 0; i < naps; i++)
        alnico_stream_enqueue(f->stream, nap, NULL);
    assert_int_equal(phase_timer_mark(f->timer, phase), ALNICO_SUCCESS);
}

static void step_open(struct fixture *f)
{
    assert_int_equal(phase_timer_begin(f->timer, 0.1), ALNICO_SUCCESS);
}

static void step_close(struct fixture *f)
{
    struct phase_times reading;
    assert_int_equal(phase_timer_end(f->timer, &reading), ALNICO_SUCCESS);
}

/* A phase lasts from the mark before its own, whichever that is. The timer has room for two of
 * each in a step; a third moves the second. */
static void phases_end_in_any_order(void **unused)
{
    (void)unused;
    struct fixture f = fixture_make();
    struct phase_times reading;
    int naps[PHASES] = {0};
    step_open(&f);
    phase_end(&f, PHASE_WEIGHTS, 1);
    phase_end(&f, PHASE_FORWARD, 2);
    phase_end(&f, PHASE_WEIGHTS, 1);
    phase_end(&f, PHASE_IO, 1);
    step_close(&f);
    step_open(&f);
    phase_end(&f, PHASE_BACKWARD, 1);
    step_close(&f);
    step_open(&f);
    for (int i = 0; i < 3; i++)
        phase_end(&f, PHASE_UPDATE, 1);
    step_close(&f);
    naps[PHASE_WEIGHTS] = naps[PHASE_FORWARD] = 2;
    naps[PHASE_IO] = naps[PHASE_BACKWARD] = 1;
    naps[PHASE_UPDATE] = 3;
    assert_int_equal(phase_timer_pause(f.timer, &reading), ALNICO_SUCCESS);
    assert_int_equal(reading.steps, 3);
    assert_true(reading.rate == 0.1);
    double sum = 0;
    for (int p = 0; p < PHASES; p++) {
        assert_true(reading.phases[p] >= 1e-6 * NAP_US * naps[p]);
        assert_true(naps[p] || reading.phases[p] == 0);
        sum += reading.phases[p];
    }
    for (int i = 0; i < 3; i++)
        assert_true(reading.seconds[i] >= 1e-6 * NAP_US * (i == 0 ? 5 : i == 1 ? 1 : 3));
    assert_true(fabs(sum - reading.seconds[0] - reading.seconds[1] - reading.seconds[2]) < 1e-9);
    fixture_free(&f);
}

/* A third of forward computes, and two thirds wait: timed in the first step, assumed in the second. */
static void waits_are_timed_in_some_steps(void **unused)
{
    (void)unused;
    struct fixture f = fixture_of("rows=2");
    const struct replica_waiting *waiting = &f.replica->waiting;
    struct phase_times reading;
    for (int i = 0; i < 2; i++) {
        step_open(&f);
        assert_int_equal(phase_timer_waits(f.timer), i == 0);
        alnico_stream_enqueue(f.stream, nap, NULL);
        assert_int_equal(waiting->mark(waiting->context, PHASE_FORWARD), ALNICO_SUCCESS);
        for (int k = 0; k < 2; k++)
            alnico_stream_enqueue(f.stream, nap, NULL);
        assert_int_equal(waiting->mark(waiting->context, PHASE_HALO), ALNICO_SUCCESS);
        phase_end(&f, PHASE_FORWARD, 0);
        step_close(&f);
    }
    assert_int_equal(phase_timer_pause(f.timer, &reading), ALNICO_SUCCESS);
    assert_int_equal(reading.steps, 2);
    const double halo = reading.phases[PHASE_HALO], forward = reading.phases[PHASE_FORWARD];
    assert_true(halo >= 3e-6 * NAP_US);
    assert_true(forward >= 1.5e-6 * NAP_US);
    assert_true(fabs(halo + forward - reading.seconds[0] - reading.seconds[1]) < 1e-9);
    fixture_free(&f);
}

/* ---- A run ---- */

struct hang {
    alnico_stream_t stream;
    struct device_flag *held;
    size_t step; /* from which on it is held; the last: what hangs is no step */
    bool tested; /* after the test */
    bool done;
};

static void hold(void *context, const struct trainer_progress *progress)
{
    struct hang *hang = context;
    if (hang->done || progress->step < hang->step || progress->tested != hang->tested)
        return;
    device_cpu.stream_await(hang->stream, hang->held, 1);
    hang->done = true;
}

static void run_and_hang(struct hang hang, size_t tests, const char *save)
{
    struct trainer_report report;
    assert_int_equal(alnico_stream_create(&hang.stream), ALNICO_SUCCESS);
    assert_int_equal(device_cpu.flag_create(&hang.held), ALNICO_SUCCESS);
    const struct trainer_options options = {.model = "cnn",
                                            .data = "synthetic:8x8x1",
                                            .kernels = "naive",
                                            .strategy = "allreduce",
                                            .batch = 2,
                                            .steps = RUN_STEPS,
                                            .tests = tests,
                                            .save = save,
                                            .wire = ALNICO_FLOAT32,
                                            .rule = BUCKETS_OF_COUNT,
                                            .buckets = 1,
                                            .optimizer = optimizer_defaults(OPTIMIZER_SGD, 2),
                                            .progress = hold,
                                            .context = &hang};
    const struct trainer_place place = {.stream = hang.stream};
    assert_int_equal(trainer_run(&options, &place, &report), ALNICO_ERROR_TIMEOUT);
    assert_true(hang.done);
    assert_non_null(strstr(alnico_error_detail(), "has not ended on the device"));
    device_cpu.flag_raise(hang.held, 1);
    device_cpu.stream_synchronize(hang.stream);
}

static void a_run_that_hangs_ends(void **unused)
{
    (void)unused;
    run_and_hang((struct hang){0}, 0, NULL);
}

static void a_test_that_hangs_ends(void **unused)
{
    (void)unused;
    run_and_hang((struct hang){.step = RUN_STEPS}, 8, NULL);
}

static void a_checkpoint_that_hangs_ends(void **unused)
{
    (void)unused;
    char path[64];
    snprintf(path, sizeof path, "/tmp/alnico-timer-%d", (int)getpid());
    run_and_hang((struct hang){.step = RUN_STEPS, .tested = true}, 8, path);
    assert_int_not_equal(access(path, F_OK), 0);
}

static void medians_are_in_the_middle(void **unused)
{
    (void)unused;
    assert_true(median((double[]){7}, 1) == 7);
    assert_true(median((double[]){5, 1, 3}, 3) == 3);
    assert_true(median((double[]){8, 1, 2, 6}, 4) == 4);
}

int main(void)
{
    setenv("ALNICO_TIMEOUT", DEADLINE, 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(medians_are_in_the_middle),
        cmocka_unit_test(a_held_stream_is_not_waited_for),
        cmocka_unit_test(slow_steps_are_waited_for),
        cmocka_unit_test(draws_come_in_the_stream_s_order),
        cmocka_unit_test(phases_end_in_any_order),
        cmocka_unit_test(waits_are_timed_in_some_steps),
        cmocka_unit_test(a_run_that_hangs_ends),
        cmocka_unit_test(a_test_that_hangs_ends),
        cmocka_unit_test(a_checkpoint_that_hangs_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
