/*
 * A convolutional network for images of digits: two 3x3 convolutions without padding, a maximum
 * pooling and two dense layers, with dropout (the example of Keras; Shivdikar, Paneri, Kaeli train
 * it). 1,192,042 parameters for 28x28x1 and 10 classes.
 */
#include "train/models/models.h"

#include "base/status.h"

#define CONVOLUTION(NAME, IN)                                                                      \
    {                                                                                              \
        OPERATION_CONVOLUTION, NAME, {IN}, .filters = 32, .window = 3, .stride = 1, .bias = true   \
    }

static alnico_status_t mnist_build(struct network *network, const void *design, size_t classes)
{
    (void)design;
    const struct operation operations[] = {
        CONVOLUTION("conv1", "input"),
        {.kind = OPERATION_RELU, .name = "relu1", .in = {"conv1"}},
        CONVOLUTION("conv2", "relu1"),
        {.kind = OPERATION_RELU, .name = "relu2", .in = {"conv2"}},
        {.kind = OPERATION_MAX_POOL, .name = "pool", .in = {"relu2"}, .window = 2, .stride = 2},
        {.kind = OPERATION_DROPOUT, .name = "drop1", .in = {"pool"}, .rate = 0.25f},
        {.kind = OPERATION_DENSE, .name = "dense1", .in = {"drop1"}, .filters = 256},
        {.kind = OPERATION_RELU, .name = "relu3", .in = {"dense1"}},
        {.kind = OPERATION_DROPOUT, .name = "drop2", .in = {"relu3"}, .rate = 0.5f},
        {.kind = OPERATION_DENSE, .name = "dense2", .in = {"drop2"}, .filters = classes},
        {.kind = OPERATION_CROSS_ENTROPY, .name = "loss", .in = {"dense2"}},
    };
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        TRY(network_append(network, &operations[i]));
    return ALNICO_SUCCESS;
}

const struct model model_mnist = {
    .name = "mnist",
    .about = "two convolutions, two dense layers and dropout, for digits",
    .build = mnist_build,
    .images = {28, 28, 1, 10},
};
