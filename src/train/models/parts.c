/* See models/parts.h. */
#include "train/models/parts.h"

#include "base/status.h"

#include <stdio.h>
#include <string.h>

alnico_status_t part_append(struct network *network, struct operation operation, const char *prefix,
                            const char *name, char *tensor)
{
    snprintf(operation.name, sizeof operation.name, "%s%s", prefix, name);
    memcpy(operation.in[0], tensor, NETWORK_NAME_BYTES);
    TRY(network_append(network, &operation));
    memcpy(tensor, operation.name, NETWORK_NAME_BYTES);
    return ALNICO_SUCCESS;
}

alnico_status_t part_linear_relu(struct network *network, struct operation operation,
                                 const char *prefix, char *tensor)
{
    operation.bias = operation.kind == OPERATION_CONVOLUTION;
    TRY(part_append(network, operation, prefix, "", tensor));
    return part_append(network, (struct operation){.kind = OPERATION_RELU}, prefix, ".relu",
                       tensor);
}

struct operation part_convolution(size_t filters, size_t window, size_t stride)
{
    return (struct operation){.kind = OPERATION_CONVOLUTION,
                              .filters = filters,
                              .window = window,
                              .stride = stride,
                              .pad = window / 2};
}

struct operation part_local_norm(float k)
{
    return (struct operation){
        .kind = OPERATION_LOCAL_NORM, .window = 5, .alpha = 1e-4f, .beta = 0.75f, .k = k};
}
