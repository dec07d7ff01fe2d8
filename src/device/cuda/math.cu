/*
 * Element-wise reductions on the GPU, with cpu/math.c's results bit for bit.
 *
 * A thread takes 16 bytes at a time where all pointers are aligned alike, one element elsewhere and
 * at both ends. It reads an element of every source before it writes that of dst, and no other
 * thread touches it.
 */
#include "device/cuda/math.h"

#include "device/cuda/arithmetic.cuh"

namespace
{

constexpr int THREADS = 256;
constexpr size_t BLOCKS_MOST = 1056; /* 8 for each multiprocessor of an H200: more only queue */

template <class T> struct integer {
    typedef T stored;
    typedef T wide;
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
        return combine_integer(x, y, op);
    }
    /* A type that is shorter than `ranks` is divided as an int. */
    static __device__ wide divide(wide x, int ranks)
    {
        if constexpr (sizeof(T) == 1)
            return (T)((int)x / ranks);
        else
            return x / (T)ranks;
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
        return __uint_as_float(one_nan(x));
    }
    static __device__ wide combine(int op, wide x, wide y)
    {
        return combine_float(x, y, op);
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
        return __longlong_as_double((long long)one_nan(x));
    }
    static __device__ wide combine(int op, wide x, wide y)
    {
        return combine_float(x, y, op);
    }
    static __device__ wide divide(wide x, int ranks)
    {
        return __dmul_rn(x, __ddiv_rn(1.0, (double)ranks));
    }
};

/* Every shorter float is a float, so that what `single` chooses among them is one of them. */
struct half : single {
    typedef uint16_t stored;
    static __device__ wide load(stored x)
    {
        return half_to_float(x);
    }
    static __device__ stored store(wide x)
    {
        return (stored)half_from_float(x);
    }
};

struct bfloat : single {
    typedef uint16_t stored;
    static __device__ wide load(stored x)
    {
        return bfloat_to_float(x);
    }
    static __device__ stored store(wide x)
    {
        return (stored)bfloat_from_float(x);
    }
};

template <__nv_fp8_interpretation_t FLOAT8> struct float8 : single {
    typedef uint8_t stored;
    static __device__ wide load(stored x)
    {
        return float8_to_float<FLOAT8>(x);
    }
    static __device__ stored store(wide x)
    {
        return (stored)float8_from_float<FLOAT8>(x);
    }
};

template <class T> struct alignas(16) vector {
    T at[16 / sizeof(T)];
};

/* Elements before the first that is aligned to 16 bytes; all of them if the pointers are not
 * aligned alike. */
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

template <class E>
__global__ void scale_kernel(typename E::stored *dst, const typename E::stored *src, size_t count,
                             u64 bits, const typename E::stored *at)
{
    typedef typename E::stored T;
    union {
        u64 word;
        T element;
    } given = {bits};
    auto factor = E::load(at ? *at : given.element);
    auto one = [factor](T x) { return E::store(E::combine(ALNICO_PRODUCT, E::load(x), factor)); };
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

struct kernels {
    const void *reduce, *divide, *scale;
    size_t bytes; /* of an element */
};

template <class E> kernels kernels_of()
{
    return {(const void *)reduce_kernel<E>, (const void *)divide_kernel<E>,
            (const void *)scale_kernel<E>, sizeof(typename E::stored)};
}

kernels find_kernels(int type)
{
    switch (type) {
    case ALNICO_INT8:
        return kernels_of<integer<int8_t>>();
    case ALNICO_UINT8:
        return kernels_of<integer<uint8_t>>();
    case ALNICO_INT32:
        return kernels_of<integer<int32_t>>();
    case ALNICO_UINT32:
        return kernels_of<integer<uint32_t>>();
    case ALNICO_INT64:
        return kernels_of<integer<int64_t>>();
    case ALNICO_UINT64:
        return kernels_of<integer<uint64_t>>();
    case ALNICO_FLOAT16:
        return kernels_of<half>();
    case ALNICO_BFLOAT16:
        return kernels_of<bfloat>();
    case ALNICO_FLOAT32:
        return kernels_of<single>();
    case ALNICO_FLOAT8_E4M3:
        return kernels_of<float8<__NV_E4M3>>();
    case ALNICO_FLOAT8_E5M2:
        return kernels_of<float8<__NV_E5M2>>();
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

int math_cuda_scale(void *dst, const void *src, size_t count, int type, uint64_t bits,
                    const void *at, void *stream)
{
    if (count == 0)
        return cudaSuccess;
    kernels k = find_kernels(type);
    void *arguments[] = {&dst, &src, &count, &bits, &at};
    return launch(k.scale, count * k.bytes, arguments, stream);
}

int math_cuda_load(void)
{
    cudaError_t error = cudaSuccess;
    for (int type = ALNICO_INT8; type <= ALNICO_FLOAT8_E5M2 && error == cudaSuccess; type++) {
        kernels k = find_kernels(type);
        cudaFuncAttributes attributes;
        error = cudaFuncGetAttributes(&attributes, k.reduce);
        if (error == cudaSuccess)
            error = cudaFuncGetAttributes(&attributes, k.divide);
        if (error == cudaSuccess)
            error = cudaFuncGetAttributes(&attributes, k.scale);
    }
    return error;
}
