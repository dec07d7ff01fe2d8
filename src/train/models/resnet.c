/*
 * ResNet-20 as in He et al. 2015, "Deep Residual Learning for Image Recognition", section 4.2: a 3x3
 * convolution, then three stages of three blocks with 16, 32 and 64 filters, each block two 3x3
 * convolutions with batch norm; the mean over the image, and a dense layer.
 *
 * Where a stage begins with another shape, the shortcut is a 1x1 convolution of stride 2 with batch norm
 * (option B of the paper). Option A, which drops pixels and pads with zero channels, saves 2,752 of the
 * 272 thousand parameters but would need an operation of its own that no kernels library has.
 */
#include "models.h"

#include "status.h"

#include <stdio.h>
#include <string.h>

enum { BLOCKS = 3, STAGES = 3, FILTERS = 16 };

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

/* Appends a convolution without bias and its batch norm; `tensor` is read and becomes the output. */
static alnico_status_t convolution_norm(struct network *network, const char *block,
                                        const char *number, size_t filters, size_t window,
                                        size_t stride, char *tensor)
{
    const struct operation convolution = {.kind = OPERATION_CONVOLUTION,
                                          .filters = filters,
                                          .window = window,
                                          .stride = stride,
                                          .pad = window / 2};
    char name[8];
    snprintf(name, sizeof name, "conv%s", number);
    TRY(part(network, convolution, block, name, tensor, "", tensor));
    snprintf(name, sizeof name, "norm%s", number);
    return part(network, (struct operation){.kind = OPERATION_BATCH_NORM}, block, name, tensor, "",
                tensor);
}

static alnico_status_t relu(struct network *network, const char *block, const char *name,
                            char *tensor)
{
    return part(network, (struct operation){.kind = OPERATION_RELU}, block, name, tensor, "",
                tensor);
}

static alnico_status_t residual(struct network *network, const char *block, size_t filters,
                                size_t stride, char *tensor)
{
    char shortcut[NETWORK_NAME_BYTES];
    memcpy(shortcut, tensor, sizeof shortcut);
    if (stride != 1)
        TRY(convolution_norm(network, block, "0", filters, 1, stride, shortcut));
    TRY(convolution_norm(network, block, "1", filters, 3, stride, tensor));
    TRY(relu(network, block, "relu1", tensor));
    TRY(convolution_norm(network, block, "2", filters, 3, 1, tensor));
    TRY(part(network, (struct operation){.kind = OPERATION_ADD}, block, "add", tensor, shortcut,
             tensor));
    return relu(network, block, "relu2", tensor);
}

static alnico_status_t resnet20_build(struct network *network, size_t classes)
{
    const struct operation pool = {.kind = OPERATION_AVERAGE_POOL};
    const struct operation dense = {.kind = OPERATION_DENSE, .filters = classes};
    const struct operation loss = {.kind = OPERATION_CROSS_ENTROPY};
    char tensor[NETWORK_NAME_BYTES] = "input", block[8];
    TRY(convolution_norm(network, "stem", "1", FILTERS, 3, 1, tensor));
    TRY(relu(network, "stem", "relu1", tensor));
    for (size_t stage = 0; stage < STAGES; stage++)
        for (size_t i = 0; i < BLOCKS; i++) {
            snprintf(block, sizeof block, "%zu.%zu", stage + 1, i + 1);
            TRY(residual(network, block, (size_t)FILTERS << stage, stage && !i ? 2 : 1, tensor));
        }
    TRY(part(network, pool, "head", "pool", tensor, "", tensor));
    TRY(part(network, dense, "head", "dense", tensor, "", tensor));
    return part(network, loss, "head", "loss", tensor, "", tensor);
}

const struct model model_resnet20 = {
    .name = "resnet20",
    .about = "ResNet-20 of He et al. 2015, section 4.2",
    .build = resnet20_build,
};
