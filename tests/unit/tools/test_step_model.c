/* The step model: Chu's two formulas, steps without overlap, costs that are fitted and carried to
 * other ranks, and profiles as JSON. */
#include "tools/common/step_model.h"

#include "tests/support/reference.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { BUCKETS = 6, TRIALS = 1000 };

static struct step_bucket buckets[BUCKETS];
static struct step_parts parts = {
    .input = 0.5, .forward = 2, .update = 0.25, .hidden = 1, .count = BUCKETS, .buckets = buckets};

static uint64_t seed;

static double random_seconds(size_t trial, size_t number)
{
    return (double)(reference_random(seed, trial, number) % 1000 + 1) * 1e-3;
}

static void require_near(double value, double expected)
{
    if (!(fabs(value - expected) <= 1e-12 + 1e-9 * fabs(expected)))
        fail_msg("%.15g, expected %.15g", value, expected);
}

/* Layers count from the first one, whose gradient comes last: bucket BUCKETS - 1. All others are
 * sent while the next is computed. */
static void hidden_communication_leaves_the_first_layer(void **unused)
{
    (void)unused;
    double communication[BUCKETS], backward = 0;
    for (size_t i = 0; i < BUCKETS; i++) {
        buckets[i].backward = 1 + (double)i;
        communication[i] = i + 1 < BUCKETS ? 0.5 : 3;
        backward += buckets[i].backward;
    }
    require_near(step_seconds(&parts, communication, true), parts.input + parts.forward + backward +
                                                                communication[BUCKETS - 1] +
                                                                parts.update);
}

/* From bucket 2 on each message ends after the next gradient is there. */
static void exposed_communication_follows_itself(void **unused)
{
    (void)unused;
    const double communication[BUCKETS] = {0.1, 0.1, 9, 8, 7, 6};
    for (size_t i = 0; i < BUCKETS; i++)
        buckets[i].backward = 1;
    require_near(step_seconds(&parts, communication, true),
                 parts.input + parts.forward + 3 + 9 + 8 + 7 + 6 + parts.update);
}

static void without_overlap_all_adds_up(void **unused)
{
    (void)unused;
    double communication[BUCKETS], sum = parts.input + parts.forward + parts.update;
    for (size_t i = 0; i < BUCKETS; i++) {
        sum += buckets[i].backward = random_seconds(0, i);
        sum += communication[i] = random_seconds(0, BUCKETS + i);
    }
    require_near(step_seconds(&parts, communication, false), sum);
    parts.hidden = 0; /* nor is anything gained where nothing goes on beside computing */
    require_near(step_seconds(&parts, communication, true), sum);
    parts.hidden = 1;
}

/* The end of the last message is the longest chain of gradients and the messages behind them. */
static void overlap_is_the_longest_chain(void **unused)
{
    (void)unused;
    for (size_t t = 0; t < TRIALS; t++) {
        double communication[BUCKETS], longest = 0;
        for (size_t i = 0; i < BUCKETS; i++) {
            buckets[i].backward = random_seconds(t, i);
            communication[i] = random_seconds(t, BUCKETS + i);
        }
        for (size_t from = 0; from < BUCKETS; from++) {
            double chain = 0;
            for (size_t i = 0; i < BUCKETS; i++)
                chain += (i <= from ? buckets[i].backward : 0) + (i >= from ? communication[i] : 0);
            longest = fmax(longest, chain);
        }
        require_near(step_seconds(&parts, communication, true),
                     parts.input + parts.forward + longest + parts.update);
    }
}

/* A message takes 10 ms and 1 ms a byte. Forward 2 messages and 30 bytes, 50 ms, of which 20 ms of
 * computing hide as much; before the second bucket 1 and 40, 50 ms, beside 45 ms; before the last 1 and
 * 10, 20 ms, beside more than that. Of what goes on beside computing a quarter does not. */
static void moves_prolong_their_passes(void **unused)
{
    (void)unused;
    struct step_bucket two[] = {{.backward = 1}, {.backward = 2}};
    struct step_move moves[] = {{0, 2, 30, 0.02}, {1, 1, 40, 0.045}, {2, 1, 10, 0.5}};
    struct step_parts split = {.forward = 3,
                               .hidden = 0.75,
                               .count = 2,
                               .buckets = two,
                               .alpha = 0.01,
                               .beta = 0.001,
                               .move_count = 3,
                               .moves = moves};
    const double none[2] = {0}, communication[] = {0.5, 4};
    require_near(step_moves_exposed(&split, false), 0.05 + 0.05 + 0.02);
    require_near(step_moves_exposed(&split, true), 0.03 + 0.0125 + 0.005);
    require_near(step_seconds(&split, none, false), 6 + 0.12);
    require_near(step_seconds(&split, none, true), 6 + 0.0475);
    /* The last bucket leaves after 1.0125 + 0.125 + 2.005. */
    require_near(step_seconds(&split, communication, true), 3.03 + 3.1425 + 4);
}

static void costs_are_found_and_carried(void **unused)
{
    (void)unused;
    const size_t bytes[] = {1024, 4096, 1 << 16, 1 << 20};
    double seconds[4];
    for (int i = 0; i < 4; i++)
        seconds[i] = 2e-5 + 1e-10 * (double)bytes[i];
    const struct step_costs costs = step_costs_fit(bytes, seconds, 4, 4);
    require_near(costs.alpha, 2e-5);
    require_near(costs.beta, 1e-10);
    require_near(step_costs_at(costs, 4, 5000), 2e-5 + 5e-7);
    require_near(step_costs_at(costs, 16, 5000), 2 * 2e-5 + 5e-7 * (15.0 / 16) / (3.0 / 4));
    require_near(step_costs_at(costs, 1, 5000), 0);
    const struct step_costs one = step_costs_fit(bytes, seconds, 1, 2);
    require_near(one.alpha + one.beta * 1024, seconds[0]);
    const double falling[] = {4, 3, 2, 1}, steep[] = {1e-6, 1e-5, 1e-3, 1};
    assert_true(step_costs_fit(bytes, falling, 4, 2).beta >= 0);
    assert_true(step_costs_fit(bytes, steep, 4, 2).alpha >= 0);
}

static void profiles_come_back(void **unused)
{
    (void)unused;
    char error[128];
    struct step_parts back;
    for (size_t i = 0; i < BUCKETS; i++)
        buckets[i] = (struct step_bucket){.backward = 0.125 * (double)i, .bytes = 100 * i};
    struct step_move moves[] = {{0, 2, 30, 0.5}, {BUCKETS, 1, 8, 0.25}};
    struct step_parts split = parts;
    split.alpha = 0.5;
    split.beta = 0.125;
    split.moves = moves;
    cJSON *json = step_parts_json(&split); /* there are none yet */
    assert_true(step_parts_read(json, &back, error, sizeof error));
    assert_true(back.count == BUCKETS && back.hidden == parts.hidden && back.input == parts.input);
    assert_true(!back.move_count && back.alpha == 0);
    assert_memory_equal(back.buckets, buckets, sizeof buckets);
    step_parts_free(&back);
    cJSON_Delete(json);
    split.move_count = 2;
    json = step_parts_json(&split);
    assert_true(step_parts_read(json, &back, error, sizeof error));
    assert_true(back.move_count == 2 && back.alpha == 0.5 && back.beta == 0.125);
    assert_memory_equal(back.moves, moves, sizeof moves);
    step_parts_free(&back);
    cJSON_ReplaceItemInObject(cJSON_GetArrayItem(cJSON_GetObjectItem(json, "moves"), 1), "bucket",
                              cJSON_CreateNumber(BUCKETS + 1));
    assert_false(step_parts_read(json, &back, error, sizeof error));
    assert_string_equal(error, "'bucket' is not a number from 0 to 6");
    cJSON_Delete(json);
    json = step_parts_json(&parts);
    cJSON_ReplaceItemInObject(json, "hidden", cJSON_CreateNumber(1.5));
    assert_false(step_parts_read(json, &back, error, sizeof error));
    assert_string_equal(error, "'hidden' is not a number from -2 to 1");
    cJSON_ReplaceItemInObject(json, "hidden", cJSON_CreateNumber(0));
    cJSON_DeleteItemFromObject(cJSON_GetArrayItem(cJSON_GetObjectItem(json, "buckets"), 3),
                               "bytes");
    assert_false(step_parts_read(json, &back, error, sizeof error));
    assert_non_null(strstr(error, "'bytes'"));
    cJSON_ReplaceItemInObject(json, "buckets", cJSON_CreateArray());
    assert_false(step_parts_read(json, &back, error, sizeof error));
    assert_non_null(strstr(error, "'buckets'"));
    cJSON_Delete(json);
}

int main(void)
{
    seed = (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hidden_communication_leaves_the_first_layer),
        cmocka_unit_test(exposed_communication_follows_itself),
        cmocka_unit_test(without_overlap_all_adds_up),
        cmocka_unit_test(overlap_is_the_longest_chain),
        cmocka_unit_test(moves_prolong_their_passes),
        cmocka_unit_test(costs_are_found_and_carried),
        cmocka_unit_test(profiles_come_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
