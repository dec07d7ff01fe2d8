/*
 * Convolutions as graphs of cuDNN's backend interface, and the plans that carry them out. Made by
 * the cuDNN kernels on the thread that trains; running a plan enqueues and returns.
 *
 * Activations are [image][row][column][channel], weights [filter][row][column][channel], both
 * packed and 16 bytes aligned; products are summed in float32.
 */
#ifndef ALNICO_TRAIN_KERNELS_CUDNN_GRAPH_H
#define ALNICO_TRAIN_KERNELS_CUDNN_GRAPH_H

#include "train/kernels/cudnn/library.h"

enum convolution_direction { CONVOLUTION_FORWARD, CONVOLUTION_DATA, CONVOLUTION_WEIGHTS };

/* One direction of a convolution. x: batch x height x width x channels; w: filters x rows x columns
 * x channels; y: batch x out_height x out_width x filters. */
struct convolution {
    enum convolution_direction direction;
    alnico_datatype_t type; /* of x, w and y: FLOAT32, BFLOAT16, FLOAT16 */
    size_t batch, height, width, channels;
    size_t filters, rows, columns, stride, pad_rows, pad_columns;
    size_t out_height, out_width;
    bool accumulate; /* DATA: adds to what is there */
    /* FORWARD: also the sums of y and of its squares, float32, for each filter: 1; 2: by engines
     * that are compiled for it too. */
    unsigned sums;
};

/* Addresses of x, w and y, or of their gradients. */
struct convolution_memory {
    void *x, *w, *y;
    void *sums, *squares; /* NULL: none */
};

/* Handles on one stream. cuBLASLt takes that of cuBLAS. */
struct cudnn_handle {
    const struct cudnn_library *library;
    cudnnHandle_t cudnn;
    cublasHandle_t cublas;
    cudaStream_t stream;
};

/* Descriptors that belong together, destroyed together. */
struct cudnn_bag {
    cudnnBackendDescriptor_t *items;
    size_t count, capacity;
};

/* An attribute of a descriptor: `count` values of a type. */
struct cudnn_attribute {
    cudnnBackendAttributeName_t name;
    cudnnBackendAttributeType_t type;
    int64_t count;
    const void *values;
};

/* Makes, fills and finishes a descriptor, which the bag owns. Errors: what cuDNN says, with
 * `what`. */
alnico_status_t cudnn_make(const struct cudnn_library *library, struct cudnn_bag *bag,
                           cudnnBackendDescriptorType_t type,
                           const struct cudnn_attribute *attributes, size_t count, const char *what,
                           cudnnBackendDescriptor_t *out);

/* An empty descriptor for cuDNN to write to, which the bag owns. */
alnico_status_t cudnn_empty(const struct cudnn_library *library, struct cudnn_bag *bag,
                            cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out);

/* Moves all of `from` behind what is in `to`. Errors: MEMORY, with `from` cleared. */
alnico_status_t cudnn_bag_append(const struct cudnn_library *library, struct cudnn_bag *to,
                                 struct cudnn_bag *from);

/* Destroys all, the last first; the bag is empty afterwards. */
void cudnn_bag_clear(const struct cudnn_library *library, struct cudnn_bag *bag);

/* "forward n256 x56x56x64 f64 3x3 s1 p1 bf16": equal for equal convolutions. */
void convolution_text(const struct convolution *convolution, char *out, size_t bytes);

/* The graph of a convolution, which the bag owns. */
alnico_status_t convolution_graph(const struct cudnn_handle *handle, struct cudnn_bag *bag,
                                  const struct convolution *convolution,
                                  cudnnBackendDescriptor_t *out);

/* The variant pack that a plan for the convolution runs on, which the bag owns. */
alnico_status_t convolution_pack(const struct cudnn_handle *handle, struct cudnn_bag *bag,
                                 const struct convolution_memory *memory, void *workspace,
                                 cudnnBackendDescriptor_t *out);

#endif
