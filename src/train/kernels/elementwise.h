/* Passes over whole activations that a foreign library has no fused form of. One thread calls;
 * large arrays are shared among OpenMP threads. No two arrays overlap unless they are the same. */
#ifndef ALNICO_TRAIN_KERNELS_ELEMENTWISE_H
#define ALNICO_TRAIN_KERNELS_ELEMENTWISE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* y = max(a + b, 0) */
void elementwise_add_relu(float *y, const float *a, const float *b, size_t count);

/* dx = y > 0 ? dy : 0; adding: dx += that. */
void elementwise_mask(float *dx, const float *dy, const float *y, size_t count);
void elementwise_mask_add(float *dx, const float *dy, const float *y, size_t count);

/* y = a; y += a. b is not read. */
void elementwise_copy(float *y, const float *a, const float *b, size_t count);
void elementwise_accumulate(float *y, const float *a, const float *b, size_t count);

/* 16-bit floats and back: bfloat16, or IEEE's binary16 if `half`; rounded to the nearest, ties to
 * even. */
void elementwise_narrow(uint16_t *y, const float *x, size_t count, bool half);
void elementwise_widen(float *y, const uint16_t *x, size_t count, bool half);

#endif
