/*
 * Ways of the cuDNN kernels that can be taken or left, by ALNICO_TRAIN_WAYS: names between commas,
 * with "no-" before those to leave, and a number behind some: "no-stem,sums=2". The same for the
 * whole process; any thread.
 */
#ifndef ALNICO_TRAIN_KERNELS_CUDNN_METHODS_H
#define ALNICO_TRAIN_KERNELS_CUDNN_METHODS_H

#include <stdbool.h>
#include <stddef.h>

enum cudnn_method {
    METHOD_NORM_POOL, /* a batch norm, a ReLU and a maximum pooling by 3 x 3 in one pass */

    /* fp16: convolutions that make the sums for the batch norm behind them; with the number 2 in
     * bf16 too, where engines are compiled for it, minutes in all. */
    METHOD_STATISTICS,

    /* The rows of windows of folded images become channels, where that is faster; with the number 2
     * wherever there is an engine. */
    METHOD_IM2COL,

    /* Convolutions of single pixels as products of cuBLASLt, where those are faster; with the
     * number 2 wherever there is one. */
    METHOD_GEMM,

    /* The gradient of what a convolution of single pixels with a stride reads made without the
     * stride, then spread, where that is faster; with the number 2 everywhere. */
    METHOD_STRIDED_GRADIENT,

    /* The second kernel of a batch norm begins while the first one ends. */
    METHOD_PROGRAMMATIC_LAUNCH,
    METHODS
};

bool method_taken(enum cudnn_method method);

const char *method_name(enum cudnn_method method);

/* Its number; 0: none. */
unsigned method_number(enum cudnn_method method);

/* Warns of names in the variable that are no method's. Returns how many there are. */
size_t methods_unknown(void);

/* The names of the methods in force: "stem,sums". */
void methods_list(char *out, size_t bytes);

#endif
