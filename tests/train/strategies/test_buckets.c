/* Where the gradient arena is cut: by size, by number, and by the model of MG-WFBP on times made up
 * here. */
#include "tests/train/cases.h"

#include "train/strategies/buckets.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

static void expect(struct buckets *buckets, const size_t *ends, size_t count)
{
    assert_int_equal(buckets->count, count);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(buckets->ends[i], ends[i]);
    buckets_free(buckets);
    assert_null(buckets->ends);
    buckets_free(buckets);
}

static void sizes_are_kept_but_for_the_last(void **unused)
{
    (void)unused;
    struct buckets buckets;
    assert_int_equal(buckets_of_size(10, 4, &buckets), ALNICO_SUCCESS);
    expect(&buckets, (size_t[]){4, 8, 10}, 3);
    assert_int_equal(buckets_of_size(8, 4, &buckets), ALNICO_SUCCESS);
    expect(&buckets, (size_t[]){4, 8}, 2);
    assert_int_equal(buckets_of_size(3, 100, &buckets), ALNICO_SUCCESS);
    expect(&buckets, (size_t[]){3}, 1);
    assert_int_equal(buckets_of_size(0, 4, &buckets), ALNICO_SUCCESS);
    expect(&buckets, NULL, 0);
}

static void numbers_are_kept_where_there_are_enough(void **unused)
{
    (void)unused;
    struct buckets buckets;
    assert_int_equal(buckets_of_count(10, 3, &buckets), ALNICO_SUCCESS);
    expect(&buckets, (size_t[]){3, 6, 10}, 3);
    assert_int_equal(buckets_of_count(2, 3, &buckets), ALNICO_SUCCESS);
    expect(&buckets, (size_t[]){1, 2}, 2);
    assert_int_equal(buckets_of_count(0, 3, &buckets), ALNICO_SUCCESS);
    expect(&buckets, NULL, 0);
}

/* Four layers with 100 gradients each, from the last to the first; a relu without. */
static struct plan *plan_make(struct step *steps, struct plan *plan)
{
    const size_t filled[] = {400, 300, 200, 200, 100};
    for (size_t i = 0; i < 5; i++)
        steps[i] = (struct step){.filled = filled[i]};
    *plan = (struct plan){.steps = steps, .count = 5};
    return plan;
}

static void planned(const double *seconds, double alpha, double beta, const size_t *ends,
                    size_t count)
{
    struct step steps[5];
    struct plan plan;
    struct buckets buckets;
    const struct bucket_costs costs = {alpha, beta};
    assert_int_equal(buckets_planned(plan_make(steps, &plan), seconds, 4, costs, &buckets),
                     ALNICO_SUCCESS);
    expect(&buckets, ends, count);
}

static void plans_weigh_waiting_against_starting(void **unused)
{
    (void)unused;
    /* In seconds, forward order: backward takes the last first. */
    const double even[5] = {1, 1, 1, 1, 1}, late[5] = {5, 1, 0.5, 0.5, 1};
    /* A message takes as long, whatever is in it: all together. */
    planned(even, 0.01, 0, (size_t[]){400}, 1);
    planned(even, 10, 0.001, (size_t[]){400}, 1);
    /* The layers are ready at 1, 2, 4 (after the relu) and 5, and each takes the link 0.2. What is
     * sent at 4 is through by 5. */
    planned(even, 0.01, 0.0005, (size_t[]){300, 400}, 2);
    /* Not if a start-up costs more than that spares. */
    planned(even, 1.3, 0.0005, (size_t[]){400}, 1);
    /* The first message keeps the link busy until 9: what is ready by then travels together. */
    planned(even, 0.01, 0.02, (size_t[]){100, 400}, 2);
    /* Ready at 1, 1.5, 3 and 8: the first leaves at once, the next two when it is through, all
     * before the last. */
    planned(late, 0.01, 0.005, (size_t[]){100, 300, 400}, 3);
    /* No times at all. */
    planned((double[5]){0}, 0, 0, (size_t[]){400}, 1);
}

/* When all is sent, with a start-up of who computes for each bucket. Buckets end with the layers
 * whose bits are set in `cuts`, and with the last. */
static double cost_of(const double *ready, size_t layers, unsigned cuts, double alpha, double each)
{
    double idle = 0, starts = 0;
    for (size_t i = 0, waiting = 0; i < layers; i++) {
        waiting++;
        if (i + 1 < layers && !(cuts >> i & 1))
            continue;
        idle = fmax(idle, ready[i]) + alpha + each * (double)waiting;
        starts += alpha;
        waiting = 0;
    }
    return idle + starts;
}

/* Against all ways to cut. */
static void plans_end_first(void **unused)
{
    (void)unused;
    enum { LAYERS = 8, TRIALS = 300, ELEMENTS = 100, WIDTH = 4 };
    uint64_t state = test_seed();
    for (int t = 0; t < TRIALS; t++) {
        struct step steps[LAYERS];
        double seconds[LAYERS], ready[LAYERS], now = 0, least = HUGE_VAL;
        const double alpha = random_unit(&state), beta = 0.01 * random_unit(&state);
        for (size_t i = 0; i < LAYERS; i++) {
            seconds[LAYERS - 1 - i] = random_unit(&state) * (i % 3 ? 1 : 4);
            steps[LAYERS - 1 - i] = (struct step){.filled = (i + 1) * ELEMENTS};
            ready[i] = now += seconds[LAYERS - 1 - i];
        }
        const struct plan plan = {.steps = steps, .count = LAYERS};
        struct buckets buckets;
        assert_int_equal(
            buckets_planned(&plan, seconds, WIDTH, (struct bucket_costs){alpha, beta}, &buckets),
            ALNICO_SUCCESS);
        unsigned planned = 0;
        for (size_t i = 0; i < buckets.count; i++)
            planned |= 1u << (buckets.ends[i] / ELEMENTS - 1);
        buckets_free(&buckets);
        const double each = beta * ELEMENTS * WIDTH;
        for (unsigned cuts = 0; cuts < 1u << (LAYERS - 1); cuts++)
            least = fmin(least, cost_of(ready, LAYERS, cuts, alpha, each));
        const double found = cost_of(ready, LAYERS, planned, alpha, each);
        if (fabs(found - least) > 1e-9)
            fail_msg("%g, of all ways %g", found, least);
    }
}

/* Nothing to send. */
static void plans_without_parameters_have_no_buckets(void **unused)
{
    (void)unused;
    struct step steps[2] = {{.filled = 0}, {.filled = 0}};
    const struct plan plan = {.steps = steps, .count = 2};
    struct buckets buckets;
    assert_int_equal(
        buckets_planned(&plan, (double[]){1, 2}, 4, (struct bucket_costs){1, 1}, &buckets),
        ALNICO_SUCCESS);
    expect(&buckets, NULL, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_kept_but_for_the_last),
        cmocka_unit_test(numbers_are_kept_where_there_are_enough),
        cmocka_unit_test(plans_weigh_waiting_against_starting),
        cmocka_unit_test(plans_end_first),
        cmocka_unit_test(plans_without_parameters_have_no_buckets),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
