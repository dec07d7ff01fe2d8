/* The optimizer against values computed by hand, its schedule, its options, and the parameters'
 * hash. */
#include "tests/train/cases.h"

#include "train/trainer/trainer.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static const struct network_case one_of_each = {
    "one of each",
    1,
    5,
    5,
    2,
    {CONVOLUTION("a", "input", 3, 3, 1, 1, true), NORM("n", "a"), DENSE("d", "n", 4), LOSS("d")},
    0};

static void near(double value, double expected)
{
    if (!(fabs(value - expected) <= 2e-7))
        fail_msg("%.9g, expected %.9g", value, expected);
}

/* Parameter 1, gradient 0.5 twice, rate 0.1, momentum 0.9; the second time at rate 0.05. */
static void steps_are_as_by_hand(void **unused)
{
    (void)unused;
    struct network *network = case_network(&one_of_each);
    const struct optimizer_options options = {.rate = 0.1, .momentum = 0.9, .decay = 0.01};
    float parameters[512], gradients[512], velocity[512] = {0};
    assert_true(network->parameters < 512);
    for (size_t i = 0; i < 512; i++) {
        parameters[i] = 1;
        gradients[i] = 0.5f;
    }
    assert_true(
        optimizer_sgd.step(network, &options, 0.1f, parameters, (float *[]){velocity}, gradients));
    assert_true(
        optimizer_sgd.step(network, &options, 0.05f, parameters, (float *[]){velocity}, gradients));
    for (size_t i = 0; i < network->count; i++) {
        const struct node *node = &network->nodes[i];
        const bool norm = node->operation.kind == OPERATION_BATCH_NORM;
        /* decayed: v 0.51, p 0.949; v 0.459 + 0.50949, p 0.949 - 0.0484245 */
        for (size_t k = 0; k < node->weight.count; k++)
            near(parameters[node->weight.offset + k], norm ? 0.9025 : 0.9005755);
        /* plain: v 0.5, p 0.95; v 0.95, p 0.9025 */
        for (size_t k = 0; k < node->bias.count; k++)
            near(parameters[node->bias.offset + k], 0.9025);
    }
    for (size_t i = network->parameters; i < 512; i++)
        assert_true(parameters[i] == 1);
    network_destroy(network);
}

static void rates_rise_and_drop(void **unused)
{
    (void)unused;
    const struct optimizer_options options = {.rate = 0.2, .warmup = 0.1, .drops = {0.5, 0.75, 1}};
    const double rows[][2] = {{0, 0},       {0.05, 0.1},  {0.1, 0.2},    {0.3, 0.2},  {0.5, 0.2},
                              {0.51, 0.02}, {0.75, 0.02}, {0.76, 0.002}, {1.0, 0.002}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        near(optimizer_rate(&options, rows[i][0]), rows[i][1]);
    const struct optimizer_options constant = {.rate = 0.2, .drops = {1, 1, 1}};
    near(optimizer_rate(&constant, 0), 0.2);
    near(optimizer_rate(&constant, 1), 0.2);
    near(optimizer_defaults(128).rate, 0.1);
    near(optimizer_defaults(512).rate, 0.4);
}

/* After the warm-up, at 0.2 of the run, half a cosine or a parabola down to nothing. */
static void rates_fall_smoothly(void **unused)
{
    (void)unused;
    struct optimizer_options options = {.rate = 2, .warmup = 0.2, .schedule = SCHEDULE_COSINE};
    const double rows[][3] = {
        {0, 0, 0}, {0.1, 1, 1}, {0.2, 2, 2}, {0.6, 1, 0.5}, {0.4, 1.7071067811865475, 1.125},
        {1, 0, 0}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        options.schedule = SCHEDULE_COSINE;
        near(optimizer_rate(&options, rows[i][0]), rows[i][1]);
        options.schedule = SCHEDULE_POLYNOMIAL;
        near(optimizer_rate(&options, rows[i][0]), rows[i][2]);
    }
}

/* All parameters 1, all slopes 0.5: each layer's slope, decay included, is scaled by trust * |w| /
 * (|g| + decay * |w|) = 0.02 / (0.5 + 0.25). */
static void layers_have_their_own_rates(void **unused)
{
    (void)unused;
    struct network *network = case_network(&one_of_each);
    const struct optimizer_options options = {.decay = 0.25, .trust = 0.02};
    float parameters[512], gradients[512], velocity[512] = {0};
    for (size_t i = 0; i < 512; i++) {
        parameters[i] = 1;
        gradients[i] = 0.5f;
    }
    optimizer_sgd.step(network, &options, 0.5f, parameters, (float *[]){velocity}, gradients);
    for (size_t i = 0; i < network->count; i++) {
        const struct node *node = &network->nodes[i];
        const bool norm = node->operation.kind == OPERATION_BATCH_NORM;
        for (size_t k = 0; k < node->weight.count; k++)
            near(parameters[node->weight.offset + k], norm ? 0.75 : 1 - 0.5 * 0.02);
        for (size_t k = 0; k < node->bias.count; k++)
            near(parameters[node->bias.offset + k], 0.75);
    }
    network_destroy(network);
}

/* One gradient of each parameter in turn: too large, and none. */
static void what_is_not_a_number_is_told(void **unused)
{
    (void)unused;
    struct network *network = case_network(&one_of_each);
    const struct optimizer_options options = {.momentum = 0.9};
    for (size_t i = 0; i < network->parameters; i++) {
        float parameters[512] = {0}, gradients[512] = {0}, velocity[512] = {0};
        gradients[i] = i % 2 ? NAN : 1e38f;
        assert_false(optimizer_sgd.step(network, &options, 1e3f, parameters, (float *[]){velocity},
                                        gradients));
    }
    network_destroy(network);
}

static void bad_options_are_refused(void **unused)
{
    (void)unused;
    const struct {
        struct optimizer_options options;
        const char *detail;
    } rows[] = {
        {{.rate = -1}, "learning rate -1"}, {{.rate = NAN}, "learning rate"},
        {{.momentum = 1}, "momentum 1"},    {{.decay = -0.5}, "weight decay -0.5"},
        {{.warmup = 1.5}, "warm-up 1.5"},   {{.drops = {0.5, -0.1}}, "drop at -0.1"},
        {{.trust = -1}, "LARS trust -1"},   {{.schedule = SCHEDULES}, "schedule 3"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(optimizer_check(&rows[i].options), ALNICO_ERROR_ARGUMENT);
        if (!strstr(alnico_error_detail(), rows[i].detail))
            fail_msg("'%s' does not say '%s'", alnico_error_detail(), rows[i].detail);
    }
}

/* The published test vectors of FNV-1a. */
static void hash_is_fnv1a(void **unused)
{
    (void)unused;
    assert_true(trainer_hash("", 0) == UINT64_C(0xcbf29ce484222325));
    assert_true(trainer_hash("a", 1) == UINT64_C(0xaf63dc4c8601ec8c));
    assert_true(trainer_hash("foobar", 6) == UINT64_C(0x85944171f73967e8));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_as_by_hand),
        cmocka_unit_test(rates_rise_and_drop),
        cmocka_unit_test(rates_fall_smoothly),
        cmocka_unit_test(layers_have_their_own_rates),
        cmocka_unit_test(what_is_not_a_number_is_told),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(hash_is_fnv1a),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
