/* The optimizers against values computed by hand, their formulas in float64 and PyTorch's numbers;
 * clipping and layer-wise rates; the same bits on any number of threads; schedules, options, and
 * the parameters' hash. Argument: the file of PyTorch's numbers. */
#include "tests/train/cases.h"
#include "tests/train/formulas.h"

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
    struct optimizer_update update = {network,
                                      &options,
                                      0.1f,
                                      .parameters = parameters,
                                      .states = (float *[]){velocity},
                                      .gradients = gradients};
    assert_true(optimizer_update(&update));
    update.rate = 0.05f;
    assert_true(optimizer_update(&update));
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

/* The arenas cut anywhere: the same bits as in one piece. */
static void parts_are_as_the_whole(void **unused)
{
    (void)unused;
    struct network *network = case_network(&one_of_each);
    const size_t count = network->parameters;
    uint64_t state = test_seed();
    for (int kind = 0; kind < OPTIMIZERS; kind++) {
        const struct optimizer_options options = optimizer_defaults((enum optimizer_kind)kind, 128);
        float gradients[512], whole[3][512] = {0}, parts[3][512];
        random_fill(whole[0], count, &state);
        random_fill(gradients, count, &state);
        memcpy(parts, whole, sizeof parts);
        struct optimizer_update update = {network,
                                          &options,
                                          0.1f,
                                          .updates = 3,
                                          .parameters = whole[0],
                                          .states = (float *[]){whole[1], whole[2]},
                                          .gradients = gradients};
        assert_true(optimizer_update(&update));
        struct parameter only = {0};
        for (size_t at = 0; at < count; at += only.count) {
            only =
                (struct parameter){.offset = at, .count = random_next(&state) % (count - at) + 1};
            update.parameters = parts[0] + at;
            update.states = (float *[]){parts[1] + at, parts[2] + at};
            update.gradients = gradients + at;
            update.only = &only;
            assert_true(optimizer_update(&update));
        }
        assert_memory_equal(parts, whole, sizeof parts);
    }
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
    near(optimizer_defaults(OPTIMIZER_SGD, 128).rate, 0.1);
    near(optimizer_defaults(OPTIMIZER_SGD, 512).rate, 0.4);
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
    const struct optimizer_update update = {network,
                                            &options,
                                            0.5f,
                                            .parameters = parameters,
                                            .states = (float *[]){velocity},
                                            .gradients = gradients};
    assert_true(optimizer_update(&update));
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

/* ---- Against the formulas in float64 ---- */

/* Weights with decay, and biases without. */
static const struct network_case dense = {"dense", 1, 1, 1, 6, {DENSE("d", "input", 4), LOSS("d")},
                                          0};

/* Large enough for several threads, with parts that are no multiples of a cache line. */
static const struct network_case large = {
    "large", 1,   1,
    1,       301, {DENSE("a", "input", 151), NORM("n", "a"), DENSE("b", "n", 263), LOSS("b")},
    0};

/* One replica's arenas for an optimizer. */
struct run {
    struct network *network;
    struct optimizer_options options;
    struct optimizer_update update;
    float *parameters, *gradients, *states[OPTIMIZER_STATES];
};

static float *floats(const struct network *network)
{
    float *out = calloc(network->parameters, sizeof *out);
    assert_non_null(out);
    return out;
}

static struct run *run_open(const struct network_case *c, struct optimizer_options options)
{
    struct run *run = calloc(1, sizeof *run);
    assert_non_null(run);
    run->network = case_network(c);
    run->options = options;
    run->parameters = floats(run->network);
    run->gradients = floats(run->network);
    for (size_t i = 0; i < optimizers_all[options.kind]->states; i++)
        run->states[i] = floats(run->network);
    run->update =
        (struct optimizer_update){run->network, &run->options, .parameters = run->parameters,
                                  .states = run->states, .gradients = run->gradients};
    return run;
}

static void run_close(struct run *run)
{
    network_destroy(run->network);
    free(run->parameters);
    free(run->gradients);
    free(run->states[0]);
    free(run->states[1]);
    free(run);
}

static void run_step(struct run *run, double rate)
{
    run->update.rate = (float)rate;
    run->update.updates++;
    assert_true(optimizer_update(&run->update));
}

static double length(const float *x, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)x[i] * x[i];
    return sqrt(sum);
}

/* A factor of each parameter's weight decay: whether it is a weight. */
static void weights_mark(const struct network *network, double *out)
{
    for (size_t i = 0; i < network->count; i++)
        for (size_t k = 0; k < network->nodes[i].weight.count; k++)
            out[network->nodes[i].weight.offset + k] =
                network->nodes[i].operation.kind != OPERATION_BATCH_NORM;
}

/* Gradients of different lengths in step t. They are above what weight decay adds: rules that
 * divide by a slope's own size make much of what is left of two numbers that are nearly equal.
 * Without weight decay some are zero. */
static void gradients_fill(struct run *run, int t, uint64_t *state)
{
    const size_t count = run->network->parameters;
    random_fill(run->gradients, count, state);
    for (size_t i = 0; i < count; i++) {
        const float least = 0.05f * (float)((i % 7 + 1) * (size_t)(t % 5 + 1));
        run->gradients[i] = copysignf(least, run->gradients[i]) * (1 + fabsf(run->gradients[i]));
        if (i % 11 == 0 && run->options.decay <= 0)
            run->gradients[i] = 0;
    }
}

/* Every number is within 1e-6 of the largest one's. */
static void near_all(const struct optimizer_options *options, const char *what, const float *got,
                     const double *expected, size_t count)
{
    double most = 0;
    for (size_t i = 0; i < count; i++)
        most = fmax(most, fabs(expected[i]));
    for (size_t i = 0; i < count; i++)
        if (!(fabs(got[i] - expected[i]) <= 1e-6 * most))
            fail_msg("%s, decay %g, clip %g: %s %zu is %.9g, expected %.9g",
                     optimizers_all[options->kind]->name, options->decay, options->clip, what, i,
                     (double)got[i], expected[i]);
}

/* Twenty steps at changing rates, with gradients of changing lengths. */
static void follow(struct optimizer_options options, uint64_t *state)
{
    struct run *run = run_open(&large, options);
    const size_t count = run->network->parameters;
    double *expected = calloc(4 * count, sizeof *expected);
    double *first = expected + count, *second = first + count, *weights = second + count;
    weights_mark(run->network, weights);
    random_fill(run->parameters, count, state);
    for (size_t i = 0; i < count; i++)
        expected[i] = run->parameters[i];
    for (int t = 1; t <= 20; t++) {
        const double rate = (float)(options.rate * (1.5 - t / 20.0));
        gradients_fill(run, t, state);
        const double norm = length(run->gradients, count);
        const double clip = options.clip > 0 ? fmin(options.clip / (norm + 1e-6), 1) : 1;
        for (size_t i = 0; i < count; i++)
            optimizer_formula(&options, rate, t, clip * run->gradients[i],
                              weights[i] * options.decay, &expected[i], &first[i], &second[i]);
        run_step(run, rate);
    }
    near_all(&options, "parameter", run->parameters, expected, count);
    for (size_t i = 0; i < optimizers_all[options.kind]->states; i++)
        near_all(&options, "state", run->states[i], i ? second : first, count);
    free(expected);
    run_close(run);
}

static void steps_follow_the_formulas(void **unused)
{
    (void)unused;
    uint64_t state = test_seed();
    for (int kind = 0; kind < OPTIMIZERS; kind++)
        for (int way = 0; way < 8; way++) {
            struct optimizer_options options = optimizer_defaults(kind, 32);
            options.decay = way & 1 ? 0.01 : 0;
            options.clip = way & 2 ? 200 : 0; /* about the length of half of the gradients */
            if (way & 4 && options.epsilon > 0)
                options.epsilon = 0.01; /* its place shows */
            follow(options, &state);
        }
}

/* ---- Clipping ---- */

/* Two gradients of 3 and 4 units, the others 0: the length is 5 units. */
static void long_gradients_are_clipped(void **unused)
{
    (void)unused;
    const struct {
        double clip, unit, left;
    } rows[] = {{0, 1, 1},      {2.5, 1, 2.5 / 5.000001}, {5, 1, 5 / 5.000001},
                {6, 1, 1},      {2.5e-6, 1e-6, 2.5 / 6},  {5e-6, 1e-6, 5.0 / 6},
                {7e-6, 1e-6, 1}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct run *run =
            run_open(&dense, (struct optimizer_options){.rate = 1, .clip = rows[i].clip});
        const size_t last = run->network->parameters - 1;
        run->gradients[1] = (float)(3 * rows[i].unit);
        run->gradients[last] = (float)(-4 * rows[i].unit);
        run_step(run, 1);
        assert_true(run->parameters[0] == 0);
        near(run->parameters[1] / -3 / rows[i].unit, rows[i].left);
        near(run->parameters[last] / 4 / rows[i].unit, rows[i].left);
        run_close(run);
    }
}

/* Weights of 1, gradients of 1, 28 of which are clipped to a length of 0.5; LARS then scales the
 * weights' slope by trust * |w| / (|clipped g| + decay * |w|). */
static void layers_see_clipped_gradients(void **unused)
{
    (void)unused;
    struct run *run =
        run_open(&dense, (struct optimizer_options){.decay = 0.1, .trust = 0.02, .clip = 0.5});
    const struct node *node = &run->network->nodes[0];
    const double g = 0.5 / (sqrt((double)run->network->parameters) + 1e-6);
    for (size_t i = 0; i < run->network->parameters; i++)
        run->parameters[i] = run->gradients[i] = 1;
    run_step(run, 1);
    for (size_t i = 0; i < node->weight.count; i++)
        near(run->parameters[node->weight.offset + i], 1 - 0.02 / (g + 0.1) * (g + 0.1));
    for (size_t i = 0; i < node->bias.count; i++)
        near(run->parameters[node->bias.offset + i], 1 - g);
    run_close(run);
}

/* ---- Threads ---- */

static struct run *run_with(struct optimizer_options options, int threads, uint64_t state)
{
    struct run *run = run_open(&large, options);
    run->update.threads = threads;
    random_fill(run->parameters, run->network->parameters, &state);
    for (int t = 0; t < 3; t++) {
        random_fill(run->gradients, run->network->parameters, &state);
        run_step(run, options.rate);
    }
    return run;
}

static void threads_make_the_same_bits(void **unused)
{
    (void)unused;
#ifdef __SANITIZE_THREAD__
    skip(); /* it does not see that OpenMP's threads wait for each other */
#endif
    const uint64_t seed = test_seed();
    for (int kind = 0; kind < OPTIMIZERS; kind++)
        for (int threads = 2; threads <= 5; threads++) {
            struct optimizer_options options = optimizer_defaults(kind, 32);
            options.clip = 20;
            options.trust = kind == OPTIMIZER_SGD ? 0.02 : 0;
            struct run *one = run_with(options, 1, seed), *many = run_with(options, threads, seed);
            const size_t bytes = one->network->parameters * sizeof(float);
            assert_memory_equal(many->parameters, one->parameters, bytes);
            for (size_t i = 0; i < optimizers_all[kind]->states; i++)
                assert_memory_equal(many->states[i], one->states[i], bytes);
            run_close(one);
            run_close(many);
        }
}

/* ---- PyTorch's numbers ---- */

static const char *pytorch;

/* As in reference/make_optimizers.py: exact in float32. */
static void numbers_fill(float *out, size_t count, size_t factor, size_t add, size_t modulus,
                         float unit)
{
    for (size_t i = 0; i < count; i++)
        out[i] = ((float)((i * factor + add) % modulus) - (float)(modulus / 2)) * unit;
}

static enum optimizer_kind kind_of(const char *name)
{
    int kind = 0;
    while (kind < OPTIMIZERS && strcmp(optimizers_all[kind]->name, name) != 0)
        kind++;
    assert_true(kind < OPTIMIZERS);
    return kind;
}

/* A case of the file: its options, then in each line a step and the parameters after it. */
static void pytorch_case(FILE *file, const char *name, struct optimizer_options options, int lines)
{
    struct run *run = run_open(&dense, options);
    const size_t count = run->network->parameters;
    numbers_fill(run->parameters, count, 37, 11, 101, 1.0f / 64);
    for (int done = 0, step = 0; lines > 0; lines--) {
        assert_int_equal(fscanf(file, "%d", &step), 1);
        for (; done < step; done++) {
            numbers_fill(run->gradients, count, 53, 29 * (size_t)(done + 1), 97, 1.0f / 128);
            run_step(run, options.rate);
        }
        double expected[64], most = 0;
        assert_true(count <= 64);
        for (size_t i = 0; i < count; i++) {
            assert_int_equal(fscanf(file, "%lf", &expected[i]), 1);
            most = fmax(most, fabs(expected[i]));
        }
        for (size_t i = 0; i < count; i++)
            if (!(fabs(run->parameters[i] - expected[i]) <= 1e-6 * most))
                fail_msg("%s, step %d: parameter %zu is %.9g, PyTorch's %.9g", name, step, i,
                         (double)run->parameters[i], expected[i]);
    }
    run_close(run);
}

static void steps_are_as_pytorch_s(void **unused)
{
    (void)unused;
    FILE *file = fopen(pytorch, "r");
    struct optimizer_options o = {0};
    char name[16];
    int lines, cases = 0;
    if (!file) {
        print_message("no %s\n", pytorch);
        skip();
    }
    fscanf(file, "#%*[^\n]");
    while (fscanf(file, " case %15s %lf %lf %lf %lf %lf %lf %lf %d", name, &o.rate, &o.momentum,
                  &o.beta1, &o.beta2, &o.epsilon, &o.decay, &o.clip, &lines) == 9) {
        o.kind = kind_of(name);
        pytorch_case(file, name, o, lines);
        cases++;
    }
    assert_true(feof(file) && cases >= 2 * OPTIMIZERS);
    fclose(file);
}

/* One gradient of each parameter in turn: too large, and none. */
static void what_is_not_a_number_is_told(void **unused)
{
    (void)unused;
    struct network *network = case_network(&one_of_each);
    for (int kind = 0; kind < OPTIMIZERS; kind++)
        for (size_t i = 0; i < network->parameters; i++) {
            const struct optimizer_options options = optimizer_defaults(kind, 1);
            float parameters[512] = {0}, gradients[512] = {0}, first[512] = {0}, second[512] = {0};
            const struct optimizer_update update = {network,
                                                    &options,
                                                    1e3f,
                                                    .updates = 1,
                                                    .parameters = parameters,
                                                    .states = (float *[]){first, second},
                                                    .gradients = gradients};
            gradients[i] = i % 2 || kind > OPTIMIZER_NAG ? NAN : 1e38f;
            assert_false(optimizer_update(&update));
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
        {{.rate = -1}, "learning rate -1"},
        {{.rate = NAN}, "learning rate"},
        {{.momentum = 1}, "momentum 1"},
        {{.decay = -0.5}, "weight decay -0.5"},
        {{.warmup = 1.5}, "warm-up 1.5"},
        {{.drops = {0.5, -0.1}}, "drop at -0.1"},
        {{.trust = -1}, "LARS trust -1"},
        {{.schedule = SCHEDULES}, "schedule 3"},
        {{.kind = OPTIMIZERS}, "kind 6, expected 0 to 5"},
        {{.clip = -1}, "clip norm -1"},
        {{.clip = INFINITY}, "clip norm inf"},
        {{.beta1 = 0.9}, "beta1 0.9, which sgd does not have"},
        {{.beta2 = 0.9}, "beta2 0.9, which sgd does not have"},
        {{.epsilon = 1e-8}, "epsilon 1e-08, which sgd does not have"},
        {{OPTIMIZER_NAG, .trust = 0.1}, "LARS trust 0.1, which nag does not have"},
        {{OPTIMIZER_ADAM, .momentum = 0.9}, "momentum 0.9, which adam does not have"},
        {{OPTIMIZER_ADAM, .beta1 = 1}, "beta1 1"},
        {{OPTIMIZER_ADAM, .beta2 = 1, .epsilon = 1e-8}, "beta2 1"},
        {{OPTIMIZER_RMSPROP, .beta1 = 0.9, .epsilon = 1e-8}, "beta1 0.9, which rmsprop does not"},
        {{OPTIMIZER_ADAGRAD, .beta2 = 0.9, .epsilon = 1e-8}, "beta2 0.9, which adagrad does not"},
        {{OPTIMIZER_ADADELTA, .beta2 = 0.9}, "epsilon 0, which adadelta divides by"},
        {{OPTIMIZER_ADAM, .epsilon = -1}, "epsilon -1"},
        {{OPTIMIZER_ADAM, .epsilon = NAN}, "epsilon"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(optimizer_check(&rows[i].options), ALNICO_ERROR_ARGUMENT);
        if (!strstr(alnico_error_detail(), rows[i].detail))
            fail_msg("'%s' does not say '%s'", alnico_error_detail(), rows[i].detail);
    }
}

static void defaults_are_accepted(void **unused)
{
    (void)unused;
    for (int kind = 0; kind < OPTIMIZERS; kind++) {
        const struct optimizer_options options = optimizer_defaults(kind, 256);
        assert_int_equal(optimizer_check(&options), ALNICO_SUCCESS);
        assert_int_equal(options.kind, kind);
        near(options.rate, kind <= OPTIMIZER_NAG ? 0.2 : optimizers_all[kind]->defaults.rate);
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

int main(int argc, char **argv)
{
    if (argc != 2)
        return 2;
    pytorch = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_as_by_hand),
        cmocka_unit_test(parts_are_as_the_whole),
        cmocka_unit_test(rates_rise_and_drop),
        cmocka_unit_test(rates_fall_smoothly),
        cmocka_unit_test(layers_have_their_own_rates),
        cmocka_unit_test(steps_follow_the_formulas),
        cmocka_unit_test(long_gradients_are_clipped),
        cmocka_unit_test(layers_see_clipped_gradients),
        cmocka_unit_test(threads_make_the_same_bits),
        cmocka_unit_test(steps_are_as_pytorch_s),
        cmocka_unit_test(what_is_not_a_number_is_told),
        cmocka_unit_test(bad_options_are_refused),
        cmocka_unit_test(defaults_are_accepted),
        cmocka_unit_test(hash_is_fnv1a),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
