/* All kernels of a device, the second argument, against PyTorch: losses, outputs, every gradient,
 * the parameters after each of some steps and the running statistics, of a residual network, one with
 * branches, or one that labels pixels; by the first argument, NETWORK.bin, which reference/make_reference.py made in
 * float64.
 * Tolerances are shares of a tensor's largest number. */
#include "tests/train/cases.h"

#include "train/replica/replica.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

enum {
    SKIPPED = 77,
    STEPS = 4,
    BATCH = 6,
    CLASSES = 5,
    HEIGHT = 17,
    WIDTH = 15,
    MOST_RECORDS = 512
};

/* Of float32; the largest that was seen is a quarter of it. Steps add up. */
static const double tolerance = 2e-5;

struct record {
    char name[32];
    uint64_t count;
    const float *numbers;
};

static struct record records[MOST_RECORDS];
static size_t record_count;
static char *file_bytes;

static const struct operation resnet[] = {
    CONVOLUTION("stem_conv", "input", 8, 7, 2, 3, false),
    NORM("stem_norm", "stem_conv"),
    RELU("stem_relu", "stem_norm"),
    POOL(OPERATION_MAX_POOL, "stem_pool", "stem_relu", 3, 2, 1),
    CONVOLUTION("a_conv1", "stem_pool", 8, 3, 1, 1, false),
    NORM("a_norm1", "a_conv1"),
    RELU("a_relu1", "a_norm1"),
    CONVOLUTION("a_conv2", "a_relu1", 8, 3, 1, 1, false),
    NORM("a_norm2", "a_conv2"),
    ADD("a_add", "a_norm2", "stem_pool"),
    RELU("a_relu2", "a_add"),
    CONVOLUTION("b_conv1", "a_relu2", 16, 3, 2, 1, false),
    NORM("b_norm1", "b_conv1"),
    RELU("b_relu1", "b_norm1"),
    CONVOLUTION("b_conv2", "b_relu1", 16, 3, 1, 1, false),
    CONVOLUTION("b_conv0", "a_relu2", 16, 1, 2, 0, false),
    NORM("b_norm0", "b_conv0"),
    NORM("b_norm2", "b_conv2"),
    ADD("b_add", "b_norm2", "b_norm0"),
    RELU("b_relu2", "b_add"),
    POOL(OPERATION_AVERAGE_POOL, "c_pool", "b_relu2", 2, 1, 1),
    CONVOLUTION("c_conv", "c_pool", 12, 1, 1, 0, true),
    RELU("c_relu", "c_conv"),
    POOL(OPERATION_AVERAGE_POOL, "d_pool", "c_relu", 0, 0, 0),
    DENSE("d_dense", "d_pool", CLASSES),
    LOSS("d_dense"),
};

static const struct operation inception[] = {
    CONVOLUTION("stem_conv", "input", 8, 5, 2, 2, true),
    RELU("stem_relu", "stem_conv"),
    CEIL_POOL(OPERATION_MAX_POOL, "stem_pool", "stem_relu", 3, 2, 0),
    LOCAL_NORM("stem_norm", "stem_pool", 5),
    CONVOLUTION("a_conv", "stem_norm", 5, 1, 1, 0, true),
    RELU("a_relu", "a_conv"),
    CONVOLUTION("b_reduce", "stem_norm", 6, 1, 1, 0, true),
    RELU("b_relu1", "b_reduce"),
    CONVOLUTION("b_conv", "b_relu1", 16, 3, 1, 1, true),
    RELU("b_relu2", "b_conv"),
    POOL(OPERATION_MAX_POOL, "c_pool", "stem_norm", 3, 1, 1),
    CONVOLUTION("c_conv", "c_pool", 3, 1, 1, 0, true),
    RELU("c_relu", "c_conv"),
    CONCAT("join", "a_relu", "b_relu2", "c_relu"),
    CEIL_POOL(OPERATION_AVERAGE_POOL, "join_pool", "join", 3, 2, 0),
    LOCAL_NORM("join_norm", "join_pool", 3),
    DROPOUT("join_drop", "join_norm", 0.25f),
    DENSE("d_dense1", "join_drop", 20),
    RELU("d_relu", "d_dense1"),
    DROPOUT("d_drop", "d_relu", 0.5f),
    DENSE("d_dense2", "d_drop", CLASSES),
    LOSS("d_dense2"),
};

static const struct operation pixels[] = {
    CONVOLUTION("stem_conv", "input", 8, 5, 2, 2, false),
    NORM("stem_norm", "stem_conv"),
    RELU("stem_relu", "stem_norm"),
    CONVOLUTION("a_conv", "stem_relu", 6, 3, 2, 1, true),
    SIGMOID("a_sigmoid", "a_conv"),
    CONVOLUTION("c_conv", "a_sigmoid", CLASSES, 1, 1, 0, true),
    UPSAMPLE("c_pixels", "c_conv", 4, 3),
    AUXILIARY(OPERATION_SQUARED_ERROR, "auxiliary", "c_pixels", 0.5),
    CONVOLUTION("b_conv", "a_sigmoid", CLASSES, 1, 1, 0, true),
    UPSAMPLE("b_pixels", "b_conv", 4, 3),
    LOSS("b_pixels"),
};

static const struct {
    const char *name;
    const struct operation *operations;
    size_t count;
} networks[] = {{"resnet", resnet, sizeof resnet / sizeof *resnet},
                {"inception", inception, sizeof inception / sizeof *inception},
                {"pixels", pixels, sizeof pixels / sizeof *pixels}};

static const struct operation *operations;
static size_t operation_count;

static const struct optimizer_options optimizer = {.momentum = 0.9, .decay = 1e-2};

/* ---- The file ---- */

static void records_read(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file)
        fail_msg("%s cannot be opened", path);
    fseek(file, 0, SEEK_END);
    const size_t bytes = (size_t)ftell(file);
    rewind(file);
    file_bytes = malloc(bytes);
    assert_int_equal(fread(file_bytes, 1, bytes, file), bytes);
    fclose(file);
    assert_memory_equal(file_bytes, "ALNREF1\n", 8);
    for (size_t at = 8; at < bytes; record_count++) {
        struct record *record = &records[record_count];
        assert_true(record_count < MOST_RECORDS && at + 40 <= bytes);
        memcpy(record, file_bytes + at, 40);
        record->numbers = (const float *)(const void *)(file_bytes + at + 40);
        at += 40 + record->count * sizeof(float);
        assert_true(at <= bytes);
    }
}

static const float *numbers_of(const char *prefix, const char *name, const char *suffix,
                               size_t count)
{
    char full[96];
    snprintf(full, sizeof full, "%s%s%s", prefix, name, suffix);
    for (size_t i = 0; i < record_count; i++)
        if (strcmp(records[i].name, full) == 0 && records[i].count == count)
            return records[i].numbers;
    fail_msg("the reference has no %zu numbers '%s'", count, full);
    return NULL;
}

/* ---- Comparing ---- */

static struct network *network_make(void)
{
    struct network *network;
    assert_int_equal(network_create(HEIGHT, WIDTH, 3, &network), ALNICO_SUCCESS);
    for (size_t i = 0; i < operation_count; i++)
        if (network_append(network, &operations[i]))
            fail_msg("%s", alnico_error_detail());
    assert_int_equal(network_finish(network), ALNICO_SUCCESS);
    return network;
}

struct comparison {
    struct replica *replica;
    const char *prefix; /* of the records */
    double tolerance, worst;
};

static void compare(struct comparison *c, const char *name, const float *got, const float *expected,
                    size_t count)
{
    double largest = 1e-3;
    for (size_t i = 0; i < count; i++)
        largest = fmax(largest, fabs((double)expected[i]));
    for (size_t i = 0; i < count; i++) {
        const double error = fabs((double)got[i] - (double)expected[i]) / largest;
        c->worst = fmax(c->worst, error);
        if (!(error <= c->tolerance))
            fail_msg(
                "%s kernels: %s%s %zu is %.9g, PyTorch has %.9g; apart by %.2g of the largest, "
                "%.2g allowed",
                c->replica->ops->name, c->prefix, name, i, (double)got[i], (double)expected[i],
                error, c->tolerance);
    }
}

/* Calls for each piece of a parameter arena that the network has. */
static void each_piece(struct comparison *c, float *arena,
                       void (*call)(struct comparison *, const char *name, float *at,
                                    const float *expected, size_t count))
{
    const struct network *network = c->replica->network;
    for (size_t i = 0; i < network->count; i++) {
        const struct node *node = &network->nodes[i];
        const char *name = node->operation.name;
        if (node->weight.count)
            call(c, name, arena + node->weight.offset,
                 numbers_of(c->prefix, name, ".weight", node->weight.count), node->weight.count);
        if (node->bias.count)
            call(c, name, arena + node->bias.offset,
                 numbers_of(c->prefix, name, ".bias", node->bias.count), node->bias.count);
    }
}

static void piece_compare(struct comparison *c, const char *name, float *at, const float *expected,
                          size_t count)
{
    compare(c, name, at, expected, count);
}

static void piece_take(struct comparison *c, const char *name, float *at, const float *expected,
                       size_t count)
{
    (void)c, (void)name;
    memcpy(at, expected, count * sizeof *at);
}

static void arena_compare(struct comparison *c, const char *prefix, const void *arena)
{
    const size_t bytes = c->replica->network->parameters * sizeof(float);
    float *values = malloc(bytes);
    c->prefix = prefix;
    assert_int_equal(replica_read(c->replica, arena, values, bytes), ALNICO_SUCCESS);
    each_piece(c, values, piece_compare);
    free(values);
}

static void statistics_compare(struct comparison *c)
{
    const struct network *network = c->replica->network;
    float *values = malloc(network->statistics * sizeof *values);
    c->prefix = "running.";
    assert_int_equal(replica_read(c->replica, c->replica->arenas.statistics, values,
                                  network->statistics * sizeof *values),
                     ALNICO_SUCCESS);
    for (size_t i = 0; i < network->count; i++) {
        const struct node *node = &network->nodes[i];
        const size_t count = 2 * network_output(network, i)->channels;
        if (node->operation.kind == OPERATION_BATCH_NORM)
            compare(c, node->operation.name, values + node->statistics.offset,
                    numbers_of("running.", node->operation.name, "", count), count);
    }
    free(values);
}

/* ---- Training ---- */

static void parameters_take(struct comparison *c)
{
    const struct network *network = c->replica->network;
    const size_t bytes = network->parameters * sizeof(float);
    float *values = malloc(bytes);
    c->prefix = "0.";
    each_piece(c, values, piece_take);
    assert_int_equal(replica_write(c->replica, c->replica->arenas.parameters, values, bytes),
                     ALNICO_SUCCESS);
    free(values);
}

/* labels: how many there are that are not missing. */
static void forward_compare(struct comparison *c, const char *prefix, size_t labels)
{
    struct replica *replica = c->replica;
    const size_t count = BATCH * replica->network->labels * CLASSES;
    double score[SCORES];
    float *output = malloc(count * sizeof *output), loss;
    const void *value = setup_value(&replica->setup, replica->network->count);
    assert_int_equal(replica_read(replica, value, output, count * sizeof *output), ALNICO_SUCCESS);
    compare(c, "log", output, numbers_of(prefix, "log", "", count), count);
    free(output);
    assert_int_equal(replica_read(replica, replica->arenas.score, score, sizeof score),
                     ALNICO_SUCCESS);
    assert_true(score[SCORE_TERMS] == (double)labels);
    loss = (float)(score[SCORE_LOSS] / (double)labels);
    compare(c, "loss", &loss, numbers_of(prefix, "loss", "", 1), 1);
    memset(score, 0, sizeof score);
    assert_int_equal(replica_write(replica, replica->arenas.score, score, sizeof score),
                     ALNICO_SUCCESS);
}

/* Loads a step's batch; returns how many labels are not missing. */
static size_t batch_load(struct replica *replica, const char *prefix)
{
    const size_t count = BATCH * replica->network->labels;
    const float *images = numbers_of(prefix, "images", "", BATCH * HEIGHT * WIDTH * 3);
    const float *classes = numbers_of(prefix, "labels", "", count);
    int32_t *labels = malloc(count * sizeof *labels);
    size_t there = 0;
    for (size_t i = 0; i < count; i++) {
        labels[i] = (int32_t)classes[i];
        there += labels[i] >= 0;
    }
    assert_int_equal(replica_load(replica, images, labels, BATCH), ALNICO_SUCCESS);
    free(labels);
    return there;
}

static void step_compare(struct comparison *c, int step)
{
    struct replica *replica = c->replica;
    const float rate = 0.1f;
    const struct draw draw = {.step = (uint32_t)step};
    char prefix[16], gradients[32];
    snprintf(prefix, sizeof prefix, "%d.", step);
    snprintf(gradients, sizeof gradients, "%d.gradient.", step);
    c->prefix = prefix;
    assert_int_equal(replica_write(replica, &replica->arenas.control[CONTROL_RATE], &rate, 4),
                     ALNICO_SUCCESS);
    assert_int_equal(replica_write(replica, replica->arenas.draw, &draw, sizeof draw),
                     ALNICO_SUCCESS);
    const size_t labels = batch_load(replica, prefix);
    assert_int_equal(replica_forward(replica, true), ALNICO_SUCCESS);
    forward_compare(c, prefix, labels);
    assert_int_equal(replica_backward(replica, NULL, NULL), ALNICO_SUCCESS);
    arena_compare(c, gradients, replica->arenas.gradients);
    assert_int_equal(replica_update(replica, &optimizer), ALNICO_SUCCESS);
    arena_compare(c, prefix, replica->arenas.parameters);
}

static void kernels_compare(const struct kernels_ops *kernels, void *stream)
{
    struct network *network = network_make();
    const struct replica_setup setup = {
        .kernels = kernels,
        .batch = BATCH,
        .options = {.threads = 1, .smoothing = 0.1f, .full_float = true},
        .gradient_type = ALNICO_FLOAT32,
        .stream = stream};
    struct comparison c = {.tolerance = tolerance};
    if (replica_create(network, &setup, &c.replica))
        fail_msg("%s kernels: %s", kernels->name, alnico_error_detail());
    parameters_take(&c);
    for (int step = 1; step <= STEPS; step++)
        step_compare(&c, step);
    statistics_compare(&c);
    printf("%s kernels%s: apart from PyTorch by at most %.2g of the largest\n", kernels->name,
           stream ? " on a stream" : "", c.worst);
    replica_destroy(c.replica);
    network_destroy(network);
}

static const struct device_ops *device; /* whose kernels are compared */

static void kernels_agree_with_pytorch(void **unused)
{
    (void)unused;
    for (size_t i = 0; kernels_all[i]; i++) {
        void *stream;
        if (kernels_all[i]->device != device->kind)
            continue;
        if (device->host_accessible)
            kernels_compare(kernels_all[i], NULL);
        assert_int_equal(device->stream_create(&stream), ALNICO_SUCCESS);
        kernels_compare(kernels_all[i], stream);
        device->stream_destroy(stream);
    }
}

int main(int argc, char **argv)
{
    if (argc != 3)
        return 2;
    const bool cuda = strcmp(argv[2], "cuda") == 0;
    device = device_find(cuda ? ALNICO_DEVICE_CUDA : ALNICO_DEVICE_CPU);
    if (!device) {
        printf("skipped: %s\n", alnico_error_detail());
        return SKIPPED;
    }
    for (size_t i = 0; i < sizeof networks / sizeof *networks; i++)
        if (strstr(argv[1], networks[i].name)) {
            operations = networks[i].operations;
            operation_count = networks[i].count;
        }
    records_read(argv[1]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(kernels_agree_with_pytorch)};
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    free(file_bytes);
    return failed;
}
