/* Small networks that between them have every operation, every fused run and odd shapes; and what
 * the tests of the trainer share: random numbers with a printed seed. */
#ifndef ALNICO_TESTS_TRAIN_CASES_H
#define ALNICO_TESTS_TRAIN_CASES_H

#include "train/base/random.h"
#include "train/graph/split.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { CASE_OPERATIONS = 12 };

struct network_case {
    const char *name;
    size_t batch, height, width, channels;
    struct operation operations[CASE_OPERATIONS]; /* up to the first without a name */
    size_t runs; /* steps that the fusing kernels make of it; 0: any number */
};

#define CONVOLUTION(NAME, IN, FILTERS, WINDOW, STRIDE, PAD, BIAS)                                  \
    {                                                                                              \
        .kind = OPERATION_CONVOLUTION, .name = NAME, .in = {IN}, .filters = FILTERS,               \
        .window = WINDOW, .stride = STRIDE, .pad = PAD, .bias = BIAS                               \
    }
#define POOL(KIND, NAME, IN, WINDOW, STRIDE, PAD)                                                  \
    {                                                                                              \
        .kind = KIND, .name = NAME, .in = {IN}, .window = WINDOW, .stride = STRIDE, .pad = PAD     \
    }
#define CEIL_POOL(KIND, NAME, IN, WINDOW, STRIDE, PAD)                                             \
    {                                                                                              \
        .kind = KIND, .name = NAME, .in = {IN}, .window = WINDOW, .stride = STRIDE, .pad = PAD,    \
        .ceil = true                                                                               \
    }
#define LOCAL_NORM(NAME, IN, WINDOW)                                                               \
    {                                                                                              \
        .kind = OPERATION_LOCAL_NORM, .name = NAME, .in = {IN}, .window = WINDOW, .alpha = 0.8f,   \
        .beta = 0.75f, .k = 1                                                                      \
    }
#define DROPOUT(NAME, IN, RATE)                                                                    \
    {                                                                                              \
        .kind = OPERATION_DROPOUT, .name = NAME, .in = {IN}, .rate = RATE                          \
    }
#define CONCAT(NAME, ...)                                                                          \
    {                                                                                              \
        .kind = OPERATION_CONCAT, .name = NAME, .in = { __VA_ARGS__ }                              \
    }
#define UNARY(KIND, NAME, IN)                                                                      \
    {                                                                                              \
        .kind = KIND, .name = NAME, .in = { IN }                                                   \
    }
#define ADD(NAME, A, B)                                                                            \
    {                                                                                              \
        .kind = OPERATION_ADD, .name = NAME, .in = { A, B }                                        \
    }
#define DENSE(NAME, IN, FILTERS)                                                                   \
    {                                                                                              \
        .kind = OPERATION_DENSE, .name = NAME, .in = {IN}, .filters = FILTERS                      \
    }
#define NORM(NAME, IN) UNARY(OPERATION_BATCH_NORM, NAME, IN)
#define RELU(NAME, IN) UNARY(OPERATION_RELU, NAME, IN)
#define SIGMOID(NAME, IN) UNARY(OPERATION_SIGMOID, NAME, IN)
#define UPSAMPLE(NAME, IN, FACTOR, CUT)                                                            \
    {                                                                                              \
        .kind = OPERATION_UPSAMPLE, .name = NAME, .in = {IN}, .stride = FACTOR, .pad = CUT         \
    }
#define LOSS(IN) UNARY(OPERATION_CROSS_ENTROPY, "loss", IN)
#define SQUARED(IN) UNARY(OPERATION_SQUARED_ERROR, "loss", IN)
#define AUXILIARY(KIND, NAME, IN, WEIGHT)                                                          \
    {                                                                                              \
        .kind = KIND, .name = NAME, .in = {IN}, .loss_weight = WEIGHT                              \
    }

/* A way to split a network; by channels all that has filters. */
static inline struct split case_split(const struct network *whole, const char *way)
{
    struct split split;
    char text[128];
    snprintf(text, sizeof text, "%s..%s:%s", whole->nodes[0].operation.name,
             whole->nodes[whole->count - 1].operation.name, way);
    if (split_parse(strncmp(way, "channels", 8) == 0 ? text : way, &split) != ALNICO_SUCCESS)
        abort();
    return split;
}

static const struct network_case network_cases[] = {
    {"cross-entropy", 5, 1, 1, 7, {LOSS("input")}, 1},
    {"dense", 3, 4, 3, 2, {DENSE("d", "input", 5), LOSS("d")}, 2},
    {"dense on dense", 4, 3, 3, 1, {DENSE("a", "input", 17), DENSE("b", "a", 3), LOSS("b")}, 3},
    {"convolution",
     2,
     6,
     5,
     3,
     {CONVOLUTION("a", "input", 5, 3, 1, 1, true), CONVOLUTION("b", "a", 7, 3, 1, 1, false),
      DENSE("d", "b", 4), LOSS("d")},
     4},
    {"strided convolution, odd sides",
     3,
     9,
     6,
     2,
     {CONVOLUTION("a", "input", 4, 3, 2, 1, true), CONVOLUTION("b", "a", 3, 2, 3, 0, true),
      DENSE("d", "b", 3), LOSS("d")},
     4},
    {"convolution 5x5 and 1x1",
     2,
     7,
     8,
     1,
     {CONVOLUTION("a", "input", 3, 5, 1, 2, false), CONVOLUTION("b", "a", 2, 1, 2, 0, true),
      DENSE("d", "b", 3), LOSS("d")},
     4},
    {"convolution in blocks",
     2,
     5,
     5,
     3,
     {CONVOLUTION("a", "input", 16, 3, 1, 1, true), CONVOLUTION("b", "a", 32, 3, 2, 1, true),
      CONVOLUTION("c", "b", 16, 1, 1, 0, true), DENSE("d", "c", 5), LOSS("d")},
     5},
    {"relu",
     3,
     4,
     4,
     3,
     {CONVOLUTION("a", "input", 6, 3, 1, 1, true), RELU("r", "a"), DENSE("d", "r", 4), LOSS("d")},
     4},
    {"batch norm",
     4,
     3,
     5,
     2,
     {CONVOLUTION("a", "input", 3, 3, 1, 1, false), NORM("n", "a"), DENSE("d", "n", 4), LOSS("d")},
     4},
    {"batch norm of the images",
     4,
     3,
     3,
     3,
     {NORM("n", "input"), DENSE("d", "n", 4), LOSS("d")},
     3},
    {"batch norm, relu",
     3,
     5,
     3,
     2,
     {CONVOLUTION("a", "input", 5, 3, 1, 1, false), NORM("n", "a"), RELU("r", "n"),
      DENSE("d", "r", 4), LOSS("d")},
     4},
    {"batch norm, relu in blocks",
     3,
     5,
     3,
     1,
     {CONVOLUTION("a", "input", 32, 3, 1, 1, false), NORM("n", "a"), RELU("r", "n"),
      DENSE("d", "r", 4), LOSS("d")},
     4},
    {"batch norm read twice",
     3,
     4,
     3,
     2,
     {CONVOLUTION("a", "input", 3, 3, 1, 1, false), NORM("n", "a"), RELU("r", "n"),
      ADD("s", "r", "n"), DENSE("d", "s", 4), LOSS("d")},
     6},
    {"addition",
     3,
     4,
     3,
     2,
     {CONVOLUTION("a", "input", 3, 3, 1, 1, false), CONVOLUTION("b", "input", 3, 1, 1, 0, true),
      ADD("s", "a", "b"), DENSE("d", "s", 4), LOSS("d")},
     5},
    {"addition of a tensor to itself",
     3,
     4,
     3,
     2,
     {CONVOLUTION("a", "input", 3, 3, 1, 1, true), ADD("s", "a", "a"), DENSE("d", "s", 4),
      LOSS("d")},
     4},
    {"addition of the images, relu",
     3,
     4,
     3,
     2,
     {CONVOLUTION("a", "input", 2, 3, 1, 1, true), ADD("s", "input", "a"), RELU("r", "s"),
      DENSE("d", "r", 4), LOSS("d")},
     4},
    {"addition, relu",
     2,
     4,
     3,
     2,
     {CONVOLUTION("a", "input", 4, 3, 1, 1, true), CONVOLUTION("b", "a", 4, 3, 1, 1, true),
      ADD("s", "b", "a"), RELU("r", "s"), DENSE("d", "r", 4), LOSS("d")},
     5},
    {"addition, relu, both read again",
     2,
     4,
     3,
     2,
     {CONVOLUTION("a", "input", 4, 3, 1, 1, true), CONVOLUTION("b", "a", 4, 3, 1, 1, true),
      ADD("s", "b", "a"), RELU("r", "s"), ADD("t", "r", "b"), ADD("u", "t", "a"),
      DENSE("d", "u", 4), LOSS("d")},
     7},
    {"strided shortcut",
     3,
     7,
     5,
     2,
     {CONVOLUTION("a", "input", 4, 3, 1, 1, true), CONVOLUTION("s", "a", 6, 1, 2, 0, false),
      CONVOLUTION("b", "a", 6, 3, 2, 1, true), ADD("t", "b", "s"), RELU("r", "t"),
      DENSE("d", "r", 4), LOSS("d")},
     6},
    {"batch norm, addition, relu",
     3,
     4,
     3,
     2,
     {CONVOLUTION("a", "input", 4, 3, 1, 1, true), CONVOLUTION("b", "a", 4, 3, 1, 1, false),
      NORM("n", "b"), ADD("s", "n", "a"), RELU("r", "s"), DENSE("d", "r", 4), LOSS("d")},
     5},
    {"batch norm, addition of images, relu",
     3,
     4,
     3,
     2,
     {CONVOLUTION("a", "input", 2, 3, 1, 1, true), NORM("n", "a"), ADD("s", "n", "input"),
      RELU("r", "s"), DENSE("d", "r", 4), LOSS("d")},
     4},
    {"batch norm, addition, relu, addend read again",
     3,
     4,
     3,
     2,
     {CONVOLUTION("a", "input", 16, 3, 1, 1, true), CONVOLUTION("b", "a", 16, 3, 1, 1, false),
      NORM("n", "b"), ADD("s", "n", "a"), RELU("r", "s"), ADD("t", "r", "a"), ADD("u", "t", "b"),
      DENSE("d", "u", 4), LOSS("d")},
     7},
    {"batch norm added to its own input",
     3,
     4,
     3,
     2,
     {CONVOLUTION("a", "input", 3, 3, 1, 1, true), NORM("n", "a"), ADD("s", "n", "a"),
      RELU("r", "s"), DENSE("d", "r", 4), LOSS("d")},
     5},
    {"max pooling",
     3,
     6,
     4,
     2,
     {CONVOLUTION("a", "input", 3, 3, 1, 1, true), POOL(OPERATION_MAX_POOL, "p", "a", 2, 2, 0),
      DENSE("d", "p", 4), LOSS("d")},
     4},
    {"overlapping max pooling with pad",
     2,
     7,
     5,
     2,
     {CONVOLUTION("a", "input", 16, 3, 1, 1, true), POOL(OPERATION_MAX_POOL, "p", "a", 3, 2, 1),
      DENSE("d", "p", 4), LOSS("d")},
     4},
    {"average pooling",
     3,
     6,
     5,
     2,
     {CONVOLUTION("a", "input", 3, 3, 1, 1, true), POOL(OPERATION_AVERAGE_POOL, "p", "a", 2, 2, 0),
      DENSE("d", "p", 4), LOSS("d")},
     4},
    {"overlapping average pooling with pad",
     2,
     7,
     5,
     2,
     {CONVOLUTION("a", "input", 16, 3, 1, 1, true), POOL(OPERATION_AVERAGE_POOL, "p", "a", 3, 2, 1),
      DENSE("d", "p", 4), LOSS("d")},
     4},
    {"average over the image",
     3,
     5,
     4,
     2,
     {CONVOLUTION("a", "input", 5, 3, 1, 1, true), POOL(OPERATION_AVERAGE_POOL, "p", "a", 0, 0, 0),
      DENSE("d", "p", 4), LOSS("d")},
     4},
    {"pools read by three",
     2,
     6,
     6,
     2,
     {CONVOLUTION("a", "input", 4, 3, 1, 1, true), POOL(OPERATION_MAX_POOL, "p", "a", 3, 1, 1),
      POOL(OPERATION_AVERAGE_POOL, "q", "a", 3, 1, 1), RELU("r", "a"), ADD("s", "p", "q"),
      ADD("t", "s", "r"), DENSE("d", "t", 4), LOSS("d")},
     8},
    {"max pooling that counts up",
     2,
     7,
     6,
     2,
     {CONVOLUTION("a", "input", 16, 3, 1, 1, true),
      CEIL_POOL(OPERATION_MAX_POOL, "p", "a", 3, 2, 0), DENSE("d", "p", 4), LOSS("d")},
     4},
    {"poolings that count up, with pad",
     2,
     8,
     6,
     2,
     {CONVOLUTION("a", "input", 3, 3, 1, 1, true), CEIL_POOL(OPERATION_MAX_POOL, "p", "a", 3, 3, 1),
      CEIL_POOL(OPERATION_AVERAGE_POOL, "q", "a", 3, 3, 1), ADD("s", "p", "q"), DENSE("d", "s", 4),
      LOSS("d")},
     6},
    {"average pooling that counts up",
     2,
     8,
     5,
     2,
     {CONVOLUTION("a", "input", 16, 3, 1, 1, true),
      CEIL_POOL(OPERATION_AVERAGE_POOL, "p", "a", 3, 2, 0), DENSE("d", "p", 4), LOSS("d")},
     4},
    {"local norms",
     2,
     4,
     3,
     2,
     {CONVOLUTION("a", "input", 13, 3, 1, 1, true), LOCAL_NORM("m", "a", 5),
      CONVOLUTION("b", "m", 16, 1, 1, 0, true), LOCAL_NORM("n", "b", 3), LOCAL_NORM("o", "n", 9),
      DENSE("d", "o", 4), LOSS("d")},
     7},
    {"local norm read twice",
     2,
     4,
     3,
     3,
     {CONVOLUTION("a", "input", 16, 3, 1, 1, true), RELU("r", "a"), LOCAL_NORM("n", "r", 5),
      ADD("s", "n", "r"), DENSE("d", "s", 4), LOSS("d")},
     6},
    {"local norm and dropout of the images",
     3,
     4,
     3,
     5,
     {LOCAL_NORM("n", "input", 3), DROPOUT("p", "input", 0.25f), ADD("s", "n", "p"),
      DENSE("d", "s", 4), LOSS("d")},
     5},
    {"dropout",
     3,
     4,
     3,
     2,
     {CONVOLUTION("a", "input", 5, 3, 1, 1, true), DROPOUT("p", "a", 0.5f),
      CONVOLUTION("b", "p", 16, 3, 1, 1, true), DROPOUT("q", "b", 0.25f), ADD("s", "q", "b"),
      DENSE("d", "s", 4), LOSS("d")},
     7},
    {"relu, dropout",
     5,
     4,
     3,
     2,
     {CONVOLUTION("a", "input", 6, 3, 1, 1, true), RELU("r", "a"), DROPOUT("p", "r", 0.25f),
      DENSE("b", "p", 19), RELU("t", "b"), DROPOUT("q", "t", 0.5f), DENSE("d", "q", 4), LOSS("d")},
     8},
    {"concat",
     2,
     4,
     3,
     2,
     {CONVOLUTION("a", "input", 3, 3, 1, 1, true), CONVOLUTION("b", "a", 16, 1, 1, 0, true),
      CONVOLUTION("c", "input", 13, 3, 1, 1, true), CONCAT("j", "a", "b", "c"), DENSE("d", "j", 4),
      LOSS("d")},
     6},
    {"concat in blocks, parts read again",
     2,
     3,
     3,
     2,
     {CONVOLUTION("a", "input", 32, 3, 1, 1, true), RELU("r", "a"),
      CONVOLUTION("b", "r", 16, 1, 1, 0, true), CONVOLUTION("c", "r", 16, 3, 1, 1, true),
      ADD("s", "b", "c"), CONCAT("j", "s", "r", "b"), DENSE("d", "j", 4), LOSS("d")},
     8},
    {"concat of convolutions and relus",
     2,
     4,
     3,
     3,
     {CONVOLUTION("a", "input", 8, 3, 1, 1, true), RELU("r", "a"),
      CONVOLUTION("b", "r", 16, 3, 1, 1, true), RELU("s", "b"),
      CONVOLUTION("c", "r", 24, 1, 1, 0, false), RELU("t", "c"), CONCAT("j", "t", "s"),
      CONVOLUTION("e", "j", 5, 3, 1, 1, true), ADD("u", "e", "e"), DENSE("d", "u", 4), LOSS("d")},
     11},
    {"concat of a tensor with itself and the images",
     2,
     4,
     3,
     3,
     {CONVOLUTION("a", "input", 8, 3, 1, 1, true), CONCAT("j", "a", "input", "a", "a"),
      CONVOLUTION("b", "j", 5, 3, 1, 1, true), DENSE("d", "b", 4), LOSS("d")},
     5},
    {"dense read twice",
     3,
     2,
     2,
     3,
     {DENSE("a", "input", 6), RELU("r", "a"), DENSE("b", "a", 6), ADD("s", "r", "b"),
      DENSE("d", "s", 4), LOSS("d")},
     6},
    {"cross-entropy of pixels of the images", 3, 3, 2, 5, {LOSS("input")}, 1},
    {"cross-entropy of pixels",
     3,
     5,
     4,
     2,
     {CONVOLUTION("a", "input", 3, 3, 1, 1, true), LOSS("a")},
     2},
    {"cross-entropy of pixels in blocks, read twice",
     2,
     4,
     3,
     2,
     {CONVOLUTION("a", "input", 32, 3, 1, 1, true),
      AUXILIARY(OPERATION_SQUARED_ERROR, "x", "a", 0.5), RELU("r", "a"), LOSS("r")},
     4},
    {"cross-entropy of upsampled pixels",
     2,
     7,
     7,
     3,
     {CONVOLUTION("a", "input", 4, 3, 2, 1, false), NORM("n", "a"), RELU("r", "n"),
      CONVOLUTION("b", "r", 2, 3, 2, 1, true), UPSAMPLE("u", "b", 4, 1), LOSS("u")},
     5},
    {"a small mesh",
     3,
     11,
     11,
     18,
     {CONVOLUTION("a", "input", 16, 5, 2, 2, false), NORM("n", "a"), RELU("r", "n"),
      CONVOLUTION("b", "r", 24, 3, 2, 1, false), NORM("m", "b"), RELU("s", "m"),
      CONVOLUTION("c", "s", 2, 1, 1, 0, true), UPSAMPLE("u", "c", 4, 1), LOSS("u")},
     7},
    {"squared error of a number",
     4,
     1,
     1,
     3,
     {DENSE("d", "input", 1), SIGMOID("s", "d"), SQUARED("s")},
     3},
    {"squared error of logits", 3, 2, 2, 2, {DENSE("d", "input", 1), SQUARED("d")}, 2},
    {"squared error of classes", 3, 4, 3, 2, {DENSE("d", "input", 5), SQUARED("d")}, 2},
    {"squared error of pixels",
     2,
     3,
     5,
     2,
     {CONVOLUTION("a", "input", 1, 3, 1, 1, true), SQUARED("a")},
     2},
    {"squared error of many classes of pixels in blocks",
     2,
     3,
     2,
     2,
     {CONVOLUTION("a", "input", 48, 1, 1, 0, true), SQUARED("a")},
     2},
    {"auxiliary heads",
     3,
     6,
     5,
     2,
     {CONVOLUTION("a", "input", 6, 3, 1, 1, true), DENSE("e", "a", 5),
      AUXILIARY(OPERATION_CROSS_ENTROPY, "x", "e", 0.3),
      POOL(OPERATION_MAX_POOL, "p", "a", 2, 2, 0), DENSE("f", "p", 5),
      AUXILIARY(OPERATION_SQUARED_ERROR, "y", "f", 2), DENSE("d", "p", 5), LOSS("d")},
     8},
    {"sigmoid",
     3,
     4,
     4,
     3,
     {DENSE("a", "input", 6), SIGMOID("s", "a"), DENSE("d", "s", 4), LOSS("d")},
     4},
    {"sigmoids of the images and in blocks, read twice",
     2,
     5,
     3,
     2,
     {SIGMOID("s", "input"), CONVOLUTION("a", "s", 32, 3, 1, 1, true), SIGMOID("t", "a"),
      ADD("u", "t", "a"), DENSE("d", "u", 4), LOSS("d")},
     6},
    {"upsampling",
     3,
     3,
     2,
     2,
     {CONVOLUTION("a", "input", 3, 3, 1, 1, true), UPSAMPLE("u", "a", 2, 0),
      CONVOLUTION("b", "u", 2, 3, 1, 1, true), DENSE("d", "b", 4), LOSS("d")},
     5},
    {"upsampling in blocks, cut, read twice",
     2,
     3,
     4,
     2,
     {CONVOLUTION("a", "input", 32, 3, 1, 1, true), UPSAMPLE("u", "a", 3, 2), RELU("r", "a"),
      POOL(OPERATION_AVERAGE_POOL, "p", "r", 0, 0, 0), POOL(OPERATION_MAX_POOL, "q", "u", 2, 2, 0),
      DENSE("e", "q", 32), ADD("s", "e", "p"), DENSE("d", "s", 4), LOSS("d")},
     9},
    {"upsampling of the images into blocks, by a large factor",
     2,
     2,
     1,
     16,
     {UPSAMPLE("u", "input", 9, 4), CONVOLUTION("a", "u", 3, 3, 2, 1, true), DENSE("d", "a", 4),
      LOSS("d")},
     4},
};
enum { NETWORK_CASES = sizeof network_cases / sizeof *network_cases };

/* The finished network of a case; what goes wrong ends the program with a message. */
static inline struct network *case_network(const struct network_case *c)
{
    struct network *network = NULL;
    alnico_status_t status = network_create(c->height, c->width, c->channels, &network);
    for (size_t i = 0; !status && i < CASE_OPERATIONS && c->operations[i].name[0]; i++)
        status = network_append(network, &c->operations[i]);
    if (!status)
        status = network_finish(network);
    if (status) {
        fprintf(stderr, "case '%s': %s\n", c->name, alnico_error_detail());
        exit(1);
    }
    return network;
}

/* A seed from ALNICO_TEST_SEED or the clock, printed. */
static inline uint64_t test_seed(void)
{
    const char *text = getenv("ALNICO_TEST_SEED");
    const uint64_t seed = text ? strtoull(text, NULL, 0) : (uint64_t)time(NULL);
    printf("seed: ALNICO_TEST_SEED=%llu\n", (unsigned long long)seed);
    return seed;
}

/* Labels of a batch, some pixels of which have none. The caller frees them. */
static inline int32_t *random_labels(const struct network *network, size_t batch, uint64_t *state)
{
    const size_t count = batch * network->labels,
                 classes = network->classes < NETWORK_MAX_SIDE ? network->classes : 3;
    int32_t *labels = calloc(count, sizeof *labels);
    if (!labels)
        exit(1);
    for (size_t i = 0; i < count; i++) {
        labels[i] = (int32_t)(random_next(state) % classes);
        if (network->labels > 1 && random_next(state) % 5 == 0)
            labels[i] = -1;
    }
    return labels;
}

/* Numbers between -1 and 1. */
static inline void random_fill(float *out, size_t count, uint64_t *state)
{
    for (size_t i = 0; i < count; i++)
        out[i] = (float)(2 * random_unit(state) - 1);
}

#endif
