/* Element-wise arithmetic on host memory: what the CPU device's reductions run. Any thread. */
#ifndef ALNICO_DEVICE_CPU_MATH_H
#define ALNICO_DEVICE_CPU_MATH_H

#include <alnico/alnico.h>

#include <stdint.h>

/* dst[i] = a[i] op b[i]; dst may be a or b (exactly), otherwise no overlap. Pointers are aligned to
 * the type. AVERAGE adds. The type must have the operation. Floats of 16 and 8 bits compute in float32
 * and round to nearest even, 8-bit ones saturating; -0 is smaller than +0; a NaN result is the type's quiet NaN without
 * payload or sign. So the bits depend on the two values only, not on their order, alignment or
 * position. */
void math_reduce(void *dst, const void *a, const void *b, size_t count, alnico_datatype_t type,
                 alnico_op_t op);

/* Floats: dst[i] = src[i] * (1 / ranks), both steps in the type, or in float32 for short ones.
 * Integers: dst[i] = src[i] / ranks, truncating towards zero. ranks > 0; dst may be src. */
void math_divide(void *dst, const void *src, size_t count, alnico_datatype_t type, int ranks);

/* dst[i] = src[i] * *factor, in the type as a product; dst may be src. */
void math_scale(void *dst, const void *src, size_t count, alnico_datatype_t type,
                const void *factor);

/* dst[i] = sources[0][i] op sources[1][i] op ... over `number` >= 1 sources, in their order. dst
 * may be one of them. Short floats are added, multiplied and averaged in float32 and rounded once.
 * AVERAGE adds, and then divides by `number` as math_divide does. */
void math_combine(void *dst, const void *const *sources, int number, size_t count,
                  alnico_datatype_t type, alnico_op_t op);

/* Floats of 16 and 8 bits from and to float32, to nearest even; `type` is one of them. NaN stays NaN,
 * the type's one. */
void math_widen(float *dst, const void *src, size_t count, alnico_datatype_t type);
void math_narrow(void *dst, const float *src, size_t count, alnico_datatype_t type);

#endif
