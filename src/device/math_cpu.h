/* Element-wise arithmetic on host memory: what the CPU device's reductions run. Any thread. */
#ifndef ALNICO_SRC_MATH_CPU_H
#define ALNICO_SRC_MATH_CPU_H

#include <alnico/alnico.h>

#include <stdint.h>

/* dst[i] = a[i] op b[i]; dst may be a or b (exactly), otherwise no overlap. Pointers are aligned to the
 * type. AVERAGE adds. The type must have the operation. 16-bit floats compute in float32 and round to
 * nearest even; -0 is smaller than +0; a NaN result is the type's quiet NaN without payload or sign.
 * So the bits depend on the two values only, not on their order, alignment or position. */
void math_reduce(void *dst, const void *a, const void *b, size_t count, alnico_datatype_t type,
                 alnico_op_t op);

/* Floats: dst[i] = src[i] * (1 / ranks), both steps in the type, or in float32 for 16-bit ones.
 * Integers: dst[i] = src[i] / ranks, truncating towards zero. ranks > 0; dst may be src. */
void math_divide(void *dst, const void *src, size_t count, alnico_datatype_t type, int ranks);

/* One element: 16-bit floats from and to float32, nearest even; NaN stays NaN, the quiet one in 16 bits. */
float math_from_half(uint16_t bits);
uint16_t math_to_half(float value);
float math_from_bfloat(uint16_t bits);
uint16_t math_to_bfloat(float value);

#endif
