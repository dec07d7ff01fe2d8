/* See realign_source.h. */
#include "benchmarks/studies/realign_source.h"

#include <cuda_runtime.h>

namespace
{

constexpr unsigned THREADS = 1024;

/* Place in the helper of the first `row` numbers of a row. */
__device__ size_t helper_place(size_t row)
{
    return row * (row - 1) / 2;
}

__global__ void save_kernel(const float *matrix, float *helper, size_t columns)
{
    const size_t row = blockIdx.x + 1;
    for (size_t i = threadIdx.x; i < row && i < columns; i += THREADS)
        helper[helper_place(row) + i] = matrix[row * columns + i];
}

/* A block a row, from its end: what it reads of the matrix lies within what it writes. */
__global__ void move_kernel(float *matrix, const float *helper, size_t columns)
{
    const size_t row = blockIdx.x;
    const float *from = matrix + row * columns, *saved = helper + (row ? helper_place(row) : 0);
    float *to = matrix + row * (columns + 1);
    for (size_t end = columns; end > 0; end -= end < THREADS ? end : THREADS) {
        const bool mine = threadIdx.x < end;
        const size_t i = end - 1 - threadIdx.x;
        const float number = !mine ? 0 : i < row ? saved[i] : from[i];
        __syncthreads();
        if (mine)
            to[i + 1] = number;
        __syncthreads();
    }
    if (threadIdx.x == 0)
        *to = 1;
}

} // namespace

int realign_source_right(float *matrix, size_t rows, size_t columns, float *helper, void *stream)
{
    const cudaStream_t on = (cudaStream_t)stream;
    if (rows > 1)
        save_kernel<<<(unsigned)(rows - 1), THREADS, 0, on>>>(matrix, helper, columns);
    move_kernel<<<(unsigned)rows, THREADS, 0, on>>>(matrix, helper, columns);
    return cudaGetLastError();
}
