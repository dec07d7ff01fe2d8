/* 16-bit floats in float32 and back, rounded to the nearest, ties to even; NaN becomes the quiet one.
 * Without branches, which would keep loops from being vectorised. */
#ifndef ALNICO_BASE_FLOAT16_H
#define ALNICO_BASE_FLOAT16_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t bits32(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float float32(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float from_half(uint16_t half)
{
    uint32_t sign = (uint32_t)(half & 0x8000) << 16;
    uint32_t exponent = half & 0x7c00, fraction = half & 0x03ff;
    uint32_t rebias = exponent == 0x7c00 ? 224u << 23 : 112u << 23;
    uint32_t normal = ((exponent | fraction) << 13) + rebias;
    uint32_t subnormal = bits32((float)(int32_t)fraction * 0x1p-24f);
    return float32(sign | (exponent ? normal : subnormal));
}

static inline uint16_t to_half(float value)
{
    uint32_t sign = bits32(value) >> 16 & 0x8000, magnitude = bits32(value) & 0x7fffffff;
    uint32_t odd = magnitude >> 13 & 1;
    uint32_t normal = ((magnitude + 0x0fff + odd) >> 13) - (112u << 10);
    /* The last place of [0.5, 1) is 2^-24, as that of subnormal halves: the addition rounds. */
    uint32_t subnormal = bits32(float32(magnitude) + 0.5f) - bits32(0.5f);
    uint32_t finite = magnitude < 113u << 23 ? subnormal : normal;
    uint32_t number = sign | (magnitude < 143u << 23 ? finite : 0x7c00);
    return (uint16_t)(magnitude > 255u << 23 ? 0x7e00 : number);
}

static inline float from_bfloat(uint16_t bfloat)
{
    return float32((uint32_t)bfloat << 16);
}

static inline uint16_t to_bfloat(float value)
{
    uint32_t bits = bits32(value), odd = bits >> 16 & 1;
    bool nan = (bits & 0x7fffffff) > 255u << 23;
    return (uint16_t)(nan ? 0x7fc0 : (bits + 0x7fff + odd) >> 16);
}

#endif
