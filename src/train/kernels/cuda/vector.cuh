/* Tools of the trainer's kernels: elements of three types, eight at a time, and how threads stand
 * on channels. */
#ifndef ALNICO_TRAIN_KERNELS_CUDA_VECTOR_CUH
#define ALNICO_TRAIN_KERNELS_CUDA_VECTOR_CUH

#include "train/kernels/cuda/launch.h"

#include <alnico/alnico.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

namespace
{

constexpr int EIGHT = 8;

__device__ inline float load_one(const float *p)
{
    return *p;
}

__device__ inline float load_one(const __nv_bfloat16 *p)
{
    return __bfloat162float(*p);
}

__device__ inline float load_one(const __half *p)
{
    return __half2float(*p);
}

__device__ inline void store_one(float *p, float x)
{
    *p = x;
}

__device__ inline void store_one(__nv_bfloat16 *p, float x)
{
    *p = __float2bfloat16_rn(x);
}

__device__ inline void store_one(__half *p, float x)
{
    *p = __float2half_rn(x);
}

/* The larger one, or NaN if either is: a training that diverges must not look as if it did not. */
__device__ inline float larger(float a, float b)
{
#if __CUDA_ARCH__ >= 800
    float c;
    asm("max.NaN.f32 %0, %1, %2;" : "=f"(c) : "f"(a), "f"(b));
    return c;
#else
    return a != a || a > b ? a : b;
#endif
}

/* `mine` of all threads of a block of THREADS combined, in all of them. */
template <unsigned THREADS, class T, class F>
__device__ inline T block_reduce(T mine, T *shared, F combine)
{
    shared[threadIdx.x] = mine;
    __syncthreads();
    for (unsigned half = THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            shared[threadIdx.x] = combine(shared[threadIdx.x], shared[threadIdx.x + half]);
        __syncthreads();
    }
    const T result = shared[0];
    __syncthreads();
    return result;
}

template <unsigned THREADS, class T> __device__ inline T block_sum(T mine, T *shared)
{
    return block_reduce<THREADS>(mine, shared, [](T a, T b) { return a + b; });
}

/* at / n, and the rest in *rest: of 32 bits wherever that is enough, which is most of the time of
 * the kernels that pool. */
__device__ inline size_t divide(size_t at, unsigned n, unsigned *rest)
{
    if (at >> 32) {
        *rest = (unsigned)(at % n);
        return at / n;
    }
    const unsigned quotient = (unsigned)at / n;
    *rest = (unsigned)at - quotient * n;
    return quotient;
}

/* One byte for each of eight channels. */
__device__ inline uint2 bytes_of(const unsigned *values)
{
    uint2 bytes = make_uint2(0, 0);
#pragma unroll
    for (int k = 0; k < 4; k++) {
        bytes.x |= values[k] << 8 * k;
        bytes.y |= values[k + 4] << 8 * k;
    }
    return bytes;
}

/* With the type as a switch: for what is not hot. */
__device__ inline float load_any(const void *p, int type, size_t i)
{
    if (type == ALNICO_BFLOAT16)
        return load_one((const __nv_bfloat16 *)p + i);
    if (type == ALNICO_FLOAT16)
        return load_one((const __half *)p + i);
    return load_one((const float *)p + i);
}

__device__ inline void store_any(void *p, int type, size_t i, float x)
{
    if (type == ALNICO_BFLOAT16)
        store_one((__nv_bfloat16 *)p + i, x);
    else if (type == ALNICO_FLOAT16)
        store_one((__half *)p + i, x);
    else
        store_one((float *)p + i, x);
}

template <class T> struct packed {
    uint4 bits;
};

template <> struct packed<float> {
    float4 low, high;
};

/* LAST: it is not read again soon, and need not stay in the cache. */
template <class T, bool LAST = false> __device__ inline packed<T> load_packed(const T *p)
{
    packed<T> x;
    if constexpr (sizeof(T) == 4) {
        x.low = LAST ? __ldcs((const float4 *)p) : ((const float4 *)p)[0];
        x.high = LAST ? __ldcs((const float4 *)p + 1) : ((const float4 *)p)[1];
    } else {
        x.bits = LAST ? __ldcs((const uint4 *)p) : *(const uint4 *)p;
    }
    return x;
}

__device__ inline void unpack(const packed<float> &x, float *out)
{
    out[0] = x.low.x;
    out[1] = x.low.y;
    out[2] = x.low.z;
    out[3] = x.low.w;
    out[4] = x.high.x;
    out[5] = x.high.y;
    out[6] = x.high.z;
    out[7] = x.high.w;
}

__device__ inline float2 pair(uint32_t bits, const __nv_bfloat16 *)
{
    return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u));
}

__device__ inline float2 pair(uint32_t bits, const __half *)
{
    __half2 both;
    memcpy(&both, &bits, sizeof both);
    return __half22float2(both);
}

template <class T> __device__ inline void unpack(const packed<T> &x, float *out)
{
    const uint32_t words[4] = {x.bits.x, x.bits.y, x.bits.z, x.bits.w};
#pragma unroll
    for (int i = 0; i < 4; i++) {
        const float2 two = pair(words[i], (const T *)nullptr);
        out[2 * i] = two.x;
        out[2 * i + 1] = two.y;
    }
}

template <class T> __device__ inline void load_eight(const T *p, float *out)
{
    unpack(load_packed(p), out);
}

__device__ inline uint32_t join(float a, float b, const __nv_bfloat16 *)
{
    const __nv_bfloat162 both = __floats2bfloat162_rn(a, b);
    uint32_t bits;
    memcpy(&bits, &both, sizeof bits);
    return bits;
}

__device__ inline uint32_t join(float a, float b, const __half *)
{
    const __half2 both = __floats2half2_rn(a, b);
    uint32_t bits;
    memcpy(&bits, &both, sizeof bits);
    return bits;
}

template <class T> __device__ inline void store_eight(T *p, const float *x)
{
    uint4 bits;
    bits.x = join(x[0], x[1], p);
    bits.y = join(x[2], x[3], p);
    bits.z = join(x[4], x[5], p);
    bits.w = join(x[6], x[7], p);
    *(uint4 *)p = bits;
}

template <> __device__ inline void store_eight<float>(float *p, const float *x)
{
    ((float4 *)p)[0] = make_float4(x[0], x[1], x[2], x[3]);
    ((float4 *)p)[1] = make_float4(x[4], x[5], x[6], x[7]);
}

/* Adds to what is there. */
template <class T> __device__ inline void write_eight(T *p, const float *x, bool add)
{
    float sum[EIGHT];
    if (!add) {
        store_eight(p, x);
        return;
    }
    load_eight(p, sum);
#pragma unroll
    for (int k = 0; k < EIGHT; k++)
        sum[k] += x[k];
    store_eight(p, sum);
}

inline unsigned blocks_for(const struct train_gpu *gpu, size_t threads, unsigned block,
                           unsigned each)
{
    const size_t most = (size_t)gpu->multiprocessors * each, wanted = (threads + block - 1) / block;
    return (unsigned)(wanted == 0 ? 1 : wanted < most ? wanted : most);
}

inline cudaStream_t stream_of(const struct train_gpu *gpu)
{
    return (cudaStream_t)gpu->stream;
}

/* Enqueues a kernel. */
template <class... Parameters, class... Arguments>
inline int launch(const struct train_gpu *gpu, void (*kernel)(Parameters...), dim3 grid, dim3 block,
                  const Arguments &...arguments)
{
    kernel<<<grid, block, 0, stream_of(gpu)>>>(arguments...);
    return cudaGetLastError();
}

/* Loads kernels onto the current device. */
template <class... Kernels> inline int load_kernels(Kernels... kernels)
{
    cudaFuncAttributes attributes;
    int error = cudaSuccess;
    ((error = error ? error : cudaFuncGetAttributes(&attributes, kernels)), ...);
    return error;
}

/* A template of kernels for each type T: its arguments are T, and others behind it. */
#define EACH_TYPE(KERNEL) KERNEL<float>, KERNEL<__nv_bfloat16>, KERNEL<__half>
#define EACH_TYPE_AND(KERNEL, ...)                                                                 \
    KERNEL<float, __VA_ARGS__>, KERNEL<__nv_bfloat16, __VA_ARGS__>, KERNEL<__half, __VA_ARGS__>

/*
 * A kernel that may begin while the one before it, an own one too, ends (programmatic dependent
 * launch, capability 9.0): its blocks come once all of that one's have let them or are through.
 * Until after_previous() it reads only what was there before that one began, and writes nothing.
 * Behind a kernel of cuDNN or cuBLAS it could take the place of blocks that have still to come:
 * some of them let the next begin at once.
 */
template <class... Parameters, class... Arguments>
inline int launch_programmatic(const struct train_gpu *gpu, void (*kernel)(Parameters...),
                               dim3 grid, unsigned threads, const Arguments &...arguments)
{
    cudaLaunchAttribute early = {};
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
    cudaLaunchConfig_t how = {};
    how.gridDim = grid;
    how.blockDim = dim3(threads);
    how.stream = stream_of(gpu);
    how.attrs = &early;
    how.numAttrs = gpu->programmatic ? 1 : 0;
    return cudaLaunchKernelEx(&how, kernel, arguments...);
}

__device__ inline void after_previous()
{
#if __CUDA_ARCH__ >= 900
    cudaGridDependencySynchronize();
#endif
}

__device__ inline void let_next_begin()
{
#if __CUDA_ARCH__ >= 900
    cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/* Calls f with a number of the type. */
template <class F> inline int typed(int type, F f)
{
    return type == ALNICO_BFLOAT16  ? f(__nv_bfloat16())
           : type == ALNICO_FLOAT16 ? f(__half())
                                    : f(0.0f);
}

} // namespace

#endif
