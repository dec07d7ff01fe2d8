/* Networks and plans: inferred shapes, refused operations, the arenas' layout, first values, and
 * memory that no two live gradients share. */
#include "tests/train/cases.h"

#include "train/kernels/kernels.h"
#include "train/models/models.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

static uint64_t seed;

/* With larger images where it needs them. */
static struct network *model_make(const struct model *model, size_t side, size_t channels)
{
    struct network *network;
    for (; model_network(model, side, side, channels, 10, &network); side *= 2)
        if (side > 100)
            fail_msg("%s", alnico_error_detail());
    return network;
}

static void shapes_are_inferred(void **unused)
{
    (void)unused;
    const struct {
        struct operation operation;
        size_t height, width, channels, weights, biases;
    } rows[] = {
        {CONVOLUTION("a", "input", 8, 3, 1, 1, true), 9, 6, 8, 8 * 9 * 5, 8},
        {CONVOLUTION("a", "input", 8, 3, 2, 1, false), 5, 3, 8, 8 * 9 * 5, 0},
        {CONVOLUTION("a", "input", 2, 4, 3, 0, false), 2, 1, 2, 2 * 16 * 5, 0},
        {POOL(OPERATION_MAX_POOL, "a", "input", 3, 2, 1), 5, 3, 5, 0, 0},
        {POOL(OPERATION_AVERAGE_POOL, "a", "input", 2, 2, 0), 4, 3, 5, 0, 0},
        {POOL(OPERATION_AVERAGE_POOL, "a", "input", 0, 0, 0), 1, 1, 5, 0, 0},
        {DENSE("a", "input", 7), 1, 1, 7, 7 * 9 * 6 * 5, 7},
        {NORM("a", "input"), 9, 6, 5, 5, 5},
        {RELU("a", "input"), 9, 6, 5, 0, 0},
        {CEIL_POOL(OPERATION_MAX_POOL, "a", "input", 3, 2, 0), 4, 3, 5, 0, 0},
        {CEIL_POOL(OPERATION_AVERAGE_POOL, "a", "input", 2, 2, 0), 5, 3, 5, 0, 0},
        /* A window that would begin in the padding behind the image is none. */
        {CEIL_POOL(OPERATION_MAX_POOL, "a", "input", 3, 4, 1), 3, 2, 5, 0, 0},
        {CEIL_POOL(OPERATION_MAX_POOL, "a", "input", 2, 5, 1), 2, 2, 5, 0, 0},
        {LOCAL_NORM("a", "input", 3), 9, 6, 5, 0, 0},
        {DROPOUT("a", "input", 0.5f), 9, 6, 5, 0, 0},
        {CONCAT("a", "input"), 9, 6, 5, 0, 0},
        {CONCAT("a", "input", "input", "input"), 9, 6, 15, 0, 0},
        {ADD("a", "input", "input"), 9, 6, 5, 0, 0},
        {SIGMOID("a", "input"), 9, 6, 5, 0, 0},
        {UPSAMPLE("a", "input", 4, 3), 33, 21, 5, 0, 0},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct network *network;
        assert_int_equal(network_create(9, 6, 5, &network), ALNICO_SUCCESS);
        assert_int_equal(network_append(network, &rows[i].operation), ALNICO_SUCCESS);
        const struct tensor *out = network_output(network, 0);
        assert_int_equal(out->height, rows[i].height);
        assert_int_equal(out->width, rows[i].width);
        assert_int_equal(out->channels, rows[i].channels);
        assert_int_equal(network->nodes[0].weight.count, rows[i].weights);
        assert_int_equal(network->nodes[0].bias.count, rows[i].biases);
        network_destroy(network);
    }
}

static void bad_operations_are_refused(void **unused)
{
    (void)unused;
    const struct {
        struct operation operation;
        const char *detail;
    } rows[] = {
        {CONVOLUTION("", "input", 8, 3, 1, 1, true), "name of a convolution"},
        {CONVOLUTION("input", "input", 8, 3, 1, 1, true), "'input' is taken"},
        {CONVOLUTION("a", "nothing", 8, 3, 1, 1, true), "'nothing'"},
        {CONVOLUTION("a", "", 8, 3, 1, 1, true), "reads tensor ''"},
        {CONVOLUTION("a", "input", 0, 3, 1, 1, true), "0 filters"},
        {CONVOLUTION("a", "input", 1 << 20, 3, 1, 1, true), "1048576 filters"},
        {CONVOLUTION("a", "input", 8, 0, 1, 0, true), "window 0"},
        {CONVOLUTION("a", "input", 8, 3, 0, 1, true), "stride 0"},
        {CONVOLUTION("a", "input", 8, 3, 1, 3, true), "pad 3"},
        {CONVOLUTION("a", "input", 8, 7, 1, 0, true), "9x6 with pad 0"},
        {CONVOLUTION("a", "input", 8, (size_t)-1, 1, 9, true), "window 18446744073709551615"},
        {POOL(OPERATION_MAX_POOL, "a", "input", 0, 1, 0), "window 0"},
        {POOL(OPERATION_AVERAGE_POOL, "a", "input", 0, 2, 0), "stride 2"},
        {POOL(OPERATION_AVERAGE_POOL, "a", "input", 10, 1, 1), "window 10"},
        {DENSE("a", "input", 0), "0 filters"},
        {ADD("a", "input", "other"), "'other'"},
        {UPSAMPLE("a", "input", 0, 0), "'a' of 9x6 pixels by 0"},
        {UPSAMPLE("a", "input", 2, 2), "without the last 2"},
        {UPSAMPLE("a", "input", 7282, 0), "by 7282"},
        {ADD("a", "input", "small"), "(9x6x5) and 'small' (5x3x2)"},
        {AUXILIARY(OPERATION_CROSS_ENTROPY, "a", "input", -1), "weight of -1"},
        {AUXILIARY(OPERATION_SQUARED_ERROR, "a", "input", NAN), "weight of nan"},
        {LOCAL_NORM("a", "input", 4), "window 4"},
        {{.kind = OPERATION_LOCAL_NORM, .name = "a", .in = {"input"}, .window = 5}, "beta 0, k 0"},
        {DROPOUT("a", "input", 1.0f), "rate 1,"},
        {DROPOUT("a", "input", -0.5f), "rate -0.5"},
        {CONCAT("a", "input", "other"), "'other'"},
        {CONCAT("a", "input", "small"), "'input' (9x6 pixels) and 'small' (5x3)"},
        {{.kind = (enum operation_kind)99, .name = "a", .in = {"input"}}, "kind 99"},
    };
    const struct operation small = CONVOLUTION("small", "input", 2, 3, 2, 1, false);
    struct network *network;
    assert_int_equal(network_create(9, 6, 5, &network), ALNICO_SUCCESS);
    assert_int_equal(network_append(network, &small), ALNICO_SUCCESS);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        assert_int_equal(network_append(network, &rows[i].operation), ALNICO_ERROR_ARGUMENT);
        if (!strstr(alnico_error_detail(), rows[i].detail))
            fail_msg("'%s' does not say '%s'", alnico_error_detail(), rows[i].detail);
        assert_int_equal(network->count, 1);
    }
    struct operation unending = RELU("a", "input");
    memset(unending.name, 'x', sizeof unending.name);
    assert_int_equal(network_append(network, &unending), ALNICO_ERROR_ARGUMENT);
    memcpy(unending.name, "a", 2);
    memset(unending.in[0], 'x', sizeof unending.in[0]);
    assert_int_equal(network_append(network, &unending), ALNICO_ERROR_ARGUMENT);
    network_destroy(network);
}

static void bad_networks_are_refused(void **unused)
{
    (void)unused;
    const struct operation pool = POOL(OPERATION_AVERAGE_POOL, "p", "input", 0, 0, 0);
    const struct operation idle = RELU("idle", "input"), late = RELU("late", "loss");
    const struct operation loss = LOSS("p");
    struct network *network;
    assert_int_equal(network_create(0, 6, 5, &network), ALNICO_ERROR_ARGUMENT);
    assert_null(network);
    assert_int_equal(network_create(1 << 16, 1 << 16, 2, &network), ALNICO_ERROR_ARGUMENT);
    assert_int_equal(network_create(9, 6, 5, &network), ALNICO_SUCCESS);
    assert_int_equal(network_finish(network), ALNICO_ERROR_ARGUMENT);
    assert_int_equal(network_append(network, &pool), ALNICO_SUCCESS);
    assert_int_equal(network_finish(network), ALNICO_ERROR_ARGUMENT);
    assert_non_null(strstr(alnico_error_detail(), "must be a loss"));
    assert_int_equal(network_append(network, &idle), ALNICO_SUCCESS);
    assert_int_equal(network_append(network, &loss), ALNICO_SUCCESS);
    assert_int_equal(network_append(network, &late), ALNICO_ERROR_ARGUMENT);
    assert_non_null(strstr(alnico_error_detail(), "'late' reads 'loss', which is a loss"));
    assert_int_equal(network_finish(network), ALNICO_ERROR_ARGUMENT);
    assert_non_null(strstr(alnico_error_detail(), "'idle'"));
    network_destroy(network);
    network_destroy(NULL);
}

/* Several losses are fine, if all take the labels that the last one does. */
static void losses_take_the_same_labels(void **unused)
{
    (void)unused;
    const struct {
        struct operation before, loss;
        const char *detail; /* NULL: it is fine */
    } rows[] = {
        {RELU("a", "input"), AUXILIARY(OPERATION_CROSS_ENTROPY, "x", "a", 0.3), NULL},
        {RELU("a", "input"), AUXILIARY(OPERATION_SQUARED_ERROR, "x", "a", 0), NULL},
        {CONVOLUTION("a", "input", 4, 3, 1, 1, true), LOSS("a"), "54 labels of 4 classes"},
        {POOL(OPERATION_AVERAGE_POOL, "a", "input", 0, 0, 0), LOSS("a"), "1 labels of 5 classes"},
        {CONVOLUTION("a", "input", 1, 3, 1, 1, true), SQUARED("a"),
         "54 labels of 2147483648 classes"},
    };
    const struct operation last = AUXILIARY(OPERATION_CROSS_ENTROPY, "last", "input", 0);
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct network *network;
        assert_int_equal(network_create(9, 6, 5, &network), ALNICO_SUCCESS);
        assert_int_equal(network_append(network, &rows[i].before), ALNICO_SUCCESS);
        assert_int_equal(network_append(network, &rows[i].loss), ALNICO_SUCCESS);
        assert_int_equal(network_append(network, &last), ALNICO_SUCCESS);
        assert_int_equal(network_finish(network),
                         rows[i].detail ? ALNICO_ERROR_ARGUMENT : ALNICO_SUCCESS);
        if (rows[i].detail)
            assert_non_null(strstr(alnico_error_detail(), rows[i].detail));
        else
            assert_true(network->labels == 54 && network->classes == 5);
        network_destroy(network);
    }
}

/* Going backward, each node's pieces follow at once: no gaps, no overlap, last operation first. */
static void arenas_are_in_backward_order(void **unused)
{
    (void)unused;
    for (size_t m = 0; models_all[m]; m++) {
        struct network *network = model_make(models_all[m], 28, 1);
        size_t at = 0;
        for (size_t i = network->count; i-- > 0;) {
            const struct node *node = &network->nodes[i];
            if (node->weight.count)
                assert_int_equal(node->weight.offset, at);
            at += node->weight.count;
            if (node->bias.count)
                assert_int_equal(node->bias.offset, at);
            at += node->bias.count;
        }
        assert_int_equal(at, network->parameters);
        network_destroy(network);
    }
}

/* As many numbers stand in another order if a block's shortcut does. */
static void layouts_tell_orders_apart(void **unused)
{
    (void)unused;
    const struct network_case *c = network_cases;
    while (strcmp(c->name, "strided shortcut") != 0)
        c++;
    struct network_case other = *c;
    other.operations[1] = c->operations[2];
    other.operations[2] = c->operations[1];
    struct network *network = case_network(c), *again = case_network(c),
                   *swapped = case_network(&other);
    assert_int_equal(network->parameters, swapped->parameters);
    assert_true(network_layout(network) == network_layout(again));
    assert_true(network_layout(network) != network_layout(swapped));
    network_destroy(network);
    network_destroy(again);
    network_destroy(swapped);
}

/* The paper's 0.27 million: 19 convolutions of 3x3, two of 1x1, 21 batch norms, one dense layer. */
static void resnet20_has_its_size(void **unused)
{
    (void)unused;
    for (size_t channels = 1; channels <= 3; channels += 2) {
        struct network *network = model_make(&model_resnet20, channels == 1 ? 28 : 32, channels);
        const size_t convolutions =
            9 * (16 * channels + 6 * 16 * 16 + 16 * 32 + 5 * 32 * 32 + 32 * 64 + 5 * 64 * 64) +
            16 * 32 + 32 * 64;
        const size_t norms = 2 * (7 * 16 + 7 * 32 + 7 * 64);
        assert_int_equal(network->parameters, convolutions + norms + 64 * 10 + 10);
        assert_int_equal(network->statistics, norms);
        size_t layers = 0;
        for (size_t i = 0; i < network->count; i++)
            layers += network->nodes[i].operation.window == 3 ||
                      network->nodes[i].operation.kind == OPERATION_DENSE;
        assert_int_equal(layers, 20);
        network_destroy(network);
    }
}

/* The numbers of parameters that torchvision's networks have. */
static void large_resnets_have_their_sizes(void **unused)
{
    (void)unused;
    const struct {
        const struct model *model;
        size_t parameters, layers;
    } rows[] = {
        {&model_resnet18, 11689512, 18},   {&model_resnet34, 21797672, 34},
        {&model_resnet50, 25557032, 50},   {&model_resnet101, 44549160, 101},
        {&model_resnet152, 60192808, 152},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct network *network;
        if (model_network(rows[i].model, 224, 224, 3, 1000, &network))
            fail_msg("%s", alnico_error_detail());
        assert_int_equal(network->parameters, rows[i].parameters);
        size_t layers = 0, halved = 0;
        for (size_t k = 0; k < network->count; k++) {
            const struct operation *operation = &network->nodes[k].operation;
            layers += !strstr(operation->name, ".conv0") && network->nodes[k].weight.count &&
                      operation->kind != OPERATION_BATCH_NORM;
            halved += operation->kind == OPERATION_CONVOLUTION && operation->stride == 2 &&
                      operation->window == 3;
            assert_true(operation->stride < 2 || operation->window > 1 ||
                        strstr(operation->name, ".conv0"));
        }
        assert_int_equal(layers, rows[i].layers);
        assert_int_equal(halved, 3);
        network_destroy(network);
    }
}

/* The numbers that the papers' networks have, counted by hand. */
static void other_models_have_their_sizes(void **unused)
{
    (void)unused;
    const struct {
        const struct model *model;
        size_t side, channels, classes, parameters;
    } rows[] = {
        {&model_mnist, 28, 1, 10, 1192042},
        {&model_alexnet, 227, 3, 1000, 62378344},
        {&model_alexnet_cifar, 32, 3, 10, 1334474},
        {&model_googlenet, 224, 3, 1000, 6998552},
        {&model_googlenet_aux, 224, 3, 1000, 13378280},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        struct network *network;
        if (model_network(rows[i].model, rows[i].side, rows[i].side, rows[i].channels,
                          rows[i].classes, &network))
            fail_msg("%s", alnico_error_detail());
        assert_int_equal(network->parameters, rows[i].parameters);
        assert_true(network->draws);
        network_destroy(network);
    }
}

/* Sides of GoogLeNet's stages as its Caffe model has them. */
static void googlenet_has_its_sides(void **unused)
{
    (void)unused;
    const struct {
        const char *name;
        size_t side, channels;
    } rows[] = {{"stem.conv1", 112, 64}, {"stem.pool1", 56, 64}, {"stem.pool2", 28, 192},
                {"3a.join", 28, 256},    {"3b.end", 14, 480},    {"4e.join", 14, 832},
                {"4e.end", 7, 832},      {"5b.join", 7, 1024}};
    struct network *network = model_make(&model_googlenet, 224, 3);
    size_t found = 0;
    for (size_t t = 1; t <= network->count; t++)
        for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
            if (strcmp(network_tensor_name(network, t), rows[i].name) != 0)
                continue;
            assert_int_equal(network->tensors[t].height, rows[i].side);
            assert_int_equal(network->tensors[t].channels, rows[i].channels);
            found++;
        }
    assert_int_equal(found, sizeof rows / sizeof *rows);
    network_destroy(network);
}

/* Convolutions, norms and a head, by hand. */
static void meshes_have_their_sizes(void **unused)
{
    (void)unused;
    const size_t filters[] = {18, 128, 160, 192, 224, 256, 256};
    const char *const names[] = {"mesh1k", "mesh2k", "mesh:1", "mesh:65", "mesh:1025"};
    const size_t sides[] = {1024, 2048, 1, 65, 1025}, convolutions[] = {3, 5, 3, 3, 5};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        struct model model;
        struct network *network;
        size_t parameters = 256 * 2 + 2, strided = 0;
        assert_true(model_find(names[i], &model));
        assert_string_equal(model.name, names[i]);
        assert_true(model.fixed && model.images.height == sides[i] && model.images.channels == 18);
        if (model_network(&model, sides[i], sides[i], 18, 2, &network))
            fail_msg("%s", alnico_error_detail());
        for (size_t b = 0; b < 6; b++)
            parameters += filters[b] * filters[b + 1] * (b ? 9 : 25) + 2 * filters[b + 1] +
                          (convolutions[i] - 1) * (9 * filters[b + 1] + 2) * filters[b + 1];
        assert_int_equal(network->parameters, parameters);
        assert_int_equal(network->labels, sides[i] * sides[i]);
        assert_int_equal(network->classes, 2);
        for (size_t k = 0; k < network->count; k++)
            strided += network->nodes[k].operation.kind == OPERATION_CONVOLUTION &&
                       network->nodes[k].operation.stride == 2;
        assert_int_equal(strided, 6);
        if (i == 0)
            assert_int_equal(parameters, 6700930);
        network_destroy(network);
    }
}

static void unknown_models_are_refused(void **unused)
{
    (void)unused;
    const char *const names[] = {"",           "mesh",    "mesh:",   "mesh:0",
                                 "mesh:16385", "mesh:8x", "mesh:-8", "synthetic:8"};
    struct model model;
    struct network *network;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        assert_false(model_find(names[i], &model));
    assert_true(model_find("mesh:16384", &model));
    assert_int_equal(model_network(&model, 8, 9, 18, 2, &network), ALNICO_ERROR_ARGUMENT);
    assert_non_null(strstr(alnico_error_detail(), "8x9"));
}

/* Blocks begin as identities: the scale of each one's last norm is 0, and of no other. */
static void blocks_begin_as_identities(void **unused)
{
    (void)unused;
    struct network *network = model_make(&model_resnet50, 40, 3);
    float *p = malloc(network->parameters * sizeof *p),
          *s = malloc(network->statistics * sizeof *s);
    size_t zeros = 0;
    network_initialize(network, seed, p, s);
    for (size_t i = 0; i < network->count; i++) {
        const struct node *node = &network->nodes[i];
        if (node->operation.kind != OPERATION_BATCH_NORM)
            continue;
        const bool last = strstr(node->operation.name, ".norm3") != NULL;
        zeros += last;
        for (size_t k = 0; k < node->weight.count; k++)
            assert_true(p[node->weight.offset + k] == (last ? 0 : 1));
    }
    assert_int_equal(zeros, 16);
    free(p);
    free(s);
    network_destroy(network);
}

static void first_values_are_he_normal(void **unused)
{
    (void)unused;
    struct network *network = model_make(&model_resnet20, 28, 1);
    float *p = malloc(network->parameters * sizeof *p), *again = malloc(network->parameters * 4);
    float *s = malloc(network->statistics * sizeof *s);
    memset(p, 0xff, network->parameters * sizeof *p);
    memset(s, 0xff, network->statistics * sizeof *s);
    network_initialize(network, seed, p, s);
    for (size_t i = 0; i < network->count; i++) {
        const struct node *node = &network->nodes[i];
        const bool norm = node->operation.kind == OPERATION_BATCH_NORM;
        double sum = 0, squares = 0;
        for (size_t k = 0; k < node->weight.count; k++) {
            const double w = p[node->weight.offset + k];
            sum += w;
            squares += w * w;
            if (norm)
                assert_true(w == 1);
        }
        for (size_t k = 0; k < node->bias.count; k++)
            assert_true(p[node->bias.offset + k] == 0);
        if (norm || node->weight.count < 1000)
            continue;
        const double n = (double)node->weight.count;
        const double variance = 2.0 * (double)network_output(network, i)->channels / n;
        assert_true(fabs(sum / n) < 5 * sqrt(variance / n));
        assert_true(fabs(squares / n / variance - 1) < 5 * sqrt(2 / n));
    }
    for (size_t i = 0; i < network->statistics; i++)
        assert_true(s[i] == 0 || s[i] == 1);
    network_initialize(network, seed, again, s);
    assert_memory_equal(p, again, network->parameters * sizeof *p);
    network_initialize(network, seed + 1, again, s);
    assert_memory_not_equal(p, again, network->parameters * sizeof *p);
    free(p);
    free(again);
    free(s);
    network_destroy(network);
}

/* Who owns each line of a plan's allocation, in a replay of a step forward and backward. */
struct replay {
    const struct plan *plan;
    const struct kernels_ops *ops;
    const void **owner;
};

static size_t lines_of(size_t bytes)
{
    return (bytes + PLAN_LINE - 1) / PLAN_LINE;
}

static void replay_write(const struct replay *replay, const size_t *place, size_t bytes)
{
    if (!bytes)
        return;
    assert_true(*place % PLAN_LINE == 0);
    assert_true(*place + lines_of(bytes) * PLAN_LINE <= replay->plan->bytes);
    for (size_t i = 0; i < lines_of(bytes); i++)
        replay->owner[*place / PLAN_LINE + i] = place;
}

static void replay_read(const struct replay *replay, const size_t *place, size_t bytes)
{
    for (size_t i = 0; i < lines_of(bytes); i++)
        assert_ptr_equal(replay->owner[*place / PLAN_LINE + i], place);
}

static size_t tensor_bytes(const struct replay *replay, size_t t)
{
    return t ? plan_float_bytes(replay->plan, t) : 0;
}

static struct step_needs step_asks(const struct replay *replay, const struct step *step)
{
    struct step_needs needs = {0};
    replay->ops->rules.needs(replay->plan, step, &needs);
    return needs;
}

static void replay_forward(const struct replay *replay, const struct step *step)
{
    const struct plan *plan = replay->plan;
    const struct step_needs needs = step_asks(replay, step);
    replay_write(replay, &step->saved, needs.saved);
    replay_write(replay, &step->scratch[0], needs.scratch[0]);
    replay_write(replay, &plan->values[step->out], tensor_bytes(replay, step->out));
    for (size_t i = 0; i < step->inputs; i++)
        replay_read(replay, &plan->values[step->in[i]], tensor_bytes(replay, step->in[i]));
    replay_read(replay, &step->scratch[0], needs.scratch[0]);
    replay_read(replay, &step->saved, needs.saved);
}

/* Whether the rules allow that the gradient of in[i] begins where it does, over something that the
 * step reads. */
static bool is_over(const struct replay *replay, const struct step *step, size_t i)
{
    const struct plan *plan = replay->plan;
    const struct step_needs needs = step_asks(replay, step);
    const size_t t = step->in[i], at = plan->diffs[t];
    size_t reads = 0;
    for (size_t k = 0; k < step->inputs; k++)
        reads += step->in[k] == t;
    return t && reads == 1 &&
           ((needs.over_value[i] && at == plan->values[t]) ||
            (needs.over_gradient[i] && at == plan->diffs[step->out]));
}

/* The gradients of those that are over something, or of the others. */
static void replay_gradients(const struct replay *replay, const struct step *step, bool over)
{
    const struct plan *plan = replay->plan;
    for (size_t i = 0; i < step->inputs; i++) {
        const size_t t = step->in[i];
        if (t == 0)
            assert_true(plan->diffs[t] == PLAN_NONE);
        else if (!step->accumulate[i] && is_over(replay, step, i) == over)
            replay_write(replay, &plan->diffs[t], tensor_bytes(replay, t));
    }
}

/* All that the step reads must still be there once it has written all that it writes, but for what
 * may be over it. */
static void replay_backward(const struct replay *replay, size_t s)
{
    const struct plan *plan = replay->plan;
    const struct step *step = &plan->steps[s];
    const struct step_needs needs = step_asks(replay, step);
    replay_write(replay, &step->scratch[1], needs.scratch[1]);
    replay_gradients(replay, step, false);
    for (size_t i = 0; i < step->inputs; i++)
        if (needs.in[i])
            replay_read(replay, &plan->values[step->in[i]], tensor_bytes(replay, step->in[i]));
    if (needs.out)
        replay_read(replay, &plan->values[step->out], tensor_bytes(replay, step->out));
    if (!is_loss(&plan->network->nodes[step->out - 1].operation))
        replay_read(replay, &plan->diffs[step->out], tensor_bytes(replay, step->out));
    replay_read(replay, &step->saved, needs.saved);
    replay_read(replay, &step->scratch[1], needs.scratch[1]);
    replay_gradients(replay, step, true);
    for (size_t i = 0; i < step->inputs; i++) /* made, or added to */
        replay_read(replay, &plan->diffs[step->in[i]], tensor_bytes(replay, step->in[i]));
}

static void check_memory(const struct plan *plan, const struct kernels_ops *ops)
{
    const struct replay replay = {plan, ops, calloc(plan->bytes / PLAN_LINE + 1, sizeof(void *))};
    assert_true(plan->least <= plan->bytes && plan->bytes <= plan->apart);
    for (size_t s = 0; s < plan->count; s++)
        replay_forward(&replay, &plan->steps[s]);
    for (size_t s = plan->count; s-- > 0;)
        replay_backward(&replay, s);
    replay_read(&replay, &plan->values[plan->network->count],
                tensor_bytes(&replay, plan->network->count));
    free(replay.owner);
}

static void every_kind_is_a_layer(void **unused)
{
    (void)unused;
    for (int kind = 0; kind < OPERATION_KINDS; kind++) {
        const struct layer_ops *layer = layers_all[kind];
        assert_non_null(layer);
        assert_string_equal(layer->name, operation_kind_name((enum operation_kind)kind));
        assert_in_range(layer->inputs, 0, NETWORK_INPUTS);
        assert_true(layer->cost);
        if (kind != OPERATION_MOVE) /* the replica's */
            assert_true(layer->forward && layer->backward);
        for (int other = 0; other < kind; other++)
            assert_string_not_equal(layer->name, layers_all[other]->name);
    }
}

static void plans_are_sound(void **unused)
{
    (void)unused;
    for (size_t i = 0; i < NETWORK_CASES || models_all[i - NETWORK_CASES]; i++)
        for (size_t k = 0; kernels_all[k]; k++) {
            struct network *network = i < NETWORK_CASES
                                          ? case_network(&network_cases[i])
                                          : model_make(models_all[i - NETWORK_CASES], 12, 1);
            struct plan *plan;
            if (kernels_all[k]->device != ALNICO_DEVICE_CPU) {
                network_destroy(network);
                continue;
            }
            assert_int_equal(plan_create(network, &kernels_all[k]->rules, 3, PRECISION_FP32, &plan),
                             ALNICO_SUCCESS);
            check_memory(plan, kernels_all[k]);
            assert_int_equal(plan->steps[0].filled, network->parameters);
            size_t covered = 0;
            for (size_t s = 0; s < plan->count; s++) {
                assert_int_equal(plan->steps[s].first, covered);
                covered += plan->steps[s].count;
            }
            assert_int_equal(covered, network->count);
            plan_destroy(plan);
            network_destroy(network);
        }
}

/* ---- Rules that ask for anything ---- */

static uint64_t drawn;

/* A sum of all convolutions, by a step of four inputs. */
static const struct network_case sum_of_four = {
    "sum of four",
    2,
    4,
    4,
    3,
    {CONVOLUTION("a", "input", 4, 3, 1, 1, true), CONVOLUTION("b", "a", 4, 3, 1, 1, true),
     CONVOLUTION("c", "input", 4, 1, 1, 0, true), CONVOLUTION("d", "a", 4, 1, 1, 0, true),
     ADD("s", "d", "c"), ADD("t", "s", "b"), ADD("u", "t", "a"), DENSE("e", "u", 4), LOSS("e")},
    0};

/* Three additions, where the one follows from the other, are one step. */
static size_t additions(const struct network *network, size_t at)
{
    static const enum operation_kind three[] = {OPERATION_ADD, OPERATION_ADD, OPERATION_ADD};
    return plan_chained(network, at, three, 3) ? 3 : 1;
}

static void any_needs(const struct plan *plan, const struct step *step, struct step_needs *out)
{
    uint64_t state = drawn + step->first;
    (void)plan;
    for (int i = 0; i < NETWORK_INPUTS; i++) {
        out->in[i] = random_next(&state) % 2;
        out->over_value[i] = random_next(&state) % 4;
        out->over_gradient[i] = random_next(&state) % 4;
    }
    for (int i = 0; i < 2; i++)
        out->scratch[i] = random_next(&state) % 2 * (random_next(&state) % 5000);
    out->out = random_next(&state) % 2;
    out->saved = random_next(&state) % 2 * (random_next(&state) % 5000);
}

static const struct kernels_ops any_kernels = {.rules = {.run = additions, .needs = any_needs}};

static size_t count_over(const struct plan *plan)
{
    const struct replay replay = {plan, &any_kernels, NULL};
    size_t count = 0;
    for (size_t s = 0; s < plan->count; s++)
        for (size_t i = 0; i < plan->steps[s].inputs; i++)
            count += is_over(&replay, &plan->steps[s], i);
    return count;
}

/* Gradients over values, over gradients, and over what is over something. */
static void plans_with_any_needs_are_sound(void **unused)
{
    (void)unused;
    size_t over = 0;
    for (int k = 0; k < 20; k++)
        for (size_t i = 0; i < NETWORK_CASES + 3; i++) {
            struct network *network =
                i < NETWORK_CASES ? case_network(&network_cases[i])
                : i == NETWORK_CASES + 2
                    ? case_network(&sum_of_four)
                    : model_make(i > NETWORK_CASES ? &model_resnet20 : &model_resnet50, 12, 1);
            struct plan *plan;
            drawn = seed + 1000003 * (uint64_t)k;
            assert_int_equal(plan_create(network, &any_kernels.rules, 3, PRECISION_FP32, &plan),
                             ALNICO_SUCCESS);
            if (i == NETWORK_CASES + 2)
                assert_int_equal(plan->steps[4].inputs, 4);
            check_memory(plan, &any_kernels);
            over += count_over(plan);
            plan_destroy(plan);
            network_destroy(network);
        }
    assert_true(over > 100);
}

int main(void)
{
    seed = test_seed();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(shapes_are_inferred),
        cmocka_unit_test(bad_operations_are_refused),
        cmocka_unit_test(bad_networks_are_refused),
        cmocka_unit_test(losses_take_the_same_labels),
        cmocka_unit_test(arenas_are_in_backward_order),
        cmocka_unit_test(layouts_tell_orders_apart),
        cmocka_unit_test(resnet20_has_its_size),
        cmocka_unit_test(large_resnets_have_their_sizes),
        cmocka_unit_test(other_models_have_their_sizes),
        cmocka_unit_test(googlenet_has_its_sides),
        cmocka_unit_test(meshes_have_their_sizes),
        cmocka_unit_test(unknown_models_are_refused),
        cmocka_unit_test(blocks_begin_as_identities),
        cmocka_unit_test(first_values_are_he_normal),
        cmocka_unit_test(every_kind_is_a_layer),
        cmocka_unit_test(plans_are_sound),
        cmocka_unit_test(plans_with_any_needs_are_sound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
