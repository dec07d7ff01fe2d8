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

/* A word of any type but the short floats. */
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

/* What is stored in so many bits, as a float, and back. */
struct float16 {
    static constexpr int BITS = 16;
    static __device__ __forceinline__ float load(u32 bits)
    {
        return half_to_float(bits);
    }
    static __device__ __forceinline__ u32 store(float f)
    {
        return half_from_float(f);
    }
};

struct bfloat16 {
    static constexpr int BITS = 16;
    static __device__ __forceinline__ float load(u32 bits)
    {
        return bfloat_to_float(bits);
    }
    static __device__ __forceinline__ u32 store(float f)
    {
        return bfloat_from_float(f);
    }
};

template <__nv_fp8_interpretation_t FLOAT8> struct float8 {
    static constexpr int BITS = 8;
    static __device__ __forceinline__ float load(u32 bits)
    {
        return float8_to_float<FLOAT8>(bits);
    }
    static __device__ __forceinline__ u32 store(float f)
    {
        return float8_from_float<FLOAT8>(f);
    }
};

/* Element i of a word, and a word of rounded elements; `divide`: an average's last step. */
template <class E> static __device__ __forceinline__ float element(u64 word, int i)
{
    return E::load((u32)(word >> E::BITS * i) & ((1u << E::BITS) - 1));
}

template <class E>
static __device__ __forceinline__ u64 rounded(const float *x, const peer_arguments &a, bool divide)
{
    float factor = divide ? a.factor : 1;
    u64 word = 0;
#pragma unroll
    for (int i = 0; i < 64 / E::BITS; i++)
        word |= (u64)E::store(x[i] * factor) << E::BITS * i;
    return word;
}

/* Four 16-bit floats, in float32 until the end. */
template <class E> struct sum16 {
    float x[4];

    __device__ __forceinline__ void set(u64 word, const peer_arguments &)
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] = element<E>(word, i);
    }
    __device__ __forceinline__ void add(u64 word, const peer_arguments &)
    {
#pragma unroll
        for (int i = 0; i < 4; i++)
            x[i] += element<E>(word, i);
    }
    __device__ __forceinline__ u64 get(const peer_arguments &a, bool divide = true) const
    {
        return rounded<E>(x, a, divide);
    }
};

template <> struct sum<PEER_KIND_FLOAT16> : sum16<float16> {
};
template <> struct sum<PEER_KIND_BFLOAT16> : sum16<bfloat16> {
};

/* Everything else: type and operation are looked at in each step. Short floats are in `x` until the
 * end, all others in `word`. */
template <> struct sum<PEER_KIND_ANY> {
    u64 word;
    float x[8];

    template <class E> __device__ __forceinline__ void set_floats(u64 w)
    {
#pragma unroll
        for (int i = 0; i < 64 / E::BITS; i++)
            x[i] = element<E>(w, i);
    }
    template <class E> __device__ __forceinline__ void add_floats(u64 w, int op)
    {
#pragma unroll
        for (int i = 0; i < 64 / E::BITS; i++)
            x[i] = combine_float(x[i], element<E>(w, i), op);
    }
    __device__ __forceinline__ void set(u64 w, const peer_arguments &a)
    {
        switch (a.type) {
        case ALNICO_FLOAT16:
            return set_floats<float16>(w);
        case ALNICO_BFLOAT16:
            return set_floats<bfloat16>(w);
        case ALNICO_FLOAT8_E4M3:
            return set_floats<float8<__NV_E4M3>>(w);
        case ALNICO_FLOAT8_E5M2:
            return set_floats<float8<__NV_E5M2>>(w);
        default:
            word = w;
        }
    }
    __device__ __forceinline__ void add(u64 w, const peer_arguments &a)
    {
        switch (a.type) {
        case ALNICO_FLOAT16:
            return add_floats<float16>(w, a.op);
        case ALNICO_BFLOAT16:
            return add_floats<bfloat16>(w, a.op);
        case ALNICO_FLOAT8_E4M3:
            return add_floats<float8<__NV_E4M3>>(w, a.op);
        case ALNICO_FLOAT8_E5M2:
            return add_floats<float8<__NV_E5M2>>(w, a.op);
        default:
            word = combine_any(word, w, a.type, a.op);
        }
    }
    __device__ __forceinline__ u64 get(const peer_arguments &a, bool divide = true) const
    {
        switch (a.type) {
        case ALNICO_FLOAT16:
            return rounded<float16>(x, a, divide);
        case ALNICO_BFLOAT16:
            return rounded<bfloat16>(x, a, divide);
        case ALNICO_FLOAT8_E4M3:
            return rounded<float8<__NV_E4M3>>(x, a, divide);
        case ALNICO_FLOAT8_E5M2:
            return rounded<float8<__NV_E5M2>>(x, a, divide);
        default:
            return conclude_any(word, a, divide);
        }
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
