/*
 * GoogLeNet (Szegedy et al. 2014, "Going deeper with convolutions"), as data: without batch norm, with
 * the local norms (k = 1) and poolings that count up (ceil) of its Caffe model. An inception is four
 * branches that read one tensor: 1x1; 1x1, 3x3; 1x1, 5x5; maximum pooling, 1x1; joined by their
 * channels. 6,998,552 parameters for 1000 classes; 13,378,280 with the auxiliary heads behind 4a and 4d.
 */
#include "train/models/parts.h"

#include "train/models/models.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>

/* Filters of an inception: of the 1x1, of the 3x3 and the 1x1 before it, of the 5x5, of the pooling's. */
struct inception {
    const char *name;
    size_t one, reduce3, three, reduce5, five, pool;
    bool pooled;      /* a maximum pooling of stride 2 follows */
    const char *head; /* an auxiliary one reads it; NULL: none */
};

static const struct inception inceptions[] = {{"3a", 64, 96, 128, 16, 32, 32, false, NULL},
                                              {"3b", 128, 128, 192, 32, 96, 64, true, NULL},
                                              {"4a", 192, 96, 208, 16, 48, 64, false, "aux1"},
                                              {"4b", 160, 112, 224, 24, 64, 64, false, NULL},
                                              {"4c", 128, 128, 256, 24, 64, 64, false, NULL},
                                              {"4d", 112, 144, 288, 32, 64, 64, false, "aux2"},
                                              {"4e", 256, 160, 320, 32, 128, 128, true, NULL},
                                              {"5a", 256, 160, 320, 32, 128, 128, false, NULL},
                                              {"5b", 384, 192, 384, 48, 128, 128, false, NULL}};

static const struct operation stride_pool = {
    .kind = OPERATION_MAX_POOL, .window = 3, .stride = 2, .ceil = true};

/* A convolution that keeps the sides, or with stride 2 halves them, and a ReLU. */
static alnico_status_t convolution(struct network *network, const char *prefix, const char *name,
                                   size_t filters, size_t window, size_t stride, char *tensor)
{
    const struct operation operation = part_convolution(filters, window, stride);
    char full[NETWORK_NAME_BYTES - 8];
    snprintf(full, sizeof full, "%s.%s", prefix, name);
    return part_linear_relu(network, operation, full, tensor);
}

/* A branch of a 1x1 convolution and one of a larger window, which reads what the first makes. */
static alnico_status_t branch(struct network *network, const char *prefix, size_t reduce,
                              size_t filters, size_t window, char *tensor)
{
    char name[16];
    snprintf(name, sizeof name, "reduce%zu", window);
    TRY(convolution(network, prefix, name, reduce, 1, 1, tensor));
    snprintf(name, sizeof name, "conv%zu", window);
    return convolution(network, prefix, name, filters, window, 1, tensor);
}

static alnico_status_t inception(struct network *network, const struct inception *i, char *tensor)
{
    const struct operation pool = {.kind = OPERATION_MAX_POOL, .window = 3, .stride = 1, .pad = 1};
    struct operation join = {.kind = OPERATION_CONCAT};
    for (int k = 0; k < 4; k++)
        memcpy(join.in[k], tensor, NETWORK_NAME_BYTES);
    TRY(convolution(network, i->name, "conv1", i->one, 1, 1, join.in[0]));
    TRY(branch(network, i->name, i->reduce3, i->three, 3, join.in[1]));
    TRY(branch(network, i->name, i->reduce5, i->five, 5, join.in[2]));
    TRY(part_append(network, pool, i->name, ".pool", join.in[3]));
    TRY(convolution(network, i->name, "project", i->pool, 1, 1, join.in[3]));
    memcpy(tensor, join.in[0], NETWORK_NAME_BYTES);
    TRY(part_append(network, join, i->name, ".join", tensor));
    return i->pooled ? part_append(network, stride_pool, i->name, ".end", tensor) : ALNICO_SUCCESS;
}

static alnico_status_t stem(struct network *network, char *tensor)
{
    TRY(convolution(network, "stem", "conv1", 64, 7, 2, tensor));
    TRY(part_append(network, stride_pool, "stem", ".pool1", tensor));
    TRY(part_append(network, part_local_norm(1), "stem", ".norm1", tensor));
    TRY(branch(network, "stem", 64, 192, 3, tensor));
    TRY(part_append(network, part_local_norm(1), "stem", ".norm2", tensor));
    return part_append(network, stride_pool, "stem", ".pool2", tensor);
}

/* Dropout, a dense layer and the loss; `weight`: of the loss, 0: 1. */
static alnico_status_t head(struct network *network, const char *prefix, size_t classes, float rate,
                            double weight, char *tensor)
{
    const struct operation drop = {.kind = OPERATION_DROPOUT, .rate = rate};
    const struct operation dense = {.kind = OPERATION_DENSE, .filters = classes};
    const struct operation loss = {.kind = OPERATION_CROSS_ENTROPY, .loss_weight = weight};
    TRY(part_append(network, drop, prefix, ".drop", tensor));
    TRY(part_append(network, dense, prefix, ".dense", tensor));
    return part_append(network, loss, prefix, ".loss", tensor);
}

/* Reads `tensor`, which stays. */
static alnico_status_t auxiliary_head(struct network *network, const char *prefix, size_t classes,
                                      const char *tensor)
{
    const struct operation pool = {.kind = OPERATION_AVERAGE_POOL, .window = 5, .stride = 3};
    const struct operation dense = {.kind = OPERATION_DENSE, .filters = 1024};
    char at[NETWORK_NAME_BYTES], name[16];
    memcpy(at, tensor, sizeof at);
    snprintf(name, sizeof name, "%s.hidden", prefix);
    TRY(part_append(network, pool, prefix, ".pool", at));
    TRY(convolution(network, prefix, "conv", 128, 1, 1, at));
    TRY(part_linear_relu(network, dense, name, at));
    return head(network, prefix, classes, 0.7f, 0.3, at);
}

static alnico_status_t googlenet_build(struct network *network, const void *design, size_t classes)
{
    const bool *heads = design;
    char tensor[NETWORK_NAME_BYTES] = "input";
    TRY(stem(network, tensor));
    for (size_t i = 0; i < sizeof inceptions / sizeof *inceptions; i++) {
        TRY(inception(network, &inceptions[i], tensor));
        if (*heads && inceptions[i].head)
            TRY(auxiliary_head(network, inceptions[i].head, classes, tensor));
    }
    TRY(part_append(network, (struct operation){.kind = OPERATION_AVERAGE_POOL}, "head", ".pool",
                    tensor));
    return head(network, "head", classes, 0.4f, 0, tensor);
}

const struct model model_googlenet = {
    .name = "googlenet",
    .about = "GoogLeNet of Szegedy et al. 2014, without auxiliary heads",
    .build = googlenet_build,
    .design = &(const bool){false},
    .images = {224, 224, 3, 1000},
    .rate = 0.1,
};

const struct model model_googlenet_aux = {
    .name = "googlenet-aux",
    .about = "GoogLeNet with both auxiliary heads, whose losses count 0.3",
    .build = googlenet_build,
    .design = &(const bool){true},
    .images = {224, 224, 3, 1000},
    .rate = 0.1,
};
