/* The kernels: the naive ones against finite differences of the loss, oneDNN against the naive
 * ones, on every operation and fused run, with odd shapes, poisoned memory and missing images. */
#include "tests/train/cases.h"

#include "train/models/models.h"
#include "train/replica/replica.h"

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
    random_fill(images, batch * each, &state);
    int32_t *labels = random_labels(network, batch, &state);
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

/* What the losses from a node on come to, by their values: of each its terms' mean over all labels,
 * times its weight. Written apart from the layers. */
static double loss_from(const struct replica *replica, size_t first)
{
    const struct network *network = replica->network;
    const size_t labels = replica->plan->batch * network->labels;
    const double smoothing = (double)case_options.smoothing;
    double sum = 0;
    for (size_t i = first; i < network->count; i++) {
        const struct operation *operation = &network->nodes[i].operation;
        const bool squared = operation->kind == OPERATION_SQUARED_ERROR;
        const size_t channels = network_output(network, i)->channels;
        const float *y = setup_value(&replica->setup, i + 1);
        if (!squared && operation->kind != OPERATION_CROSS_ENTROPY)
            continue;
        const double weight = operation->loss_weight > 0 ? operation->loss_weight : 1;
        for (size_t k = 0; k < labels * channels; k++) {
            const int32_t label = replica->arenas.labels[k / channels];
            const double hot = (size_t)label == k % channels, all = (double)channels;
            const double away = y[k] - (channels == 1 ? label : hot);
            const double term =
                squared ? away * away / all : -y[k] * ((1 - smoothing) * hot + smoothing / all);
            sum += label < 0 ? 0 : weight * term;
        }
    }
    return sum / (double)labels;
}

/* The loss with one parameter moved; *by becomes how far it really moved. */
static double loss_at(struct replica *replica, size_t parameter, double *by)
{
    float *p = &replica->arenas.parameters[parameter], before = *p;
    *p = before + (float)*by;
    *by = (double)*p - before;
    assert_int_equal(replica_forward(replica, true), ALNICO_SUCCESS);
    *p = before;
    return loss_from(replica, 0);
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

/* Both have run the same passes. */
static void compare_scores(const char *name, const struct replica *fast,
                           const struct replica *oracle)
{
    const double *got = fast->arenas.score, *expected = oracle->arenas.score;
    if (!(fabs(got[SCORE_LOSS] - expected[SCORE_LOSS]) <=
          1e-3 * (1 + fabs(expected[SCORE_LOSS]))) ||
        got[SCORE_TERMS] != expected[SCORE_TERMS])
        fail_msg("%s: the score is %g of %g, expected %g of %g", name, got[SCORE_LOSS],
                 got[SCORE_TERMS], expected[SCORE_LOSS], expected[SCORE_TERMS]);
}

static void compare_replicas(const char *name, struct replica *fast, struct replica *oracle,
                             double tolerance)
{
    const struct network *network = fast->network;
    const size_t outputs = fast->plan->batch * tensor_elements(&network->tensors[network->count]);
    for (int round = 0; round < 2; round++) {
        replica_pass(fast);
        replica_pass(oracle);
        compare(name, "output", output(fast), output(oracle), outputs, tolerance);
        compare(name, "gradient", fast->arenas.gradients, oracle->arenas.gradients,
                network->parameters, tolerance);
        compare(name, "statistic", fast->arenas.statistics, oracle->arenas.statistics,
                network->statistics, tolerance);
    }
    compare_scores(name, fast, oracle);
    poison(fast->arenas.activations, fast->plan->bytes);
    assert_int_equal(replica_forward(fast, false), ALNICO_SUCCESS);
    assert_int_equal(replica_forward(oracle, false), ALNICO_SUCCESS);
    compare(name, "output in inference", output(fast), output(oracle), outputs, tolerance);
}

static void check_onednn(const struct network_case *c)
{
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

static void onednn_matches_naive(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < WAYS; i++) {
        case_options = ways[i];
        for (size_t k = 0; k < NETWORK_CASES; k++)
            check_onednn(&network_cases[k]);
    }
    case_options = ways[0];
}

/* Products that OpenBLAS makes where it is there: of few images none, of some the gradients, of many
 * all. The gradients of b and c meet. */
static void large_dense_layers_match_naive(void **unused)
{
    (void)unused;
    struct network_case c = {"large dense layers",
                             0,
                             16,
                             16,
                             1,
                             {DENSE("a", "input", 257), RELU("r", "a"), DENSE("b", "r", 258),
                              DENSE("c", "r", 258), ADD("s", "b", "c"), DENSE("d", "s", 4),
                              LOSS("d")},
                             0};
    const size_t images[] = {7, 26, 50};
    for (size_t i = 0; i < WAYS; i++) {
        case_options = ways[i];
        for (size_t k = 0; k < 3; k++) {
            c.batch = images[k];
            check_onednn(&c);
        }
    }
    case_options = ways[0];
}

/* Labels that the output is right about; *labels becomes how many there are. */
static size_t correct_of(const struct replica *replica, size_t *labels)
{
    const struct network *network = replica->network;
    const size_t channels = network->tensors[network->count].channels,
                 count = replica->plan->batch * network->labels;
    size_t correct = 0;
    *labels = 0;
    for (size_t n = 0; n < count; n++) {
        const float *y = output(replica) + n * channels;
        const int32_t label = replica->arenas.labels[n];
        size_t larger = 0;
        for (size_t k = 0; label >= 0 && channels > 1 && k < channels; k++)
            larger += y[k] > y[label] || (y[k] == y[label] && k < (size_t)label);
        *labels += label >= 0;
        correct += label >= 0 && !larger && (channels > 1 || fabsf(y[0] - (float)label) < 0.5f);
    }
    return correct;
}

/* The score is that of the last loss without its weight, over the labels that are there. */
static void check_score(const struct network_case *c)
{
    struct network *network = case_network(c);
    struct replica *replica = replica_make(network, &kernels_onednn, c->batch, c->batch > 1);
    const size_t all = c->batch * network->labels;
    const double *score = replica->arenas.score;
    size_t labels;
    for (int round = 0; round < 2; round++) {
        const double before[] = {score[0], score[1], score[2]};
        assert_int_equal(replica_forward(replica, true), ALNICO_SUCCESS);
        const double loss = loss_from(replica, network->count - 1) * (double)all;
        const size_t correct = correct_of(replica, &labels);
        if (!(fabs(score[SCORE_LOSS] - before[SCORE_LOSS] - loss) <= 1e-4 * (1 + fabs(loss))))
            fail_msg("%s: the loss is %g, expected %g", c->name,
                     score[SCORE_LOSS] - before[SCORE_LOSS], loss);
        assert_true(score[SCORE_CORRECT] - before[SCORE_CORRECT] == (double)correct);
        assert_true(score[SCORE_TERMS] - before[SCORE_TERMS] == (double)labels);
        assert_int_equal(replica_outcome(replica).count, labels);
        assert_int_equal(replica_outcome(replica).correct, correct);
    }
    replica_destroy(replica);
    network_destroy(network);
}

static void scores_are_of_the_last_loss(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < WAYS; i++) {
        case_options = ways[i];
        for (size_t k = 0; k < NETWORK_CASES; k++)
            check_score(&network_cases[k]);
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
    const size_t outputs = fast->plan->batch * tensor_elements(&network->tensors[network->count]);
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

/* With running statistics: the last blocks have one pixel, whose batch norm would be of two
 * numbers. */
static void meshes_match_naive(void **unused)
{
    (void)unused;
    struct network *network;
    struct model mesh;
    case_options.frozen = true;
    assert_true(model_find("mesh:24", &mesh));
    if (model_network(&mesh, 24, 24, 18, 2, &network))
        fail_msg("%s", alnico_error_detail());
    assert_int_equal(network->labels, 24 * 24);
    struct replica *fast = replica_make(network, &kernels_onednn, 2, 0);
    struct replica *oracle = replica_make(network, &kernels_naive, 2, 0);
    compare_model(mesh.name, fast, oracle);
    case_options.frozen = false;
    replica_destroy(fast);
    replica_destroy(oracle);
    network_destroy(network);
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

/* Of several labels an image some may be missing. */
static void labels_of_pixels_are_checked(void **unused)
{
    (void)unused;
    const struct network_case *c = network_cases;
    while (strcmp(c->name, "cross-entropy of pixels of the images") != 0)
        c++;
    struct network *network = case_network(c);
    struct replica *replica = replica_make(network, &kernels_onednn, c->batch, 0);
    const float images[3 * 3 * 2 * 5] = {0};
    int32_t labels[3 * 3 * 2] = {0};
    labels[7] = -1;
    labels[12] = 4;
    assert_int_equal(replica_load(replica, images, labels, 3), ALNICO_SUCCESS);
    assert_int_equal(replica->arenas.labels[12], 4);
    assert_int_equal(replica_load(replica, images, labels, 2), ALNICO_SUCCESS);
    assert_int_equal(replica->arenas.labels[12], -1);
    assert_int_equal(replica_forward(replica, false), ALNICO_SUCCESS);
    assert_int_equal(replica_outcome(replica).count, 11);
    labels[13] = 5;
    assert_int_equal(replica_load(replica, images, labels, 3), ALNICO_ERROR_ARGUMENT);
    assert_non_null(strstr(alnico_error_detail(), "label 5 of image 2, expected -1 to 4"));
    labels[13] = -2;
    assert_int_equal(replica_load(replica, images, labels, 3), ALNICO_ERROR_ARGUMENT);
    assert_int_equal(replica_load(replica, images, labels, 2), ALNICO_SUCCESS);
    replica_destroy(replica);
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
        cmocka_unit_test(large_dense_layers_match_naive),
        cmocka_unit_test(scores_are_of_the_last_loss),
        cmocka_unit_test(labels_of_pixels_are_checked),
        cmocka_unit_test(models_match_naive),
        cmocka_unit_test(meshes_match_naive),
        cmocka_unit_test(absent_images_have_no_part),
        cmocka_unit_test(bad_batches_are_refused),
        cmocka_unit_test(old_gpus_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
