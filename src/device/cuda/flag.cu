/*
 * Flags by kernels: words in pinned host memory that the host and streams raise and await. A raise
 * writes the word with release semantics for the whole system, after everything that its block, and
 * the stream before it, has written. An await reads it with acquire semantics; one block spins, and
 * leaves when the host opens the gate, which it also does when an operation fails. Any number of
 * blocks may be resident: none waits for another block.
 */
#include "device/cuda/math.h"

#include <cuda_runtime.h>

namespace
{

constexpr int COPY_THREADS = 1024;

__device__ void store_release(uint32_t *word, uint32_t value)
{
    asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(word), "r"(value) : "memory");
}

__device__ uint32_t load_acquire(const uint32_t *word)
{
    uint32_t value;
    asm volatile("ld.acquire.sys.global.u32 %0, [%1];" : "=r"(value) : "l"(word) : "memory");
    return value;
}

__device__ void spin(const uint32_t *word, uint32_t value)
{
    while ((int32_t)(load_acquire(word) - value) < 0)
        ;
}

/* By the whole block: 16 bytes a thread, single bytes at both ends. The sources may be host memory
 * that has just been written, so nothing of them is taken from a cache. */
__device__ void copy(char *dst, const char *src, size_t bytes)
{
    size_t head = (16 - (uintptr_t)dst % 16) % 16;
    if (head > bytes)
        head = bytes;
    size_t vectors = (bytes - head) / 16, rests = bytes - 16 * vectors;
    for (size_t i = threadIdx.x; i < vectors; i += blockDim.x)
        ((uint4 *)(dst + head))[i] = __ldcv((const uint4 *)(src + head) + i);
    for (size_t i = threadIdx.x; i < rests; i += blockDim.x) {
        size_t at = i < head ? i : i + 16 * vectors;
        dst[at] = __ldcv(src + at);
    }
}

__global__ void raise_kernel(uint32_t *word, uint32_t value)
{
    __threadfence_system();
    store_release(word, value);
}

__global__ void await_kernel(const uint32_t *word, uint32_t value)
{
    spin(word, value);
}

/* The barrier orders the block's stores before thread 0's fence, which is cumulative, and so before
 * the flag. */
__global__ void __launch_bounds__(COPY_THREADS)
    copy_raise_kernel(char *dst, const char *src, size_t bytes, uint32_t *word, uint32_t value)
{
    copy(dst, src, bytes);
    __syncthreads();
    if (threadIdx.x > 0)
        return;
    __threadfence_system();
    store_release(word, value);
}

__global__ void __launch_bounds__(COPY_THREADS)
    await_copy_kernel(char *dst, const char *src, size_t bytes, const uint32_t *word,
                      uint32_t value, const uint32_t *skip)
{
    __shared__ bool skipped;
    if (threadIdx.x == 0) {
        spin(word, value);
        skipped = load_acquire(skip) != 0;
    }
    __syncthreads();
    if (!skipped)
        copy(dst, src, bytes);
}

__global__ void stamp_kernel(uint64_t *out)
{
    uint64_t now;
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now)::"memory");
    *out = now;
}

int copy_threads(size_t bytes)
{
    size_t threads = (bytes / 16 + 32) / 32 * 32;
    return threads < COPY_THREADS ? (int)threads : COPY_THREADS;
}

} // namespace

int flag_cuda_raise(uint32_t *word, uint32_t value, void *stream)
{
    raise_kernel<<<1, 1, 0, (cudaStream_t)stream>>>(word, value);
    return cudaGetLastError();
}

int flag_cuda_await(const uint32_t *word, uint32_t value, void *stream)
{
    await_kernel<<<1, 1, 0, (cudaStream_t)stream>>>(word, value);
    return cudaGetLastError();
}

int flag_cuda_copy_raise(void *dst, const void *src, size_t bytes, uint32_t *word, uint32_t value,
                         void *stream)
{
    copy_raise_kernel<<<1, copy_threads(bytes), 0, (cudaStream_t)stream>>>(
        (char *)dst, (const char *)src, bytes, word, value);
    return cudaGetLastError();
}

int flag_cuda_await_copy(void *dst, const void *src, size_t bytes, const uint32_t *word,
                         uint32_t value, const uint32_t *skip, void *stream)
{
    await_copy_kernel<<<1, copy_threads(bytes), 0, (cudaStream_t)stream>>>(
        (char *)dst, (const char *)src, bytes, word, value, skip);
    return cudaGetLastError();
}

int flag_cuda_stamp(uint64_t *out, void *stream)
{
    stamp_kernel<<<1, 1, 0, (cudaStream_t)stream>>>(out);
    return cudaGetLastError();
}

int flag_cuda_load(void)
{
    const void *const kernels[] = {(const void *)raise_kernel, (const void *)await_kernel,
                                   (const void *)copy_raise_kernel, (const void *)await_copy_kernel,
                                   (const void *)stamp_kernel};
    cudaError_t error = cudaSuccess;
    for (size_t i = 0; i < sizeof kernels / sizeof *kernels && error == cudaSuccess; i++) {
        cudaFuncAttributes attributes;
        error = cudaFuncGetAttributes(&attributes, kernels[i]);
    }
    return error;
}
