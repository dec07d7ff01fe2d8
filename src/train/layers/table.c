/* The table of layers. See layers/layer.h. */
#include "train/layers/layer.h"

#include <math.h>

const struct layer_ops *const layers_all[OPERATION_KINDS] = {
    [OPERATION_CONVOLUTION] = &layer_convolution,
    [OPERATION_BATCH_NORM] = &layer_batch_norm,
    [OPERATION_RELU] = &layer_relu,
    [OPERATION_SIGMOID] = &layer_sigmoid,
    [OPERATION_ADD] = &layer_add,
    [OPERATION_MAX_POOL] = &layer_max_pool,
    [OPERATION_AVERAGE_POOL] = &layer_average_pool,
    [OPERATION_DENSE] = &layer_dense,
    [OPERATION_LOCAL_NORM] = &layer_local_norm,
    [OPERATION_DROPOUT] = &layer_dropout,
    [OPERATION_CONCAT] = &layer_concat,
    [OPERATION_UPSAMPLE] = &layer_upsample,
    [OPERATION_CROSS_ENTROPY] = &layer_cross_entropy,
    [OPERATION_SQUARED_ERROR] = &layer_squared_error,
    [OPERATION_MOVE] = &layer_move,
};

const char *operation_kind_name(enum operation_kind kind)
{
    return layers_all[kind]->name;
}

void cost_add(struct step_cost *cost, double bytes, double flops)
{
    cost->bytes += bytes;
    cost->flops += flops;
    cost->least_us += fmax(bytes / cost->rates->bytes_us, flops / cost->rates->flops_us);
}
