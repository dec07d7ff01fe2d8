/* The timing of alnico-perf is fair: candidates take turns in blocks of the same length, the order
 * is reversed every time, and the slowest rank's time counts. Under a launcher, or alone. */
#include "tools/perf/measure.h"

#include "tools/common/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include <cmocka.h>

enum { BLOCKS_MOST = 1 << 14 };

/* What happened, in order: one entry a block. */
static struct {
    int who, calls;
    bool prepared;
} history[BLOCKS_MOST];
static int blocks;

struct racer {
    int number;
    double seconds; /* for one call */
    bool prepared;
};

static void prepare(void *context)
{
    ((struct racer *)context)->prepared = true;
}

static void run(void *context, int calls)
{
    struct racer *racer = context;
    double start = measure_now();
    assert_true(blocks < BLOCKS_MOST);
    history[blocks].who = racer->number;
    history[blocks].calls = calls;
    history[blocks++].prepared = racer->prepared;
    racer->prepared = false;
    while (measure_now() - start < calls * racer->seconds)
        continue;
}

/* Two candidates, the second twice as slow, and on rank 0 twice as slow again. */
static struct measure_effort time_trials(const struct measure_plan *plan,
                                         struct candidate *candidates)
{
    static struct racer racers[2];
    struct measure_effort effort;
    blocks = 0;
    for (int i = 0; i < 2; i++) {
        racers[i] =
            (struct racer){.number = i, .seconds = 20e-6 * (i + 1) * (program_rank() ? 1 : 2)};
        candidates[i] = (struct candidate){.prepare = prepare, .run = run, .context = &racers[i]};
    }
    assert_true(measure(candidates, 2, plan, &effort));
    return effort;
}

static void test_turns(void **state)
{
    (void)state;
    struct candidate candidates[2];
    struct measure_plan plan = {.seconds = 0.05, .warmup = 3};
    struct measure_effort effort = time_trials(&plan, candidates);
    int timed = 2 * effort.repetitions, first = blocks - timed;
    assert_true(effort.repetitions >= 7);
    assert_true(first >= 2);
    for (int i = 0; i < timed; i++) {
        int repetition = i / 2, turn = i % 2;
        assert_int_equal(history[first + i].who, repetition % 2 ? 1 - turn : turn);
        assert_int_equal(history[first + i].calls, effort.block);
        assert_true(history[first + i].prepared);
    }
}

static void test_slowest_rank_counts(void **state)
{
    (void)state;
    struct candidate candidates[2];
    struct measure_plan plan = {.seconds = 0.1};
    bool of_one_call = false; /* in a race at least: a busy machine takes its time too */
    for (int races = 0; races < 20 && !of_one_call; races++) {
        time_trials(&plan, candidates);
        of_one_call = true;
        for (int i = 0; i < 2; i++) {
            assert_true(candidates[i].time_us >= 39.9 * (i + 1));
            assert_true(candidates[i].low_us <= candidates[i].time_us);
            assert_true(candidates[i].time_us <= candidates[i].high_us);
            double mine = candidates[i].time_us, first = mine;
            program_broadcast(&first, sizeof first, 0);
            assert_true(mine == first);
            of_one_call &= mine < 400.0 * (i + 1);
        }
    }
    assert_true(of_one_call);
}

static void test_number_of_calls(void **state)
{
    (void)state;
    static const long wanted[] = {1, 10, 100};
    for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
        struct candidate candidates[2];
        struct measure_plan plan = {.seconds = 1, .calls = wanted[i]};
        struct measure_effort effort = time_trials(&plan, candidates);
        long calls = (long)effort.block * effort.repetitions;
        assert_true(calls >= wanted[i] && calls < wanted[i] + effort.block);
    }
}

static void test_least_calls_of_a_block(void **state)
{
    (void)state;
    struct candidate candidates[2];
    struct measure_plan plan = {.seconds = 0.05, .block_least = 200};
    struct measure_effort effort = time_trials(&plan, candidates);
    assert_int_equal(effort.block, 200); /* half a millisecond would be thirteen calls */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_turns),
        cmocka_unit_test(test_slowest_rank_counts),
        cmocka_unit_test(test_number_of_calls),
        cmocka_unit_test(test_least_calls_of_a_block),
    };
    program_ranks_open();
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    program_ranks_close();
    return failed;
}
