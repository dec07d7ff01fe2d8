/*
 * A small convolutional network without batch norm: what a rank computes for an image does not
 * depend on the other images of its batch, so training on several ranks equals training on the
 * joined batch.
 */
#include "train/models/models.h"

#include "base/status.h"

/* By 3 x 3, of the size of its input. */
#define CONVOLUTION(NAME, IN, FILTERS)                                                             \
    {                                                                                              \
        OPERATION_CONVOLUTION, NAME, {IN}, .filters = FILTERS, .window = 3, .stride = 1, .pad = 1, \
                                           .bias = true                                            \
    }

static alnico_status_t cnn_build(struct network *network, const void *design, size_t classes)
{
    (void)design;
    const struct operation operations[] = {
        CONVOLUTION("conv1", "input", 16),
        {.kind = OPERATION_RELU, .name = "relu1", .in = {"conv1"}},
        {.kind = OPERATION_MAX_POOL, .name = "pool1", .in = {"relu1"}, .window = 2, .stride = 2},
        CONVOLUTION("conv2", "pool1", 32),
        {.kind = OPERATION_RELU, .name = "relu2", .in = {"conv2"}},
        {.kind = OPERATION_MAX_POOL, .name = "pool2", .in = {"relu2"}, .window = 2, .stride = 2},
        {.kind = OPERATION_DENSE, .name = "dense1", .in = {"pool2"}, .filters = 64},
        {.kind = OPERATION_RELU, .name = "relu3", .in = {"dense1"}},
        {.kind = OPERATION_DENSE, .name = "dense2", .in = {"relu3"}, .filters = classes},
        {.kind = OPERATION_CROSS_ENTROPY, .name = "loss", .in = {"dense2"}},
    };
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        TRY(network_append(network, &operations[i]));
    return ALNICO_SUCCESS;
}

const struct model model_cnn = {
    .name = "cnn",
    .about = "two convolutions and two dense layers, no batch norm",
    .build = cnn_build,
    .images = {28, 28, 1, 10},
};
