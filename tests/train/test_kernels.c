/* The kernels: the naive ones against finite differences of the loss, oneDNN against the naive
 * ones, on every operation and fused run, with odd shapes, poisoned memory and missing images. */
#include "tests/train/cases.h"

#include "train/models/models.h"
#include "train/trainer/replica.h"

#include <float.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed;

/* What the cases are run with. */
static struct kernels_options case_options = {.threads = 1};

static void poison(void *at, size_t bytes)
{
    memset(at, 0xff, bytes);
}

/* A replica with the random parameters and the random batch of a draw; the last `absent` images are
 * missing. */
static struct replica *replica_draw(const struct network *network, const struct kernels_ops *ops,
                                    size_t batch, size_t absent, uint64_t draw)
{
    const size_t classes = network->tensors[network->count].channels;
    const size_t each = tensor_elements(&network->tensors[0]);
    uint64_t state = draw;
    struct replica *replica;
    const struct replica_setup setup = {.kernels = ops,
                                        .batch = batch,
                                        .seed = draw,
                                        .options = case_options,
                                        .gradient_type = ALNICO_FLOAT32};
    if (replica_create(network, &setup, &replica))
        fail_msg("%s", alnico_error_detail());
    for (size_t i = 0; i < network->parameters; i++)
        replica->arenas.parameters[i] += 0.2f * (float)(random_unit(&state) - 0.5);
    for (size_t i = 0; case_options.frozen && i < network->statistics; i++)
        replica->arenas.statistics[i] += (float)(random_unit(&state) - 0.5);
    float *images = malloc(batch * each * sizeof *images);
    int32_t *labels = malloc(batch * sizeof *labels);
    random_fill(images, batch * each, &state);
    for (size_t i = 0; i < batch; i++)
        labels[i] = (int32_t)(random_next(&state) % classes);
    assert_int_equal(replica_load(replica, images, labels, batch - absent), ALNICO_SUCCESS);
    free(images);
    free(labels);
    return replica;
}

static struct replica *replica_make(const struct network *network, const struct kernels_ops *ops,
                                    size_t batch, size_t absent)
{
    return replica_draw(network, ops, batch, absent, seed);
}

static void replica_pass(struct replica *replica)
{
    poison(replica->arenas.activations, replica->plan->bytes);
    poison(replica->arenas.gradients, replica->network->parameters * sizeof(float));
    if (replica_forward(replica, true) || replica_backward(replica, NULL, NULL))
        fail_msg("%s", alnico_error_detail());
}

/* The mean loss with one parameter moved; *by becomes how far it really moved. */
static double loss_at(struct replica *replica, size_t parameter, double *by)
{
    float *p = &replica->arenas.parameters[parameter], before = *p;
    *p = before + (float)*by;
    *by = (double)*p - before;
    const double sum = replica->arenas.score[SCORE_LOSS];
    assert_int_equal(replica_forward(replica, true), ALNICO_SUCCESS);
    *p = before;
    return (replica->arenas.score[SCORE_LOSS] - sum) / (double)replica->plan->batch;
}

/* The slope over half the distance. */
static double slope_within(struct replica *replica, size_t parameter)
{
    double right = 1e-3, left = -1e-3;
    const double up = loss_at(replica, parameter, &right);
    const double down = loss_at(replica, parameter, &left);
    return (up - down) / (right - left);
}

/* Compares one parameter's gradient; false if the loss has a kink there (a relu or a maximum
 * turns), which shows in slopes that differ to the left and to the right, or, with a kink on either
 * side, with the distance. */
static bool gradient_matches(struct replica *replica, size_t parameter, const char *name)
{
    const double gradient = ((const float *)replica->arenas.gradients)[parameter];
    const double tolerance = 1e-3 + 1e-2 * fabs(gradient);
    double right = 2e-3, left = -2e-3, none = 0;
    const double here = loss_at(replica, parameter, &none);
    const double up = loss_at(replica, parameter, &right) - here;
    const double down = loss_at(replica, parameter, &left) - here;
    const double slope = (up - down) / (right - left), close = slope_within(replica, parameter);
    if (fabs(up / right - down / left) > tolerance || fabs(slope - close) > tolerance / 2)
        return false;
    if (!(fabs(gradient - slope) <= tolerance))
        fail_msg("%s: parameter %zu has gradient %g, finite differences say %g", name, parameter,
                 gradient, slope);
    return true;
}

/* The ways of training that the kernels have to know. */
static const struct kernels_options ways[] = {
    {.threads = 1}, {.threads = 1, .smoothing = 0.2f}, {.threads = 1, .frozen = true}};
enum { WAYS = sizeof ways / sizeof *ways };

/* True if at least three quarters of the parameters that were looked at could be compared. */
static bool draw_matches(const struct network *network, const struct network_case *c, size_t absent,
                         uint64_t draw)
{
    struct replica *replica = replica_draw(network, &kernels_naive, c->batch, absent, draw);
    uint64_t state = draw;
    size_t tried = 0, kinks = 0;
    replica_pass(replica);
    const size_t stride = network->parameters / 60 + 1;
    for (size_t p = random_next(&state) % stride; p < network->parameters; p += stride, tried++)
        kinks += !gradient_matches(replica, p, c->name);
    replica_destroy(replica);
    return kinks * 4 <= tried + 4;
}

/* A draw of a small network with many of its relus near 0 says little: there the next one
 * decides. */
static void check_finite_differences(void)
{
    enum { DRAWS = 5 };
    for (size_t i = 0; i < NETWORK_CASES; i++) {
        struct network *network = case_network(&network_cases[i]);
        uint64_t draw = 0;
        while (draw < DRAWS && !draw_matches(network, &network_cases[i], i % 2, seed + draw))
            draw++;
        if (draw == DRAWS)
            fail_msg("%s: parameters stand at kinks in every draw", network_cases[i].name);
        network_destroy(network);
    }
}

static void gradients_match_finite_differences(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < WAYS; i++) {
        case_options = ways[i];
        check_finite_differences();
    }
    case_options = ways[0];
}

/* Fails unless all elements agree to `tolerance` of the largest, or of a twentieth: the gradients
 * of a loss near 0 are what rounding leaves of differences of probabilities. */
static void compare(const char *name, const char *what, const float *got, const float *expected,
                    size_t count, double tolerance)
{
    double largest = 0.05;
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs(expected[i]));
    for (size_t i = 0; i < count; i++)
        if (!(fabs((double)got[i] - expected[i]) <= tolerance * largest))
            fail_msg("%s: %s %zu is %.9g, expected %.9g", name, what, i, got[i], expected[i]);
}

static const float *output(const struct replica *replica)
{
    return setup_value(&replica->setup, replica->network->count);
}

static void compare_replicas(const char *name, struct replica *fast, struct replica *oracle,
                             double tolerance)
{
    const struct network *network = fast->network;
    const size_t outputs = fast->plan->batch * network->tensors[network->count].channels;
    for (int round = 0; round < 2; round++) {
        replica_pass(fast);
        replica_pass(oracle);
        compare(name, "output", output(fast), output(oracle), outputs, tolerance);
        compare(name, "gradient", fast->arenas.gradients, oracle->arenas.gradients,
                network->parameters, tolerance);
        compare(name, "statistic", fast->arenas.statistics, oracle->arenas.statistics,
                network->statistics, tolerance);
    }
    poison(fast->arenas.activations, fast->plan->bytes);
    assert_int_equal(replica_forward(fast, false), ALNICO_SUCCESS);
    assert_int_equal(replica_forward(oracle, false), ALNICO_SUCCESS);
    compare(name, "output in inference", output(fast), output(oracle), outputs, tolerance);
}

static void check_onednn(void)
{
    for (size_t i = 0; i < NETWORK_CASES; i++) {
        const struct network_case *c = &network_cases[i];
        struct network *network = case_network(c);
        for (size_t absent = 0; absent < 2; absent++) {
            struct replica *fast = replica_make(network, &kernels_onednn, c->batch, absent);
            struct replica *oracle = replica_make(network, &kernels_naive, c->batch, absent);
            if (c->runs)
                assert_int_equal(fast->plan->count, c->runs);
            compare_replicas(c->name, fast, oracle, 2e-4);
            replica_destroy(fast);
            replica_destroy(oracle);
        }
        network_destroy(network);
    }
}

static void onednn_matches_naive(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < WAYS; i++) {
        case_options = ways[i];
        check_onednn();
    }
    case_options = ways[0];
}

/* Length of the difference over length of what is expected. */
static double distance(const float *got, const float *expected, size_t count)
{
    double apart = 0, length = 0;
    for (size_t i = 0; i < count; i++) {
        apart += pow((double)got[i] - expected[i], 2);
        length += pow(expected[i], 2);
    }
    return sqrt(apart / length);
}

/* In a deep network some inputs of a relu are so close to 0 that rounding decides on their
 * gradient: single gradients may differ, all together hardly. */
static void compare_model(const char *name, struct replica *fast, struct replica *oracle)
{
    const struct network *network = fast->network;
    const size_t outputs = fast->plan->batch * network->tensors[network->count].channels;
    replica_pass(fast);
    replica_pass(oracle);
    compare(name, "output", output(fast), output(oracle), outputs, 1e-3);
    compare(name, "statistic", fast->arenas.statistics, oracle->arenas.statistics,
            network->statistics, 1e-3);
    const double apart =
        distance(fast->arenas.gradients, oracle->arenas.gradients, network->parameters);
    if (!(apart < 0.05))
        fail_msg("%s: the gradients are apart by %g of their length", name, apart);
    assert_int_equal(replica_forward(fast, false), ALNICO_SUCCESS);
    assert_int_equal(replica_forward(oracle, false), ALNICO_SUCCESS);
    compare(name, "output in inference", output(fast), output(oracle), outputs, 1e-3);
}

static void models_match_naive(void **unused)
{
    (void)unused;
    const size_t shapes[][3] = {{28, 28, 1}, {18, 21, 3}};
    const struct model *const small[] = {&model_resnet20, &model_cnn, &model_mnist,
                                         &model_alexnet_cifar};
    for (size_t m = 0; m < sizeof small / sizeof *small; m++)
        for (size_t i = 0; i < 2; i++) {
            struct network *network;
            if (model_network(small[m], shapes[i][0], shapes[i][1], shapes[i][2], 10, &network))
                fail_msg("%s", alnico_error_detail());
            struct replica *fast = replica_make(network, &kernels_onednn, 4 - i, 0);
            struct replica *oracle = replica_make(network, &kernels_naive, 4 - i, 0);
            compare_model(small[m]->name, fast, oracle);
            assert_true(fast->ops->library_seconds(fast->kernels) > 0);
            replica_destroy(fast);
            replica_destroy(oracle);
            network_destroy(network);
        }
}

/* Gradients of a partial batch are those of its images, scaled by their share of the batch. */
static void absent_images_have_no_part(void **unused)
{
    (void)unused;
    const struct network_case *c = &network_cases[3];
    struct network *network = case_network(c);
    struct replica *whole = replica_make(network, &kernels_naive, c->batch - 1, 0);
    struct replica *part = replica_make(network, &kernels_naive, c->batch, 0);
    const size_t share = c->batch - 1;
    assert_int_equal(replica_load(part, whole->arenas.images, whole->arenas.labels, share),
                     ALNICO_SUCCESS);
    memcpy(part->arenas.parameters, whole->arenas.parameters, network->parameters * sizeof(float));
    replica_pass(whole);
    replica_pass(part);
    for (size_t i = 0; i < network->parameters; i++)
        ((float *)part->arenas.gradients)[i] *= (float)c->batch / (float)share;
    compare(c->name, "gradient", part->arenas.gradients, whole->arenas.gradients,
            network->parameters, 1e-5);
    assert_int_equal(replica_outcome(part).count, share);
    assert_true(fabs(replica_outcome(part).loss - replica_outcome(whole).loss) < 1e-5);
    replica_destroy(whole);
    replica_destroy(part);
    network_destroy(network);
}

static void bad_batches_are_refused(void **unused)
{
    (void)unused;
    const struct network_case *c = &network_cases[0];
    struct network *network = case_network(c);
    struct replica *replica = replica_make(network, &kernels_onednn, c->batch, 0);
    const float images[64] = {0};
    int32_t labels[8] = {0, 0, 7, 0, 0, 0, 0, 0};
    assert_int_equal(replica_load(replica, images, labels, 3), ALNICO_ERROR_ARGUMENT);
    assert_non_null(strstr(alnico_error_detail(), "label 7"));
    labels[2] = -1;
    assert_int_equal(replica_load(replica, images, labels, 3), ALNICO_ERROR_ARGUMENT);
    labels[0] = 7;
    assert_int_equal(replica_load(replica, images, labels, 1), ALNICO_ERROR_ARGUMENT);
    assert_int_equal(replica_load(replica, images, labels, 6), ALNICO_ERROR_ARGUMENT);
    assert_int_equal(replica_load(replica, NULL, NULL, 0), ALNICO_SUCCESS);
    assert_int_equal(replica_forward(replica, false), ALNICO_SUCCESS);
    assert_int_equal(replica_outcome(replica).count, 0);
    replica_destroy(replica);
    struct replica_setup setup = {.kernels = &kernels_naive, .gradient_type = ALNICO_FLOAT32};
    assert_int_equal(replica_create(network, &setup, &replica), ALNICO_ERROR_ARGUMENT);
    assert_null(replica);
    setup.batch = SIZE_MAX / 8;
    assert_int_equal(replica_create(network, &setup, &replica), ALNICO_ERROR_ARGUMENT);
    setup.batch = 4;
    setup.options.precision = PRECISION_BF16;
    assert_int_equal(replica_create(network, &setup, &replica), ALNICO_ERROR_UNSUPPORTED);
    assert_non_null(strstr(alnico_error_detail(), "naive kernels do not compute in bf16"));
    network_destroy(network);
}

static void old_gpus_are_refused(void **unused)
{
    (void)unused;
    const enum precision all[] = {PRECISION_FP32, PRECISION_BF16, PRECISION_FP16};
    const int capabilities[][2] = {{6, 1}, {7, 5}, {8, 0}, {9, 0}};
    const bool fine[][3] = {
        {true, false, false}, {true, false, true}, {true, true, true}, {true, true, true}};
    for (size_t i = 0; i < 4; i++)
        for (size_t p = 0; p < 3; p++)
            assert_int_equal(kernels_capability(all[p], capabilities[i][0], capabilities[i][1]),
                             fine[i][p] ? ALNICO_SUCCESS : ALNICO_ERROR_UNSUPPORTED);
    kernels_capability(PRECISION_BF16, 7, 5);
    assert_string_equal(alnico_error_detail(),
                        "the GPU is of compute capability 7.5, and bf16 needs 8.0");
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_match_finite_differences),
        cmocka_unit_test(onednn_matches_naive),
        cmocka_unit_test(models_match_naive),
        cmocka_unit_test(absent_images_have_no_part),
        cmocka_unit_test(bad_batches_are_refused),
        cmocka_unit_test(old_gpus_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
