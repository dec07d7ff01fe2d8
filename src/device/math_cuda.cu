/*
 * Element-wise reductions on the GPU, with math_cpu.c's results bit for bit: each is one IEEE operation (16-bit floats
 * compute in float32 and round to nearest even), and a NaN result is always the same quiet NaN.
 *
 * A thread takes 16 bytes at a time where all pointers are aligned alike, one element elsewhere and at both ends.
 * It reads an element of every source before it writes that of dst, and no other thread touches it.
 */
#include "math_cuda.h"

#include <alnico/alnico.h>

#include <cuda_runtime.h>

namespace
{

constexpr int THREADS = 256;
constexpr size_t BLOCKS_MOST = 1056; /* 8 for each multiprocessor of an H200: more only queue */

/* ---- Elements: how each type is loaded, combined and stored ---- */

__device__ uint32_t bits32(float x)
{
    return __float_as_uint(x);
}

__device__ float float32(uint32_t bits)
{
    return __uint_as_float(bits);
}

__device__ uint64_t bits64(double x)
{
    return (uint64_t)__double_as_longlong(x);
}

__device__ double float64(uint64_t bits)
{
    return __longlong_as_double((long long)bits);
}

template <class U, class S> struct integer { /* U is what wraps, S what is ordered and divided */
    typedef U stored;
    typedef U wide;
    typedef S factor;
    static __device__ wide load(stored x)
    {
        return x;
    }
    static __device__ stored store(wide x)
    {
        return x;
    }
    static __device__ wide combine(int op, wide x, wide y)
    {
        switch (op) {
        case ALNICO_PRODUCT:
            return (U)(x * y);
        case ALNICO_MINIMUM:
            return (S)x < (S)y ? x : y;
        case ALNICO_MAXIMUM:
            return (S)x > (S)y ? x : y;
        case ALNICO_LOGICAL_AND:
            return (U)(x != 0 && y != 0);
        case ALNICO_LOGICAL_OR:
            return (U)(x != 0 || y != 0);
        case ALNICO_LOGICAL_XOR:
            return (U)((x != 0) != (y != 0));
        case ALNICO_BITWISE_AND:
            return x & y;
        case ALNICO_BITWISE_OR:
            return x | y;
        case ALNICO_BITWISE_XOR:
            return x ^ y;
        default:
            return (U)(x + y);
        }
    }
    /* A type that is shorter than `ranks` is divided as an int. */
    static __device__ wide divide(wide x, int ranks)
    {
        if constexpr (sizeof(U) == 1)
            return (U)((int)(S)x / ranks);
        else
            return (U)((S)x / (S)ranks);
    }
};

struct single {
    typedef float stored;
    typedef float wide;
    static __device__ wide load(stored x)
    {
        return x;
    }
    static __device__ stored store(wide x)
    {
        return isnan(x) ? float32(0x7fc00000) : x;
    }
    /* Where neither is smaller the union of the bits is right: see math_cpu.c. */
    static __device__ wide smaller(wide x, wide y)
    {
        wide other = y < x ? y : float32(bits32(x) | bits32(y));
        return x < y ? x : other;
    }
    static __device__ wide combine(int op, wide x, wide y)
    {
        switch (op) {
        case ALNICO_PRODUCT:
            return __fmul_rn(x, y);
        case ALNICO_MINIMUM:
            return smaller(x, y);
        case ALNICO_MAXIMUM:
            return -smaller(-x, -y);
        default:
            return __fadd_rn(x, y);
        }
    }
    static __device__ wide divide(wide x, int ranks)
    {
        return __fmul_rn(x, __fdiv_rn(1.0f, (float)ranks));
    }
};

struct twofold {
    typedef double stored;
    typedef double wide;
    static __device__ wide load(stored x)
    {
        return x;
    }
    static __device__ stored store(wide x)
    {
        return isnan(x) ? float64(0x7ff8000000000000) : x;
    }
    static __device__ wide smaller(wide x, wide y)
    {
        wide other = y < x ? y : float64(bits64(x) | bits64(y));
        return x < y ? x : other;
    }
    static __device__ wide combine(int op, wide x, wide y)
    {
        switch (op) {
        case ALNICO_PRODUCT:
            return __dmul_rn(x, y);
        case ALNICO_MINIMUM:
            return smaller(x, y);
        case ALNICO_MAXIMUM:
            return -smaller(-x, -y);
        default:
            return __dadd_rn(x, y);
        }
    }
    static __device__ wide divide(wide x, int ranks)
    {
        return __dmul_rn(x, __ddiv_rn(1.0, (double)ranks));
    }
};

/* Every half and bfloat is a float, so that what `single` chooses among them is one of them. */
struct half : single {
    typedef uint16_t stored;
    static __device__ wide load(stored x)
    {
        float wide;
        asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x));
        return wide;
    }
    static __device__ stored store(wide x)
    {
        uint16_t narrow;
        asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow) : "f"(x));
        return isnan(x) ? (stored)0x7e00 : narrow;
    }
};

struct bfloat : single {
    typedef uint16_t stored;
    static __device__ wide load(stored x)
    {
        return float32((uint32_t)x << 16);
    }
    static __device__ stored store(wide x)
    {
        uint32_t bits = bits32(x), odd = bits >> 16 & 1;
        return (stored)(isnan(x) ? 0x7fc0 : (bits + 0x7fff + odd) >> 16);
    }
};

/* ---- Loops ---- */

template <class T> struct alignas(16) vector {
    T at[16 / sizeof(T)];
};

/* Elements before the first that is aligned to 16 bytes; all of them if the pointers are not aligned alike. */
template <class T>
__device__ size_t find_head(const void *dst, const void *a, const void *b, size_t count)
{
    uintptr_t at = (uintptr_t)dst;
    if (((at ^ (uintptr_t)a) | (at ^ (uintptr_t)b)) & 15)
        return count;
    size_t head = (16 - at % 16) % 16 / sizeof(T);
    return head < count ? head : count;
}

/* Calls body on vectors, and rest on the elements that are in none, over the whole grid. */
template <class T, class Body, class Rest>
__device__ void for_all(size_t head, size_t count, Body body, Rest rest)
{
    constexpr size_t LANES = 16 / sizeof(T);
    size_t vectors = (count - head) / LANES, rests = count - vectors * LANES;
    size_t first = (size_t)blockIdx.x * blockDim.x + threadIdx.x;
    size_t step = (size_t)gridDim.x * blockDim.x;
    for (size_t i = first; i < vectors; i += step)
        body(i);
    for (size_t i = first; i < rests; i += step)
        rest(i < head ? i : i + vectors * LANES);
}

template <class E>
__global__ void reduce_kernel(typename E::stored *dst, const typename E::stored *a,
                              const typename E::stored *b, size_t count, int op)
{
    typedef typename E::stored T;
    auto one = [op](T x, T y) { return E::store(E::combine(op, E::load(x), E::load(y))); };
    size_t head = find_head<T>(dst, a, b, count);
    for_all<T>(
        head, count,
        [=](size_t i) {
            vector<T> x = ((const vector<T> *)(a + head))[i],
                      y = ((const vector<T> *)(b + head))[i];
            for (size_t k = 0; k < 16 / sizeof(T); k++)
                x.at[k] = one(x.at[k], y.at[k]);
            ((vector<T> *)(dst + head))[i] = x;
        },
        [=](size_t i) { dst[i] = one(a[i], b[i]); });
}

template <class E>
__global__ void divide_kernel(typename E::stored *dst, const typename E::stored *src, size_t count,
                              int ranks)
{
    typedef typename E::stored T;
    auto one = [ranks](T x) { return E::store(E::divide(E::load(x), ranks)); };
    size_t head = find_head<T>(dst, src, src, count);
    for_all<T>(
        head, count,
        [=](size_t i) {
            vector<T> x = ((const vector<T> *)(src + head))[i];
            for (size_t k = 0; k < 16 / sizeof(T); k++)
                x.at[k] = one(x.at[k]);
            ((vector<T> *)(dst + head))[i] = x;
        },
        [=](size_t i) { dst[i] = one(src[i]); });
}

/* ---- The table ---- */

struct kernels {
    const void *reduce, *divide;
    size_t bytes; /* of an element */
};

template <class E> kernels kernels_of()
{
    return {(const void *)reduce_kernel<E>, (const void *)divide_kernel<E>,
            sizeof(typename E::stored)};
}

kernels find_kernels(int type)
{
    switch (type) {
    case ALNICO_INT8:
        return kernels_of<integer<uint8_t, int8_t>>();
    case ALNICO_UINT8:
        return kernels_of<integer<uint8_t, uint8_t>>();
    case ALNICO_INT32:
        return kernels_of<integer<uint32_t, int32_t>>();
    case ALNICO_UINT32:
        return kernels_of<integer<uint32_t, uint32_t>>();
    case ALNICO_INT64:
        return kernels_of<integer<uint64_t, int64_t>>();
    case ALNICO_UINT64:
        return kernels_of<integer<uint64_t, uint64_t>>();
    case ALNICO_FLOAT16:
        return kernels_of<half>();
    case ALNICO_BFLOAT16:
        return kernels_of<bfloat>();
    case ALNICO_FLOAT32:
        return kernels_of<single>();
    default:
        return kernels_of<twofold>();
    }
}

int launch(const void *kernel, size_t bytes, void **arguments, void *stream)
{
    size_t blocks = (bytes / 16 + THREADS) / THREADS;
    if (blocks > BLOCKS_MOST)
        blocks = BLOCKS_MOST;
    return cudaLaunchKernel(kernel, dim3((unsigned)blocks), dim3(THREADS), arguments, 0,
                            (cudaStream_t)stream);
}

} // namespace

int math_cuda_reduce(void *dst, const void *a, const void *b, size_t count, int type, int op,
                     void *stream)
{
    if (count == 0)
        return cudaSuccess;
    kernels k = find_kernels(type);
    void *arguments[] = {&dst, &a, &b, &count, &op};
    return launch(k.reduce, count * k.bytes, arguments, stream);
}

int math_cuda_divide(void *dst, const void *src, size_t count, int type, int ranks, void *stream)
{
    if (count == 0)
        return cudaSuccess;
    kernels k = find_kernels(type);
    void *arguments[] = {&dst, &src, &count, &ranks};
    return launch(k.divide, count * k.bytes, arguments, stream);
}

int math_cuda_load(void)
{
    cudaError_t error = cudaSuccess;
    for (int type = ALNICO_INT8; type <= ALNICO_FLOAT64 && error == cudaSuccess; type++) {
        kernels k = find_kernels(type);
        cudaFuncAttributes attributes;
        error = cudaFuncGetAttributes(&attributes, k.reduce);
        if (error == cudaSuccess)
            error = cudaFuncGetAttributes(&attributes, k.divide);
    }
    return error;
}
