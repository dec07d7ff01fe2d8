/*
 * A column of ones in and out of a matrix, in place and without a copy of it. A block takes a chunk of
 * what is there by ticket, moving right the last chunk first, moving left the first. It loads the
 * chunk, raises the chunk's flag, waits for the at most three chunks that lie where it will write, and
 * writes. Loads wait for nothing, and chunks wait only for those of earlier tickets, whose blocks run:
 * any number of blocks may be resident.
 */
#include "train/kernels/realign.h"

#include <cuda_runtime.h>
#include <stdint.h>

namespace
{

constexpr unsigned THREADS = 256, ITEMS = 16, CHUNK = THREADS * ITEMS, WAITS = 3;

/* What is read: `count` numbers in rows of `width`; words: the next ticket, and a flag a chunk. */
struct job {
    float *matrix;
    uint64_t count;
    uint32_t width, chunks;
    uint32_t *words;
};

__device__ void flag_raise(uint32_t *flag)
{
    asm volatile("st.release.gpu.global.u32 [%0], 1;" ::"l"(flag) : "memory");
}

__device__ bool flag_raised(const uint32_t *flag)
{
    uint32_t value;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
    return value;
}

/* The numbers that a chunk writes. Right: the ones before its rows are its own. */
template <bool RIGHT>
__device__ void written(const job &j, uint64_t first, uint64_t last, uint64_t *from, uint64_t *to)
{
    const uint32_t begin = (uint32_t)first / j.width, end = (uint32_t)last / j.width;
    const bool row_begins = (uint32_t)first % j.width == 0;
    *from = RIGHT ? first + begin + !row_begins : first - begin - !row_begins;
    *to = RIGHT ? last + end + 1 : last - end - 1;
}

template <bool RIGHT> __device__ void chunk_wait(const job &j, uint32_t chunk)
{
    const uint64_t first = (uint64_t)chunk * CHUNK,
                   last = (first + CHUNK < j.count ? first + CHUNK : j.count) - 1;
    uint64_t from, to;
    written<RIGHT>(j, first, last, &from, &to);
    const uint64_t other = from / CHUNK + threadIdx.x;
    if (threadIdx.x < WAITS && other <= to / CHUNK && other < j.chunks && other != chunk)
        while (!flag_raised(&j.words[1 + other]))
            ;
}

template <bool RIGHT> __device__ void number_write(const job &j, uint32_t at, float number)
{
    const uint32_t row = at / j.width, column = at - row * j.width;
    if (RIGHT) {
        j.matrix[(uint64_t)at + row + 1] = number;
        if (column == 0)
            j.matrix[(uint64_t)at + row] = 1;
    } else if (column > 0) {
        j.matrix[at - row - 1] = number;
    }
}

/* The barriers order a block's loads before its flag, and others' flags, which thread 0 to 2 have
 * seen, before its stores. */
template <bool RIGHT> __global__ void __launch_bounds__(THREADS) realign_kernel(job j)
{
    __shared__ uint32_t ticket;
    float numbers[ITEMS];
    if (threadIdx.x == 0)
        ticket = atomicAdd(&j.words[0], 1);
    __syncthreads();
    const uint32_t chunk = RIGHT ? j.chunks - 1 - ticket : ticket;
    const uint64_t begin = (uint64_t)chunk * CHUNK + threadIdx.x;
#pragma unroll
    for (unsigned k = 0; k < ITEMS; k++)
        if (begin + k * THREADS < j.count)
            numbers[k] = __ldcg(j.matrix + begin + k * THREADS);
    __syncthreads();
    if (threadIdx.x == 0) {
        __threadfence();
        flag_raise(&j.words[1 + chunk]);
    }
    chunk_wait<RIGHT>(j, chunk);
    __syncthreads();
#pragma unroll
    for (unsigned k = 0; k < ITEMS; k++)
        if (begin + k * THREADS < j.count)
            number_write<RIGHT>(j, (uint32_t)(begin + k * THREADS), numbers[k]);
}

job job_of(const struct realign *pass, void *scratch)
{
    job j = {pass->matrix, 0, 0, 0, (uint32_t *)scratch};
    j.width = (uint32_t)(pass->columns + !pass->right);
    j.count = (uint64_t)pass->rows * j.width;
    j.chunks = (uint32_t)((j.count + CHUNK - 1) / CHUNK);
    return j;
}

} // namespace

size_t train_realign_scratch(const struct realign *pass)
{
    return (1 + (size_t)job_of(pass, NULL).chunks) * sizeof(uint32_t);
}

int train_realign(const struct realign *pass, void *scratch, void *stream)
{
    const job j = job_of(pass, scratch);
    const cudaStream_t on = (cudaStream_t)stream;
    const cudaError_t error = cudaMemsetAsync(scratch, 0, train_realign_scratch(pass), on);
    if (error != cudaSuccess)
        return error;
    if (pass->right)
        realign_kernel<true><<<j.chunks, THREADS, 0, on>>>(j);
    else
        realign_kernel<false><<<j.chunks, THREADS, 0, on>>>(j);
    return cudaGetLastError();
}
