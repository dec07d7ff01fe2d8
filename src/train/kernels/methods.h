/*
 * Methods of the kernels that can be taken or left, all taken by default: `interior` by all kernels, the
 * others by cuDNN's. ALNICO_TRAIN_WAYS holds names between commas, with "no-" before those to leave and a
 * number behind some: "no-stem,sums=2". The same for the whole process; any thread.
 */
#ifndef ALNICO_TRAIN_KERNELS_METHODS_H
#define ALNICO_TRAIN_KERNELS_METHODS_H

#include <stdbool.h>
#include <stddef.h>

enum kernels_method {
    /* stem: a batch norm, a ReLU and a maximum pooling by 3 x 3 in one pass. */
    METHOD_NORM_POOL,

    /* sums: in fp16, convolutions that make the statistics for the batch norm behind them. 2: in
     * bf16 too, whose engines are compiled, minutes in all. */
    METHOD_STATISTICS,

    /* rows: im2col by rows of folded images, where that is faster. 2: wherever there is an
     * engine. */
    METHOD_IM2COL,

    /* products: 1x1 convolutions as a GEMM of cuBLASLt, where that is faster. 2: wherever there is
     * one. */
    METHOD_GEMM,

    /* spread: the gradient of the input of a strided 1x1 convolution made without the stride, then
     * spread, where that is faster. 2: everywhere. */
    METHOD_STRIDED_GRADIENT,

    /* early: programmatic launch, the second kernel of a batch norm begins while the first ends. */
    METHOD_PROGRAMMATIC_LAUNCH,
    /* join: what a concatenation joins is made in its place. */
    METHOD_JOIN,

    /* interior: convolutions of split networks make what needs no halo while that travels, where it
     * pays by their sizes; on GPUs nowhere yet. 2: wherever they can. */
    METHOD_INTERIOR,
    METHODS
};

bool method_taken(enum kernels_method method);

const char *method_name(enum kernels_method method);

/* Its number; 0: none. */
unsigned method_number(enum kernels_method method);

/* Warns of names in the variable that are no method's. Returns how many there are. */
size_t methods_unknown(void);

/* The names of the methods in force: "stem,sums". */
void methods_list(char *out, size_t bytes);

#endif
