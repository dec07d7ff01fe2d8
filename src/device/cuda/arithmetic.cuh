/*
 * One element of each type on the GPU: what cpu/math.h says, bit for bit. Each operation is one of
 * IEEE, short floats compute in float32 and round to nearest even, and a NaN result is always the
 * same quiet NaN. Included by .cu files only.
 */
#ifndef ALNICO_DEVICE_CUDA_ARITHMETIC_CUH
#define ALNICO_DEVICE_CUDA_ARITHMETIC_CUH

#include <alnico/alnico.h>

#include <cuda_fp8.h>
#include <cuda_runtime.h>

typedef unsigned long long u64;
typedef unsigned int u32;

static __device__ __forceinline__ float half_to_float(u32 bits)
{
    float f;
    asm("cvt.f32.f16 %0, %1;" : "=f"(f) : "h"((unsigned short)bits));
    return f;
}

static __device__ __forceinline__ u32 half_from_float(float f)
{
    unsigned short bits;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(f));
    return f != f ? 0x7e00u : (u32)bits;
}

static __device__ __forceinline__ float bfloat_to_float(u32 bits)
{
    return __uint_as_float(bits << 16);
}

static __device__ __forceinline__ u32 bfloat_from_float(float f)
{
    u32 bits = __float_as_uint(f);
    return f != f ? 0x7fc0u : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}

template <__nv_fp8_interpretation_t FLOAT8>
static __device__ __forceinline__ float float8_to_float(u32 bits)
{
    return half_to_float(__nv_cvt_fp8_to_halfraw((__nv_fp8_storage_t)bits, FLOAT8).x);
}

template <__nv_fp8_interpretation_t FLOAT8>
static __device__ __forceinline__ u32 float8_from_float(float f)
{
    return f != f ? 0x7fu : (u32)__nv_cvt_float_to_fp8(f, __NV_SATFINITE, FLOAT8);
}

static __device__ __forceinline__ u32 one_nan(float f)
{
    return f != f ? 0x7fc00000u : __float_as_uint(f);
}

static __device__ __forceinline__ u64 one_nan(double f)
{
    return f != f ? 0x7ff8000000000000ull : (u64)__double_as_longlong(f);
}

/* If neither is smaller, they are equal, zeros of two signs, or one is NaN: the union of the bits
 * is right. */
static __device__ __forceinline__ float smaller(float x, float y)
{
    float other = y < x ? y : __uint_as_float(__float_as_uint(x) | __float_as_uint(y));
    return x < y ? x : other;
}

static __device__ __forceinline__ double smaller(double x, double y)
{
    double other =
        y < x ? y : __longlong_as_double(__double_as_longlong(x) | __double_as_longlong(y));
    return x < y ? x : other;
}

template <class T> static __device__ __forceinline__ T combine_float(T x, T y, int op)
{
    switch (op) {
    case ALNICO_PRODUCT:
        return x * y;
    case ALNICO_MINIMUM:
        return smaller(x, y);
    case ALNICO_MAXIMUM:
        return -smaller(-x, -y);
    default:
        return x + y;
    }
}

template <class T> static __device__ __forceinline__ T combine_integer(T x, T y, int op)
{
    switch (op) {
    case ALNICO_PRODUCT:
        return (T)((u64)x * (u64)y);
    case ALNICO_MINIMUM:
        return x < y ? x : y;
    case ALNICO_MAXIMUM:
        return x > y ? x : y;
    case ALNICO_LOGICAL_AND:
        return (T)(x != 0 && y != 0);
    case ALNICO_LOGICAL_OR:
        return (T)(x != 0 || y != 0);
    case ALNICO_LOGICAL_XOR:
        return (T)((x != 0) != (y != 0));
    case ALNICO_BITWISE_AND:
        return (T)(x & y);
    case ALNICO_BITWISE_OR:
        return (T)(x | y);
    case ALNICO_BITWISE_XOR:
        return (T)(x ^ y);
    default:
        return (T)((u64)x + (u64)y);
    }
}

#endif
