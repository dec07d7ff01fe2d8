/*
 * A plain stack of convolutions for meshes of 18 numbers a pixel, which says of each pixel whether
 * its cell is to be relaxed (after the mesh-tangling network of Dryden et al. 2019, "Improving
 * strong-scaling of CNN training by exploiting finer-grained parallelism"; this list of layers is
 * ours). Six blocks of convolution, batch norm and ReLU, three times each, or five on sides above
 * 1024. Each begins with stride 2. The first window is 5x5, all others 3x3. A 1x1 convolution
 * then gives the classes on a grid of one in 64 pixels a side, and that grid becomes pixels again.
 */
#include "train/models/models.h"

#include "base/number.h"
#include "base/status.h"
#include "train/models/parts.h"

#include <stdio.h>
#include <string.h>

enum { BLOCKS = 6, GRID = 1 << BLOCKS, CHANNELS = 18, CLASSES = 2, MOST_SIDE = 1 << 14 };

static const size_t filters[BLOCKS] = {128, 160, 192, 224, 256, 256};

static alnico_status_t convolution_norm_relu(struct network *network, size_t block, size_t number,
                                             char *tensor)
{
    const struct operation convolution =
        part_convolution(filters[block], block || number ? 3 : 5, number ? 1 : 2);
    const struct operation norm = {.kind = OPERATION_BATCH_NORM}, relu = {.kind = OPERATION_RELU};
    char prefix[16];
    snprintf(prefix, sizeof prefix, "%d.%d", (int)block + 1, (int)number + 1);
    TRY(part_append(network, convolution, prefix, ".conv", tensor));
    TRY(part_append(network, norm, prefix, ".norm", tensor));
    return part_append(network, relu, prefix, ".relu", tensor);
}

static alnico_status_t head(struct network *network, size_t side, size_t classes, char *tensor)
{
    const struct operation convolution = {
        .kind = OPERATION_CONVOLUTION, .filters = classes, .window = 1, .stride = 1, .bias = true};
    const struct operation pixels = {
        .kind = OPERATION_UPSAMPLE, .stride = GRID, .pad = (GRID - side % GRID) % GRID};
    const struct operation loss = {.kind = OPERATION_CROSS_ENTROPY};
    TRY(part_append(network, convolution, "head", ".conv", tensor));
    TRY(part_append(network, pixels, "head", ".pixels", tensor));
    return part_append(network, loss, "head", ".loss", tensor);
}

static alnico_status_t mesh_build(struct network *network, const void *design, size_t classes)
{
    const size_t side = network->tensors[0].height, convolutions = side > 1024 ? 5 : 3;
    char tensor[NETWORK_NAME_BYTES] = "input";
    (void)design;
    if (network->tensors[0].width != side)
        return error_set(ALNICO_ERROR_ARGUMENT, "mesh: images of %zux%zu, expected squares", side,
                         network->tensors[0].width);
    for (size_t block = 0; block < BLOCKS; block++)
        for (size_t number = 0; number < convolutions; number++)
            TRY(convolution_norm_relu(network, block, number, tensor));
    return head(network, side, classes, tensor);
}

#define MESH(NAME, SIDE, DATA)                                                                     \
    {                                                                                              \
        .name = NAME, .about = "a stack of convolutions for meshes", .build = mesh_build,          \
        .images = {SIDE, SIDE, CHANNELS, CLASSES}, .fixed = true, .data = DATA                     \
    }

const struct model model_mesh1k = MESH("mesh1k", 1024, "mesh:1024");
const struct model model_mesh2k = MESH("mesh2k", 2048, "mesh:2048");

bool model_mesh(const char *name, struct model *out)
{
    const char *rest = name + strlen("mesh:");
    uint64_t side;
    if (strncmp(name, "mesh:", strlen("mesh:")) != 0 || !number_leading(&rest, MOST_SIDE, &side) ||
        side < 1 || *rest)
        return false;
    *out = (struct model)MESH(name, (size_t)side, name);
    return true;
}
