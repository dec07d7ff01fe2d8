/*
 * AlexNet (Krizhevsky, Sutskever, Hinton 2012, "ImageNet classification with deep convolutional neural
 * networks"), on one device, so without groups: five convolutions, local norms with k = 2, overlapping
 * maximum poolings, three dense layers, dropout. For 227x227x3 and 1000 classes 62,378,344 parameters.
 *
 * alexnet-cifar is a small one for images of 28x28 or 32x32 pixels: 5x5 convolutions of 64 filters
 * without stride, 3x3 ones of 128, and dense layers of 512; 1,334,474 parameters for 32x32x3 and 10
 * classes.
 */
#include "train/models/parts.h"

#include "train/models/models.h"

#include "base/status.h"

#include <stdio.h>

enum { CONVOLUTIONS = 5, DENSES = 2 };

struct alexnet {
    struct {
        size_t filters, window, stride, pad;
    } convolutions[CONVOLUTIONS];
    size_t dense; /* outputs of the first dense layers */
};

/* The first two have a norm and a pooling behind them, the last one a pooling. */
static alnico_status_t features(struct network *network, const struct alexnet *design, char *tensor)
{
    const struct operation pool = {.kind = OPERATION_MAX_POOL, .window = 3, .stride = 2};
    for (size_t i = 0; i < CONVOLUTIONS; i++) {
        const struct operation convolution = {.kind = OPERATION_CONVOLUTION,
                                              .filters = design->convolutions[i].filters,
                                              .window = design->convolutions[i].window,
                                              .stride = design->convolutions[i].stride,
                                              .pad = design->convolutions[i].pad};
        char name[8];
        snprintf(name, sizeof name, "conv%d", (int)i + 1);
        TRY(part_linear_relu(network, convolution, name, tensor));
        if (i < 2)
            TRY(part_append(network, part_local_norm(2), name, ".norm", tensor));
        if (i < 2 || i + 1 == CONVOLUTIONS)
            TRY(part_append(network, pool, name, ".pool", tensor));
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t alexnet_build(struct network *network, const void *pointer, size_t classes)
{
    const struct alexnet *design = pointer;
    const struct operation dense = {.kind = OPERATION_DENSE, .filters = design->dense};
    const struct operation drop = {.kind = OPERATION_DROPOUT, .rate = 0.5f};
    const struct operation last = {.kind = OPERATION_DENSE, .filters = classes};
    char tensor[NETWORK_NAME_BYTES] = "input";
    TRY(features(network, design, tensor));
    for (size_t i = 0; i < DENSES; i++) {
        char name[8];
        snprintf(name, sizeof name, "dense%d", (int)i + 1);
        TRY(part_linear_relu(network, dense, name, tensor));
        TRY(part_append(network, drop, name, ".drop", tensor));
    }
    TRY(part_append(network, last, "dense3", "", tensor));
    return part_append(network, (struct operation){.kind = OPERATION_CROSS_ENTROPY}, "loss", "",
                       tensor);
}

const struct model model_alexnet = {
    .name = "alexnet",
    .about = "AlexNet of Krizhevsky et al. 2012, ungrouped",
    .build = alexnet_build,
    .images = {227, 227, 3, 1000},
    .rate = 0.1, /* 0.01 for 128 images, as there */
    .design =
        &(const struct alexnet){
            {{96, 11, 4, 0}, {256, 5, 1, 2}, {384, 3, 1, 1}, {384, 3, 1, 1}, {256, 3, 1, 1}}, 4096},
};

const struct model model_alexnet_cifar = {
    .name = "alexnet-cifar",
    .about = "AlexNet made small for 28x28 or 32x32 pixels",
    .build = alexnet_build,
    .images = {32, 32, 3, 10},
    .design =
        &(const struct alexnet){
            {{64, 5, 1, 2}, {64, 5, 1, 2}, {128, 3, 1, 1}, {128, 3, 1, 1}, {128, 3, 1, 1}}, 512},
};
