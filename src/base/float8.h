/* 8-bit floats of the Open Compute Project ("OCP 8-bit Floating Point Specification", 2023) in float32
 * and back, rounded to the nearest, ties to even. What is beyond the greatest finite number becomes that,
 * as CUDA's conversions have it; NaN becomes 0x7f. Without branches, as float16.h. */
#ifndef ALNICO_BASE_FLOAT8_H
#define ALNICO_BASE_FLOAT8_H

#include "base/float16.h"

/* Bits of the fraction, bias of the exponent, and the first magnitude that is no finite number. */
#define FLOAT8_E4M3 3, 7, 0x7f
#define FLOAT8_E5M2 2, 15, 0x7c

static inline uint32_t float8_widen(uint32_t magnitude, int fraction, int bias)
{
    return (magnitude << (23 - fraction)) + ((uint32_t)(127 - bias) << 23);
}

static inline float float8_load(uint8_t bits, int fraction, int bias, uint32_t special)
{
    uint32_t sign = (uint32_t)(bits & 0x80) << 24, magnitude = bits & 0x7f;
    uint32_t normal = float8_widen(magnitude, fraction, bias);
    float smallest = float32((uint32_t)(128 - bias - fraction) << 23);
    uint32_t subnormal = bits32((float)(int32_t)magnitude * smallest);
    uint32_t finite = magnitude >> fraction ? normal : subnormal;
    return float32(sign | (magnitude < special ? finite : normal + ((uint32_t)(127 - bias) << 23)));
}

static inline uint8_t float8_store(float value, int fraction, int bias, uint32_t special)
{
    uint32_t sign = bits32(value) >> 24 & 0x80, magnitude = bits32(value) & 0x7fffffff;
    uint32_t most = float8_widen(special - 1, fraction, bias);
    uint32_t near = magnitude < most ? magnitude : most;
    int cut = 23 - fraction;
    uint32_t normal = ((near + (1u << (cut - 1)) - 1 + (near >> cut & 1)) >> cut) -
                      ((uint32_t)(127 - bias) << fraction);
    /* The last place of [2^x, 2^(x+1)) is that of the subnormals: the addition rounds. */
    float two_to_x = float32((uint32_t)(127 + 24 - bias - fraction) << 23);
    uint32_t subnormal = bits32(float32(near) + two_to_x) - bits32(two_to_x);
    uint32_t number = sign | (near < (uint32_t)(128 - bias) << 23 ? subnormal : normal);
    return (uint8_t)(magnitude > 255u << 23 ? 0x7f : number);
}

static inline float from_e4m3(uint8_t bits)
{
    return float8_load(bits, FLOAT8_E4M3);
}

static inline uint8_t to_e4m3(float value)
{
    return float8_store(value, FLOAT8_E4M3);
}

static inline float from_e5m2(uint8_t bits)
{
    return float8_load(bits, FLOAT8_E5M2);
}

static inline uint8_t to_e5m2(float value)
{
    return float8_store(value, FLOAT8_E5M2);
}

#endif
