/* Passes over whole activations that a foreign library has no fused form of. One thread calls;
 * large arrays are shared among OpenMP threads. No two arrays overlap unless they are the same. */
#ifndef ALNICO_TRAIN_KERNELS_ELEMENTWISE_H
#define ALNICO_TRAIN_KERNELS_ELEMENTWISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A pass that makes y of a and b. */
typedef void elementwise_function(float *y, const float *a, const float *b, size_t count);

/* add_relu: y = max(a + b, 0). mask: y = b > 0 ? a : 0; mask_add: y += that. copy: y = a;
 * accumulate: y += a; both do not read b. */
elementwise_function elementwise_add_relu, elementwise_mask, elementwise_mask_add, elementwise_copy,
    elementwise_accumulate;

/* y = (y + sum) * share. */
void elementwise_mean(float *y, const float *sum, float share, size_t count);

/* 16-bit floats and back: bfloat16, or IEEE's binary16 if `half`; rounded to the nearest, ties to
 * even. */
void elementwise_narrow(uint16_t *y, const float *x, size_t count, bool half);
void elementwise_widen(float *y, const uint16_t *x, size_t count, bool half);

/* y = (y + x + what is `stride` numbers further on, `blocks` times in all) / (1 + blocks), summed in
 * this order, in one pass over memory. */
void elementwise_average(float *y, const float *x, size_t stride, int blocks, size_t count);

/* y /= by. */
void elementwise_divide(float *y, float by, size_t count);

#endif
