/*
 * Residual networks (He et al. 2015, "Deep residual learning for image recognition"), as data.
 *
 * ResNet-18 to -152 for large images, section 4.1: a 7x7 convolution and a max pooling, four stages
 * of blocks of two 3x3 convolutions, or of a 1x1, a 3x3 and a 1x1 with four times the filters,
 * where the 3x3 has the stride (the variant called v1.5). The last batch norm of each block begins
 * with scale 0, so that blocks begin as identities (Goyal et al. 2017, "Accurate, large minibatch
 * SGD").
 *
 * ResNet-20 for small images, section 4.2: a 3x3 convolution and three stages.
 *
 * If a stage begins with another shape, the shortcut is a 1x1 convolution with batch norm
 * (option B of the paper). The convolution is the block's first operation: backward it comes last,
 * and adds its few pixels' gradient to one that stands already. The batch norm stands just before
 * the block's last one, so that kernels can take both, the addition and the ReLU as one.
 */
#include "train/models/models.h"
#include "train/models/parts.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>

enum { MOST_STAGES = 4, EXPANSION = 4 };

struct resnet {
    size_t blocks[MOST_STAGES]; /* of each stage; 0: it has fewer stages */
    size_t filters;             /* of the first stage's 3x3 convolutions; doubled by each stage */
    bool bottleneck;            /* three convolutions in a block, not two */
    bool large;                 /* images: the wide stem, and norms that begin with 0 */
};

/* Appends an operation that reads `in` (and `other`), named block.part; `out` becomes its name. */
static alnico_status_t part(struct network *network, struct operation operation, const char *block,
                            const char *name, const char *in, const char *other, char *out)
{
    snprintf(operation.name, sizeof operation.name, "%s.%s", block, name);
    snprintf(operation.in[0], sizeof operation.in[0], "%s", in);
    snprintf(operation.in[1], sizeof operation.in[1], "%s", other);
    memcpy(out, operation.name, NETWORK_NAME_BYTES);
    return network_append(network, &operation);
}

static alnico_status_t convolution(struct network *network, const char *block, int number,
                                   size_t filters, size_t window, size_t stride, char *tensor)
{
    const struct operation operation = part_convolution(filters, window, stride);
    char name[8];
    snprintf(name, sizeof name, "conv%d", number);
    return part(network, operation, block, name, tensor, "", tensor);
}

static alnico_status_t norm(struct network *network, const char *block, int number, bool zero,
                            char *tensor)
{
    const struct operation operation = {.kind = OPERATION_BATCH_NORM, .zero = zero};
    char name[8];
    snprintf(name, sizeof name, "norm%d", number);
    return part(network, operation, block, name, tensor, "", tensor);
}

static alnico_status_t relu(struct network *network, const char *block, int number, char *tensor)
{
    char name[8];
    snprintf(name, sizeof name, "relu%d", number);
    return part(network, (struct operation){.kind = OPERATION_RELU}, block, name, tensor, "",
                tensor);
}

static alnico_status_t convolution_norm_relu(struct network *network, const char *block, int number,
                                             size_t filters, size_t window, size_t stride,
                                             char *tensor)
{
    TRY(convolution(network, block, number, filters, window, stride, tensor));
    TRY(norm(network, block, number, false, tensor));
    return relu(network, block, number, tensor);
}

/* A shape of blocks: `project` says whether the shortcut has a convolution. */
struct block {
    char name[24];
    size_t filters, stride;
    bool project;
};

static alnico_status_t residual(struct network *network, const struct resnet *resnet,
                                const struct block *block, char *tensor)
{
    const int last = resnet->bottleneck ? 3 : 2;
    const size_t out = block->filters * (resnet->bottleneck ? EXPANSION : 1);
    const struct operation add = {.kind = OPERATION_ADD};
    const char *name = block->name;
    char shortcut[NETWORK_NAME_BYTES];
    memcpy(shortcut, tensor, sizeof shortcut);
    if (block->project)
        TRY(convolution(network, name, 0, out, 1, block->stride, shortcut));
    if (resnet->bottleneck) {
        TRY(convolution_norm_relu(network, name, 1, block->filters, 1, 1, tensor));
        TRY(convolution_norm_relu(network, name, 2, block->filters, 3, block->stride, tensor));
        TRY(convolution(network, name, 3, out, 1, 1, tensor));
    } else {
        TRY(convolution_norm_relu(network, name, 1, block->filters, 3, block->stride, tensor));
        TRY(convolution(network, name, 2, out, 3, 1, tensor));
    }
    if (block->project)
        TRY(norm(network, name, 0, false, shortcut));
    TRY(norm(network, name, last, resnet->large, tensor));
    TRY(part(network, add, name, "add", tensor, shortcut, tensor));
    return relu(network, name, last, tensor);
}

static alnico_status_t stem(struct network *network, const struct resnet *resnet, char *tensor)
{
    const struct operation pool = {.kind = OPERATION_MAX_POOL, .window = 3, .stride = 2, .pad = 1};
    if (!resnet->large)
        return convolution_norm_relu(network, "stem", 1, resnet->filters, 3, 1, tensor);
    TRY(convolution_norm_relu(network, "stem", 1, resnet->filters, 7, 2, tensor));
    return part(network, pool, "stem", "pool", tensor, "", tensor);
}

static alnico_status_t head(struct network *network, size_t classes, char *tensor)
{
    const struct operation pool = {.kind = OPERATION_AVERAGE_POOL};
    const struct operation dense = {.kind = OPERATION_DENSE, .filters = classes};
    const struct operation loss = {.kind = OPERATION_CROSS_ENTROPY};
    TRY(part(network, pool, "head", "pool", tensor, "", tensor));
    TRY(part(network, dense, "head", "dense", tensor, "", tensor));
    return part(network, loss, "head", "loss", tensor, "", tensor);
}

static alnico_status_t resnet_build(struct network *network, const void *design, size_t classes)
{
    const struct resnet *resnet = design;
    char tensor[NETWORK_NAME_BYTES] = "input";
    TRY(stem(network, resnet, tensor));
    for (size_t stage = 0; stage < MOST_STAGES; stage++)
        for (size_t i = 0; i < resnet->blocks[stage]; i++) {
            const bool first = i == 0;
            struct block block = {.filters = resnet->filters << stage,
                                  .stride = first && stage ? 2 : 1,
                                  .project = first && (stage || resnet->bottleneck)};
            snprintf(block.name, sizeof block.name, "%d.%d", (int)stage + 1, (int)i + 1);
            TRY(residual(network, resnet, &block, tensor));
        }
    return head(network, classes, tensor);
}

#define RESNET(DEPTH, SIDE, CLASSES, ...)                                                          \
    const struct model model_resnet##DEPTH = {.name = "resnet" #DEPTH,                             \
                                              .about = "ResNet-" #DEPTH " of He et al. 2015",      \
                                              .build = resnet_build,                               \
                                              .design = &(const struct resnet){__VA_ARGS__},       \
                                              .images = {SIDE, SIDE, 3, CLASSES}}

RESNET(18, 224, 1000, {2, 2, 2, 2}, 64, false, true);
RESNET(34, 224, 1000, {3, 4, 6, 3}, 64, false, true);
RESNET(50, 224, 1000, {3, 4, 6, 3}, 64, true, true);
RESNET(101, 224, 1000, {3, 4, 23, 3}, 64, true, true);
RESNET(152, 224, 1000, {3, 8, 36, 3}, 64, true, true);
RESNET(20, 32, 10, {3, 3, 3, 0}, 16, false, false);
