/*
 * Reductions of 8-byte words of any type and operation, as cpu/math.h says, bit for bit. The common
 * sums have code of their own; everything else looks at type and operation in each step. Included
 * by .cu files only.
 */
#ifndef ALNICO_COMM_GPUMEM_ARITHMETIC_CUH
#define ALNICO_COMM_GPUMEM_ARITHMETIC_CUH

#include "comm/gpumem/kernel.h"
#include "device/cuda/arithmetic.cuh"

/* All elements of a word; U is T without a sign. */
template <class U, class T>
static __device__ __forceinline__ u64 combine_integers(u64 a, u64 b, int op)
{
    u64 out = 0;
#pragma unroll 1
    for (int i = 0; i < 64; i += 8 * (int)sizeof(T))
        out |= (u64)(U)combine_integer((T)(a >> i), (T)(b >> i), op) << i;
    return out;
}

template <class U, class T> static __device__ __forceinline__ u64 divide_integers(u64 a, int ranks)
{
    u64 out = 0;
#pragma unroll 1
    for (int i = 0; i < 64; i += 8 * (int)sizeof(T))
        out |= (u64)(U)(T)((T)(a >> i) / (T)ranks) << i;
    return out;
}

/* A word of any type but the 16-bit floats. */
static __device__ __noinline__ u64 combine_any(u64 a, u64 b, int type, int op)
{
    switch (type) {
    case ALNICO_INT8:
        return combine_integers<unsigned char, signed char>(a, b, op);
    case ALNICO_UINT8:
        return combine_integers<unsigned char, unsigned char>(a, b, op);
    case ALNICO_INT32:
        return combine_integers<u32, int>(a, b, op);
    case ALNICO_UINT32:
        return combine_integers<u32, u32>(a, b, op);
    case ALNICO_INT64:
        return combine_integers<u64, long long>(a, b, op);
    case ALNICO_UINT64:
        return combine_integers<u64, u64>(a, b, op);
    case ALNICO_FLOAT64:
        return (u64)__double_as_longlong(combine_float(__longlong_as_double((long long)a),
                                                       __longlong_as_double((long long)b), op));
    default: {
        float x = combine_float(__uint_as_float((u32)a), __uint_as_float((u32)b), op);
        float y =
            combine_float(__uint_as_float((u32)(a >> 32)), __uint_as_float((u32)(b >> 32)), op);
        return (u64)__float_as_uint(y) << 32 | __float_as_uint(x);
    }
    }
}

/* The last step: the division of an average, and one NaN for all. */
static __device__ __noinline__ u64 conclude_any(u64 word, const peer_arguments &a, bool divide)
{
    bool average = divide && a.op == ALNICO_AVERAGE;
    switch (a.type) {
    case ALNICO_INT8:
        return average ? divide_integers<unsigned char, signed char>(word, a.world.size) : word;
    case ALNICO_UINT8:
        return average ? divide_integers<unsigned char, unsigned char>(word, a.world.size) : word;
    case ALNICO_INT32:
        return average ? divide_integers<u32, int>(word, a.world.size) : word;
    case ALNICO_UINT32:
        return average ? divide_integers<u32, u32>(word, a.world.size) : word;
    case ALNICO_INT64:
        return average ? divide_integers<u64, long long>(word, a.world.size) : word;
    case ALNICO_UINT64:
        return average ? divide_integers<u64, u64>(word, a.world.size) : word;
    case ALNICO_FLOAT64:
        return one_nan(__longlong_as_double((long long)word) * (divide ? a.scale : 1));
    default: {
        float factor = divide ? a.factor : 1;
        return (u64)one_nan(__uint_as_float((u32)(word >> 32)) * factor) << 32 |
               one_nan(__uint_as_float((u32)word) * factor);
    }
    }
}

/* A running combination of words, in the order in which they are added; `divide`: an average's last
 * step. */
template <int KIND> struct sum;

template <> struct sum<PEER_KIND_FLOAT32> {
    float x, y;

    __device__ __forceinline__ void set(u64 word, const peer_arguments &)
    {
        x = __uint_as_float((u32)word);
        y = __uint_as_float((u32)(word >> 32));
    }
    __device__ __forceinline__ void add(u64 word, const peer_arguments &)
    {
        x += __uint_as_float((u32)word);
        y += __uint_as_float((u32)(word >> 32));
    }
    __device__ __forceinline__ u64 get(const peer_arguments &a, bool divide = true) const
    {
        float factor = divide ? a.factor : 1;
        return (u64)one_nan(y * factor) << 32 | one_nan(x * factor);
    }
};

/* Four 16-bit floats, in float32 until the end. */
template <int KIND> static __device__ __forceinline__ float widen(u32 bits)
{
    return KIND == PEER_KIND_FLOAT16 ? half_to_float(bits) : bfloat_to_float(bits);
}

template <int KIND> static __device__ __forceinline__ u32 narrow(float f)
{
    return KIND == PEER_KIND_FLOAT16 ? half_from_float(f) : bfloat_from_float(f);
}

template <int KIND> struct sum16 {
    float x[4];

    __device__ __forceinline__ void set(u64 word, const peer_arguments &)
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] = widen<KIND>((u32)(word >> 16 * i) & 0xffff);
    }
    __device__ __forceinline__ void add(u64 word, const peer_arguments &)
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] += widen<KIND>((u32)(word >> 16 * i) & 0xffff);
    }
    __device__ __forceinline__ void combine(u64 word, int op)
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] = combine_float(x[i], widen<KIND>((u32)(word >> 16 * i) & 0xffff), op);
    }
    __device__ __forceinline__ u64 get(const peer_arguments &a, bool divide = true) const
    {
        float factor = divide ? a.factor : 1;
        u32 low = narrow<KIND>(x[0] * factor) | narrow<KIND>(x[1] * factor) << 16;
        u32 high = narrow<KIND>(x[2] * factor) | narrow<KIND>(x[3] * factor) << 16;
        return (u64)high << 32 | low;
    }
};

template <> struct sum<PEER_KIND_FLOAT16> : sum16<PEER_KIND_FLOAT16> {
};
template <> struct sum<PEER_KIND_BFLOAT16> : sum16<PEER_KIND_BFLOAT16> {
};

/* Everything else: type and operation are looked at in each step. */
template <> struct sum<PEER_KIND_ANY> {
    u64 word;
    sum16<PEER_KIND_FLOAT16> halves;
    sum16<PEER_KIND_BFLOAT16> bfloats;

    __device__ __forceinline__ void set(u64 w, const peer_arguments &a)
    {
        word = w;
        halves.set(w, a);
        bfloats.set(w, a);
    }
    __device__ __forceinline__ void add(u64 w, const peer_arguments &a)
    {
        if (a.type == ALNICO_FLOAT16)
            halves.combine(w, a.op);
        else if (a.type == ALNICO_BFLOAT16)
            bfloats.combine(w, a.op);
        else
            word = combine_any(word, w, a.type, a.op);
    }
    __device__ __forceinline__ u64 get(const peer_arguments &a, bool divide = true) const
    {
        if (a.type == ALNICO_FLOAT16)
            return halves.get(a, divide);
        if (a.type == ALNICO_BFLOAT16)
            return bfloats.get(a, divide);
        return conclude_any(word, a, divide);
    }
};

/* Combines one word of every rank in rank order. */
template <int KIND, int RANKS>
static __device__ __forceinline__ u64 combine(const u64 (&words)[RANKS], const peer_arguments &a)
{
    sum<KIND> total;
    total.set(words[0], a);
#pragma unroll
    for (int r = 1; r < RANKS; r++)
        if (r < a.world.size)
            total.add(words[r], a);
    return total.get(a);
}

#endif
