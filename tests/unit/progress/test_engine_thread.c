/* The progress engine's thread: when it starts and ends, where it runs, how it sleeps and wakes. */
#include "progress/progress.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/resource.h>

#include <cmocka.h>

#include "tests/support/patience.h"
#include "tests/support/ranks.h"
#include "tests/unit/progress/steps.h"

static int thread_count(void)
{
    int count = 0;
    DIR *tasks = opendir("/proc/self/task");
    assert_non_null(tasks);
    for (const struct dirent *entry; (entry = readdir(tasks));)
        count += entry->d_name[0] != '.';
    closedir(tasks);
    return count;
}

/* ---- The thread ---- */

static void thread_starts_with_the_first_operation(void **state)
{
    (void)state;
    int before = thread_count();
    struct engine *engine = new_engine(true, false);
    struct lane lane = {0};
    struct step step;
    assert_int_equal(thread_count(), before);
    for (int i = 0; i < 3; i++) {
        step_prepare(&step, &lane);
        submit(engine, &step);
        EVENTUALLY(is_retired(&step));
        assert_int_equal(thread_count(), before + 1);
    }
    engine_destroy(engine);
    EVENTUALLY(thread_count() == before);
}

static void inline_engine_starts_none(void **state)
{
    (void)state;
    int before = thread_count();
    struct engine *engine = new_engine(false, false);
    struct lane lane = {0};
    struct step step;
    step_prepare(&step, &lane);
    submit(engine, &step);
    while (!is_retired(&step))
        engine_pump(engine);
    assert_int_equal(thread_count(), before);
    assert_int_equal(engine_sleeps(engine), 0);
    engine_destroy(engine);
}

static void unused_engines_are_destroyed(void **state)
{
    (void)state;
    engine_destroy(NULL);
    engine_destroy(new_engine(true, false));
    engine_destroy(new_engine(false, false));
}

struct first {
    pthread_t thread;
    struct engine *engine;
    atomic_bool *go;
    struct lane lane;
    struct step step;
};

static void *submit_first(void *argument)
{
    struct first *first = argument;
    step_prepare(&first->step, &first->lane);
    while (!atomic_load(first->go))
        ;
    return engine_submit(first->engine, &first->step.op) == ALNICO_SUCCESS ? first : NULL;
}

static void first_operations_at_once_start_one_thread(void **state)
{
    (void)state;
    enum { SUBMITTERS = 4 };
    int before = thread_count();
    for (int round = 0; round < 30; round++) {
        struct engine *engine = new_engine(true, round % 2);
        struct first firsts[SUBMITTERS] = {0};
        atomic_bool go = false;
        for (int i = 0; i < SUBMITTERS; i++) {
            firsts[i].engine = engine;
            firsts[i].go = &go;
            assert_int_equal(pthread_create(&firsts[i].thread, NULL, submit_first, &firsts[i]), 0);
        }
        atomic_store(&go, true);
        for (int i = 0; i < SUBMITTERS; i++) {
            void *returned;
            pthread_join(firsts[i].thread, &returned);
            assert_ptr_equal(returned, &firsts[i]);
            EVENTUALLY(is_retired(&firsts[i].step));
        }
        EVENTUALLY(thread_count() == before + 1);
        engine_destroy(engine);
        EVENTUALLY(thread_count() == before);
    }
}

struct place {
    struct op op;
    cpu_set_t cores;
    atomic_bool retired;
};

static alnico_status_t place_poll(struct op *op, bool *moved)
{
    (void)moved;
    struct place *place = (struct place *)op;
    sched_getaffinity(0, sizeof place->cores, &place->cores);
    return ALNICO_SUCCESS;
}

static void place_retire(struct op *op, alnico_status_t status)
{
    (void)status;
    atomic_store(&((struct place *)op)->retired, true);
}

static void thread_is_bound_to_its_core(void **state)
{
    (void)state;
    cpu_set_t usable;
    int last = -1;
    assert_int_equal(sched_getaffinity(0, sizeof usable, &usable), 0);
    for (int i = 0; i < CPU_SETSIZE; i++)
        if (CPU_ISSET(i, &usable))
            last = i;
    for (int round = 0; round < 2; round++) {
        struct engine_options options = {.threaded = true, .core = round ? -1 : last};
        struct lane lane = {0};
        struct place place = {.op = {.lane = &lane, .poll = place_poll, .retire = place_retire}};
        struct engine *engine;
        assert_int_equal(engine_create(&options, &engine), ALNICO_SUCCESS);
        assert_int_equal(engine_submit(engine, &place.op), ALNICO_SUCCESS);
        EVENTUALLY(atomic_load(&place.retired));
        assert_true(CPU_ISSET(last, &place.cores));
        assert_int_equal(CPU_COUNT(&place.cores), round ? CPU_COUNT(&usable) : 1);
        engine_destroy(engine);
    }
}

/* ---- Sleep ---- */

static double retire_latency_us(struct step *step)
{
    double start = now_s();
    for (int k = 1; !is_retired(step); k++) {
        if (k % 1000)
            continue;
        if (now_s() > start + PATIENCE_S)
            fail_msg("not retired after %d s", PATIENCE_S);
        sched_yield();
    }
    return 1e6 * (now_s() - start);
}

/* A crowded engine sleeps whenever it has nothing to do; the next operation comes while it falls
 * asleep, at every point of it. */
static void no_wake_up_is_lost(void **state)
{
    (void)state;
    struct engine *engine = new_engine(true, true);
    struct lane lane = {0};
    struct step step;
    double end = now_s() + 2 * STRESS_S;
    for (int i = 0; now_s() < end; i++) {
        step_prepare(&step, &lane);
        step.linger = i * 7 % 401;
        submit(engine, &step);
        retire_latency_us(&step);
        waste_time(i * 13 % 403);
    }
    assert_true(engine_sleeps(engine) > 10);
    engine_destroy(engine);
}

static double cpu_s(void)
{
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           1e-6 * (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec);
}

/* The share of one core that the process uses while the caller sleeps. */
static double measure_cpu_share(double seconds)
{
    double cpu = cpu_s(), start = now_s();
    while (now_s() < start + seconds)
        nap_us(100000);
    return (cpu_s() - cpu) / (now_s() - start);
}

/* An engine whose operation has retired, a crowded one, and a stream. */
static void idle_is_idle(void **state)
{
    (void)state;
    struct engine *engines[2] = {new_engine(true, false), new_engine(true, true)};
    struct lane lanes[2] = {0};
    struct step steps[2];
    alnico_stream_t stream;
    assert_int_equal(alnico_stream_create(&stream), ALNICO_SUCCESS);
    for (int i = 0; i < 2; i++) {
        step_prepare(&steps[i], &lanes[i]);
        submit(engines[i], &steps[i]);
        EVENTUALLY(is_retired(&steps[i]));
        EVENTUALLY(engine_sleeps(engines[i]) > 0);
    }
    nap_us(5000);
    unsigned long sleeps = engine_sleeps(engines[0]) + engine_sleeps(engines[1]);
    double share = measure_cpu_share(1);
    print_message("idle: %.2f %% of a core\n", 100 * share);
    assert_true(share < 0.01);
    assert_true(engine_sleeps(engines[0]) + engine_sleeps(engines[1]) <= sleeps + 4);
    for (int i = 0; i < 2; i++)
        engine_destroy(engines[i]);
    alnico_stream_destroy(stream);
}

static void stalled_is_nearly_idle(void **state)
{
    (void)state;
    struct engine *engine = new_engine(true, false);
    struct lane lane = {0};
    atomic_bool go = false;
    struct step step;
    step_prepare(&step, &lane);
    step.go = &go;
    submit(engine, &step);
    EVENTUALLY(engine_sleeps(engine) > 0);
    unsigned long before = engine_sleeps(engine);
    double share = measure_cpu_share(1);
    unsigned long naps = engine_sleeps(engine) - before;
    print_message("stalled: %.2f %% of a core, %lu naps/s\n", 100 * share, naps);
    assert_true(share < 0.2);
    assert_in_range(naps, 10, 5000);
    assert_false(is_retired(&step));
    atomic_store(&go, true);
    EVENTUALLY(is_retired(&step));
    engine_destroy(engine);
}

/* The best of several, and of more on a busy machine, so that its load does not matter: what is
 * right takes well below the limit, and what nobody woke up for never comes. */
enum { TRIES = 8, MORE_TRIES = 100, LATENCY_US = 5000 };

static void stalled_operation_that_can_go_on_is_noticed(void **state)
{
    (void)state;
    struct engine *engine = new_engine(true, false);
    struct lane lane = {0};
    double best = 1e9;
    for (int i = 0; i < MORE_TRIES && (i < TRIES || best >= LATENCY_US); i++) {
        atomic_bool go = false;
        struct step step;
        unsigned long sleeps = engine_sleeps(engine);
        step_prepare(&step, &lane);
        step.go = &go;
        submit(engine, &step);
        EVENTUALLY(engine_sleeps(engine) > sleeps + 15); /* naps have their full length */
        atomic_store(&go, true);
        double latency = retire_latency_us(&step);
        best = latency < best ? latency : best;
    }
    print_message("noticed after %.0f us\n", best);
    assert_true(best < LATENCY_US);
    engine_destroy(engine);
}

static int by_value(const void *left, const void *right)
{
    const double a = *(const double *)left, b = *(const double *)right;
    return (a > b) - (a < b);
}

/* The median of a few naps that are ended by engine_wake; without it half a nap, 500 us. */
static double median_woken_latency_us(struct engine *engine, struct lane *lane)
{
    double latencies[TRIES + 1];
    for (int i = 0; i <= TRIES; i++) {
        atomic_bool go = false;
        struct step step;
        unsigned long sleeps = engine_sleeps(engine);
        step_prepare(&step, lane);
        step.go = &go;
        submit(engine, &step);
        EVENTUALLY(engine_sleeps(engine) > sleeps + 15);
        atomic_store(&go, true);
        engine_wake(engine);
        latencies[i] = retire_latency_us(&step);
    }
    qsort(latencies, TRIES + 1, sizeof *latencies, by_value);
    return latencies[TRIES / 2];
}

static void somebody_who_waits_ends_a_nap(void **state)
{
    (void)state;
    struct engine *engine = new_engine(true, false);
    struct lane lane = {0};
    double best = 1e9;
    for (int round = 0; round < 20 && best > 150; round++) {
        double median = median_woken_latency_us(engine, &lane);
        best = median < best ? median : best;
    }
    print_message("woken from a nap in %.0f us\n", best);
    assert_true(ranks_sanitized() || best <= 150);
    engine_destroy(engine);
}

static void submission_wakes_a_sleeping_engine(void **state)
{
    (void)state;
    struct engine *engine = new_engine(true, false);
    struct lane lane = {0};
    double best = 1e9;
    for (int i = 0; i < MORE_TRIES && (i < TRIES || best >= LATENCY_US); i++) {
        struct step step;
        unsigned long sleeps = engine_sleeps(engine);
        step_prepare(&step, &lane);
        submit(engine, &step);
        double latency = retire_latency_us(&step);
        if (i > 0) /* the first one starts the thread */
            best = latency < best ? latency : best;
        EVENTUALLY(engine_sleeps(engine) > sleeps);
        nap_us(2000);
    }
    print_message("awake after %.0f us\n", best);
    assert_true(best < LATENCY_US);
    engine_destroy(engine);
}

static void operation_that_moves_keeps_the_engine_awake(void **state)
{
    (void)state;
    struct engine *engine = new_engine(true, false);
    struct lane lane = {0};
    atomic_bool go = false;
    struct step step;
    step_prepare(&step, &lane);
    step.go = &go;
    step.moves = true;
    submit(engine, &step);
    nap_us(20000);
    assert_int_equal(engine_sleeps(engine), 0);
    atomic_store(&go, true);
    EVENTUALLY(is_retired(&step));
    engine_destroy(engine);
}

/* While it still spins, while it falls asleep, and while it sleeps. Counting yields instead of the
 * time made this take minutes where other processes wanted the cores. */
static void destroy_stops_the_thread_in_any_state(void **state)
{
    (void)state;
    double longest = 0;
    for (int i = 0; i < 60; i++) {
        struct engine *engine = new_engine(true, i % 3 == 0);
        struct lane lane = {0};
        struct step step;
        step_prepare(&step, &lane);
        submit(engine, &step);
        EVENTUALLY(is_retired(&step));
        if (i % 2)
            nap_us(i * 50);
        if (i % 10 == 0)
            EVENTUALLY(engine_sleeps(engine) > 0);
        double start = now_s();
        engine_destroy(engine);
        longest = now_s() - start > longest ? now_s() - start : longest;
    }
    print_message("longest destroy: %.2f ms\n", 1e3 * longest);
    assert_true(longest < 2);
}

/* ---- Who waits polls ---- */

static void thread_leaves_polling_to_who_attends(void **state)
{
    (void)state;
    for (int crowded = 0; crowded < 2; crowded++) {
        struct engine *engine = new_engine(true, crowded);
        struct lane lane = {0};
        struct step step;
        engine_begin_polling(engine);
        step_prepare(&step, &lane);
        submit(engine, &step);
        nap_us(20000);
        assert_false(is_retired(&step));
        assert_true(engine_pump(engine));
        assert_true(is_retired(&step));
        engine_end_polling(engine);
        engine_destroy(engine);
    }
}

/* What is in the inbox, and what is in flight, when the last one leaves. */
static void thread_takes_over_from_who_leaves(void **state)
{
    (void)state;
    struct engine *engine = new_engine(true, true);
    double end = now_s() + STRESS_S;
    for (int i = 0; now_s() < end; i++) {
        struct lane lanes[2] = {0};
        struct step steps[2];
        atomic_bool go = false;
        step_prepare(&steps[0], &lanes[0]);
        step_prepare(&steps[1], &lanes[1]);
        steps[0].go = &go;
        engine_begin_polling(engine);
        submit(engine, &steps[0]);
        if (i % 2)
            engine_pump(engine);
        waste_time(i * 13 % 403);
        submit(engine, &steps[1]);
        engine_end_polling(engine);
        EVENTUALLY(is_retired(&steps[1]));
        atomic_store(&go, true);
        EVENTUALLY(is_retired(&steps[0]));
    }
    engine_destroy(engine);
}

/* An operation that sees whether it is polled by two at once. */
struct alone {
    struct op op;
    atomic_int pollers;
    int polls, *clashes;
    atomic_bool retired;
};

static alnico_status_t alone_poll(struct op *op, bool *moved)
{
    struct alone *alone = (struct alone *)op;
    (void)moved;
    *alone->clashes += atomic_fetch_add(&alone->pollers, 1) != 0;
    waste_time(50);
    atomic_fetch_sub(&alone->pollers, 1);
    return alone->polls-- > 0 ? ALNICO_PENDING : ALNICO_SUCCESS;
}

static void alone_retire(struct op *op, alnico_status_t status)
{
    (void)status;
    atomic_store(&((struct alone *)op)->retired, true);
}

struct waiter {
    pthread_t thread;
    struct engine *engine;
    int clashes;
};

/* Every third one leaves the operation to the others. */
static void *wait_again_and_again(void *argument)
{
    struct waiter *waiter = argument;
    struct lane lane = {0};
    double end = now_s() + STRESS_S;
    for (int i = 0; now_s() < end; i++) {
        struct alone alone = {.op = {.lane = &lane, .poll = alone_poll, .retire = alone_retire},
                              .polls = i % 7,
                              .clashes = &waiter->clashes};
        if (engine_submit(waiter->engine, &alone.op) != ALNICO_SUCCESS)
            return NULL;
        if (i % 3)
            engine_begin_polling(waiter->engine);
        while (!atomic_load(&alone.retired))
            if (i % 3 == 0 || !engine_pump(waiter->engine))
                sched_yield();
        if (i % 3)
            engine_end_polling(waiter->engine);
    }
    return waiter;
}

static void nothing_is_polled_by_two(void **state)
{
    (void)state;
    enum { WAITERS = 3 };
    struct engine *engine = new_engine(true, false);
    struct waiter waiters[WAITERS] = {0};
    for (int i = 0; i < WAITERS; i++) {
        waiters[i].engine = engine;
        assert_int_equal(
            pthread_create(&waiters[i].thread, NULL, wait_again_and_again, &waiters[i]), 0);
    }
    for (int i = 0; i < WAITERS; i++) {
        void *returned;
        pthread_join(waiters[i].thread, &returned);
        assert_ptr_equal(returned, &waiters[i]);
        assert_int_equal(waiters[i].clashes, 0);
    }
    engine_destroy(engine);
}

static void *do_nothing(void *argument)
{
    return argument;
}

/* A sanitizer starts its own thread with the first other one; then threads can be counted. */
static int set_up(void **state)
{
    (void)state;
    pthread_t thread;
    alarm(WATCHDOG_S);
    int error = pthread_create(&thread, NULL, do_nothing, NULL);
    return error ? error : pthread_join(thread, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(thread_starts_with_the_first_operation),
        cmocka_unit_test(inline_engine_starts_none),
        cmocka_unit_test(unused_engines_are_destroyed),
        cmocka_unit_test(first_operations_at_once_start_one_thread),
        cmocka_unit_test(thread_is_bound_to_its_core),
        cmocka_unit_test(no_wake_up_is_lost),
        cmocka_unit_test(idle_is_idle),
        cmocka_unit_test(stalled_is_nearly_idle),
        cmocka_unit_test(stalled_operation_that_can_go_on_is_noticed),
        cmocka_unit_test(somebody_who_waits_ends_a_nap),
        cmocka_unit_test(submission_wakes_a_sleeping_engine),
        cmocka_unit_test(operation_that_moves_keeps_the_engine_awake),
        cmocka_unit_test(thread_leaves_polling_to_who_attends),
        cmocka_unit_test(thread_takes_over_from_who_leaves),
        cmocka_unit_test(nothing_is_polled_by_two),
        cmocka_unit_test(destroy_stops_the_thread_in_any_state),
    };
    return cmocka_run_group_tests(tests, set_up, NULL);
}
