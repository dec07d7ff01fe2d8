/* See cudnn/graph.h. */
#include "train/kernels/cudnn/graph.h"

#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>

/* Names of the tensors inside a graph. */
enum { UID_X = 'x', UID_W = 'w', UID_Y = 'y', UID_SUMS = 's', UID_SQUARES = 'q' };

static alnico_status_t bag_reserve(struct cudnn_bag *bag)
{
    if (bag->count < bag->capacity)
        return ALNICO_SUCCESS;
    const size_t capacity = bag->capacity ? 2 * bag->capacity : 16;
    cudnnBackendDescriptor_t *items = realloc(bag->items, capacity * sizeof *items);
    if (!items)
        return error_set(ALNICO_ERROR_MEMORY, "cuDNN kernels: no memory");
    bag->items = items;
    bag->capacity = capacity;
    return ALNICO_SUCCESS;
}

void cudnn_bag_clear(const struct cudnn_library *library, struct cudnn_bag *bag)
{
    while (bag->count > 0)
        library->cudnnBackendDestroyDescriptor(bag->items[--bag->count]);
    free(bag->items);
    *bag = (struct cudnn_bag){0};
}

alnico_status_t cudnn_bag_append(const struct cudnn_library *library, struct cudnn_bag *to,
                                 struct cudnn_bag *from)
{
    alnico_status_t status = ALNICO_SUCCESS;
    for (size_t i = 0; i < from->count; i++) {
        if (status == ALNICO_SUCCESS)
            status = bag_reserve(to);
        if (status == ALNICO_SUCCESS)
            to->items[to->count++] = from->items[i];
        else
            library->cudnnBackendDestroyDescriptor(from->items[i]);
    }
    from->count = 0;
    cudnn_bag_clear(library, from);
    return status;
}

alnico_status_t cudnn_empty(const struct cudnn_library *library, struct cudnn_bag *bag,
                            cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out)
{
    *out = NULL;
    TRY(bag_reserve(bag));
    TRY(cudnn_status(library->cudnnBackendCreateDescriptor(type, out),
                     "cudnnBackendCreateDescriptor"));
    bag->items[bag->count++] = *out;
    return ALNICO_SUCCESS;
}

alnico_status_t cudnn_make(const struct cudnn_library *library, struct cudnn_bag *bag,
                           cudnnBackendDescriptorType_t type,
                           const struct cudnn_attribute *attributes, size_t count, const char *what,
                           cudnnBackendDescriptor_t *out)
{
    char text[128];
    TRY(cudnn_empty(library, bag, type, out));
    for (size_t i = 0; i < count; i++) {
        const struct cudnn_attribute *a = &attributes[i];
        snprintf(text, sizeof text, "%s: attribute %d", what, (int)a->name);
        TRY(cudnn_status(
            library->cudnnBackendSetAttribute(*out, a->name, a->type, a->count, a->values), text));
    }
    return cudnn_status(library->cudnnBackendFinalize(*out), what);
}

static cudnnDataType_t data_type(alnico_datatype_t type)
{
    switch (type) {
    case ALNICO_BFLOAT16:
        return CUDNN_DATA_BFLOAT16;
    case ALNICO_FLOAT16:
        return CUDNN_DATA_HALF;
    default:
        return CUDNN_DATA_FLOAT;
    }
}

/* A packed tensor; cuDNN counts its sides as outer, channels, rows, columns, however they stand. */
static alnico_status_t tensor_make(const struct cudnn_library *library, struct cudnn_bag *bag,
                                   alnico_datatype_t type, int64_t uid, const size_t sides[4],
                                   cudnnBackendDescriptor_t *out)
{
    const int64_t outer = (int64_t)sides[0], rows = (int64_t)sides[1], columns = (int64_t)sides[2],
                  channels = (int64_t)sides[3];
    const cudnnDataType_t data = data_type(type);
    const int64_t dims[4] = {outer, channels, rows, columns};
    const int64_t strides[4] = {rows * columns * channels, 1, columns * channels, channels};
    const int64_t alignment = 16;
    const struct cudnn_attribute attributes[] = {
        {CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &data},
        {CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, 4, dims},
        {CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, 4, strides},
        {CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid},
        {CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment},
    };
    return cudnn_make(library, bag, CUDNN_BACKEND_TENSOR_DESCRIPTOR, attributes,
                      sizeof attributes / sizeof *attributes, "a tensor of cuDNN", out);
}

static alnico_status_t window_make(const struct cudnn_library *library, struct cudnn_bag *bag,
                                   const struct convolution *c, cudnnBackendDescriptor_t *out)
{
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    const int64_t sides = 2, ones[2] = {1, 1};
    const int64_t strides[2] = {(int64_t)c->stride, (int64_t)c->stride};
    const int64_t pads[2] = {(int64_t)c->pad_rows, (int64_t)c->pad_columns};
    const struct cudnn_attribute attributes[] = {
        {CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute},
        {CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode},
        {CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &sides},
        {CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, 2, ones},
        {CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, 2, strides},
        {CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, 2, pads},
        {CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, 2, pads},
    };
    return cudnn_make(library, bag, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, attributes,
                      sizeof attributes / sizeof *attributes, "a convolution of cuDNN", out);
}

/* How an operation's attributes are called in each direction. */
struct direction {
    const char *name;
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t window, x, w, y, alpha, beta;
};

#define DIRECTION(NAME, TYPE, PREFIX, X, W, Y)                                                     \
    {                                                                                              \
        NAME, CUDNN_BACKEND_OPERATION_CONVOLUTION_##TYPE##_DESCRIPTOR,                             \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##PREFIX##_CONV_DESC,                                 \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##PREFIX##_##X,                                       \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##PREFIX##_##W,                                       \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##PREFIX##_##Y,                                       \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##PREFIX##_ALPHA,                                     \
            CUDNN_ATTR_OPERATION_CONVOLUTION_##PREFIX##_BETA                                       \
    }

static const struct direction directions[] = {
    [CONVOLUTION_FORWARD] = DIRECTION("forward", FORWARD, FORWARD, X, W, Y),
    [CONVOLUTION_DATA] = DIRECTION("data", BACKWARD_DATA, BWD_DATA, DX, W, DY),
    [CONVOLUTION_WEIGHTS] = DIRECTION("weights", BACKWARD_FILTER, BWD_FILTER, X, DW, DY),
};

/* The operation that makes the sums of y and of its squares. */
static alnico_status_t statistics_make(const struct cudnn_library *library, struct cudnn_bag *bag,
                                       const struct convolution *c, cudnnBackendDescriptor_t y,
                                       cudnnBackendDescriptor_t *out)
{
    const cudnnGenStatsMode_t mode = CUDNN_GENSTATS_SUM_SQSUM;
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const size_t sides[4] = {1, 1, 1, c->filters};
    cudnnBackendDescriptor_t sums, squares;
    TRY(tensor_make(library, bag, ALNICO_FLOAT32, UID_SUMS, sides, &sums));
    TRY(tensor_make(library, bag, ALNICO_FLOAT32, UID_SQUARES, sides, &squares));
    const struct cudnn_attribute attributes[] = {
        {CUDNN_ATTR_OPERATION_GENSTATS_MODE, CUDNN_TYPE_GENSTATS_MODE, 1, &mode},
        {CUDNN_ATTR_OPERATION_GENSTATS_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute},
        {CUDNN_ATTR_OPERATION_GENSTATS_XDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y},
        {CUDNN_ATTR_OPERATION_GENSTATS_SUMDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &sums},
        {CUDNN_ATTR_OPERATION_GENSTATS_SQSUMDESC, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &squares},
    };
    return cudnn_make(library, bag, CUDNN_BACKEND_OPERATION_GEN_STATS_DESCRIPTOR, attributes,
                      sizeof attributes / sizeof *attributes, "the sums of a convolution", out);
}

/* The convolution, and what makes its sums if it has them. */
static alnico_status_t operations_make(const struct cudnn_library *library, struct cudnn_bag *bag,
                                       const struct convolution *c, cudnnBackendDescriptor_t out[2])
{
    const struct direction *direction = &directions[c->direction];
    const float alpha = 1, beta = c->accumulate ? 1 : 0;
    cudnnBackendDescriptor_t x, w, y, window;
    TRY(tensor_make(library, bag, c->type, UID_X,
                    (const size_t[]){c->batch, c->height, c->width, c->channels}, &x));
    TRY(tensor_make(library, bag, c->type, UID_W,
                    (const size_t[]){c->filters, c->rows, c->columns, c->channels}, &w));
    TRY(tensor_make(library, bag, c->type, UID_Y,
                    (const size_t[]){c->batch, c->out_height, c->out_width, c->filters}, &y));
    TRY(window_make(library, bag, c, &window));
    const struct cudnn_attribute attributes[] = {
        {direction->window, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &window},
        {direction->x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x},
        {direction->w, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &w},
        {direction->y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y},
        {direction->alpha, CUDNN_TYPE_FLOAT, 1, &alpha},
        {direction->beta, CUDNN_TYPE_FLOAT, 1, &beta},
    };
    TRY(cudnn_make(library, bag, direction->type, attributes,
                   sizeof attributes / sizeof *attributes, "an operation of cuDNN", &out[0]));
    return c->sums ? statistics_make(library, bag, c, y, &out[1]) : ALNICO_SUCCESS;
}

void convolution_text(const struct convolution *c, char *out, size_t bytes)
{
    const char *type = c->type == ALNICO_FLOAT32    ? "fp32"
                       : c->type == ALNICO_BFLOAT16 ? "bf16"
                                                    : "fp16";
    char pads[48];
    snprintf(pads, sizeof pads, c->pad_rows == c->pad_columns ? "p%zu" : "p%zux%zu", c->pad_rows,
             c->pad_columns);
    snprintf(out, bytes, "%s%s n%zu x%zux%zux%zu f%zu %zux%zu s%zu %s %s",
             directions[c->direction].name,
             c->accumulate  ? "+"
             : c->sums == 2 ? " with compiled sums"
             : c->sums      ? " with sums"
                            : "",
             c->batch, c->height, c->width, c->channels, c->filters, c->rows, c->columns, c->stride,
             pads, type);
}

alnico_status_t convolution_graph(const struct cudnn_handle *handle, struct cudnn_bag *bag,
                                  const struct convolution *c, cudnnBackendDescriptor_t *out)
{
    cudnnBackendDescriptor_t operations[2];
    char text[128];
    convolution_text(c, text, sizeof text);
    TRY(operations_make(handle->library, bag, c, operations));
    const struct cudnn_attribute attributes[] = {
        {CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle->cudnn},
        {CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, c->sums ? 2 : 1, operations},
    };
    return cudnn_make(handle->library, bag, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, attributes, 2,
                      text, out);
}

alnico_status_t convolution_pack(const struct cudnn_handle *handle, struct cudnn_bag *bag,
                                 const struct convolution_memory *memory, void *workspace,
                                 cudnnBackendDescriptor_t *out)
{
    const int64_t uids[5] = {UID_X, UID_W, UID_Y, UID_SUMS, UID_SQUARES};
    void *const pointers[5] = {memory->x, memory->w, memory->y, memory->sums, memory->squares};
    const int64_t count = memory->sums ? 5 : 3;
    const struct cudnn_attribute attributes[] = {
        {CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uids},
        {CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, pointers},
        {CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace},
    };
    return cudnn_make(handle->library, bag, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, attributes, 3,
                      "a variant pack of cuDNN", out);
}
