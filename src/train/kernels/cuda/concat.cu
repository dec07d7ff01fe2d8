/*
 * Concatenation of channels, and its gradient: one kernel for all parts, eight channels of a pixel a
 * thread. Where every part has a multiple of eight channels a thread copies 16 bytes.
 */
#include "train/kernels/cuda/vector.cuh"

namespace
{

constexpr unsigned THREADS = 256, BLOCKS = 8;

/* The part that channel c of the whole is of. */
__device__ unsigned part_of(const struct train_concat &pass, unsigned c)
{
    unsigned part = 0;
    while (part + 1 < pass.parts && c >= pass.part[part + 1].first)
        part++;
    return part;
}

template <class T> __device__ T *at(const struct train_part &part, size_t row, unsigned c)
{
    return (T *)part.at + row * part.padded + (c - part.first);
}

template <class T>
__global__ void join_kernel(const struct train_concat pass, T *whole, size_t chunks)
{
    const unsigned groups = pass.padded / EIGHT;
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < chunks;
         i += (size_t)gridDim.x * THREADS) {
        unsigned group;
        const size_t row = divide(i, groups, &group);
        const unsigned c = group * EIGHT;
        float v[EIGHT];
        if (pass.aligned) {
            load_eight(at<T>(pass.part[part_of(pass, c)], row, c), v);
        } else {
#pragma unroll
            for (int k = 0; k < EIGHT; k++)
                v[k] = c + k < pass.channels
                           ? load_one(at<T>(pass.part[part_of(pass, c + k)], row, c + k))
                           : 0;
        }
        store_eight(whole + i * EIGHT, v);
    }
}

/* Blocks of row y of the grid make part y. */
template <class T> __global__ void split_kernel(const struct train_concat pass, const T *whole)
{
    const struct train_part part = pass.part[blockIdx.y];
    const unsigned groups = part.padded / EIGHT;
    const size_t chunks = pass.rows * groups;
    if (!part.at)
        return;
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < chunks;
         i += (size_t)gridDim.x * THREADS) {
        unsigned group;
        const size_t row = divide(i, groups, &group);
        const T *from = whole + row * pass.padded + part.first + group * EIGHT;
        float v[EIGHT];
        if (pass.aligned) {
            load_eight(from, v);
        } else {
#pragma unroll
            for (int k = 0; k < EIGHT; k++)
                v[k] = group * EIGHT + k < part.channels ? load_one(from + k) : 0;
        }
        write_eight((T *)part.at + i * EIGHT, v, part.add);
    }
}

} // namespace

int train_concat(const struct train_gpu *gpu, const struct train_concat *pass, void *whole)
{
    const size_t chunks = pass->rows * (pass->padded / EIGHT);
    return typed(pass->type, [&](auto number) {
        using T = decltype(number);
        return launch(gpu, join_kernel<T>, blocks_for(gpu, chunks, THREADS, BLOCKS), THREADS, *pass,
                      (T *)whole, chunks);
    });
}

int train_split(const struct train_gpu *gpu, const struct train_concat *pass, const void *whole)
{
    const size_t chunks = pass->rows * (pass->padded / EIGHT);
    const dim3 grid(blocks_for(gpu, chunks, THREADS, BLOCKS) / pass->parts + 1, pass->parts);
    return typed(pass->type, [&](auto number) {
        using T = decltype(number);
        return launch(gpu, split_kernel<T>, grid, THREADS, *pass, (const T *)whole);
    });
}

int train_concat_load(void)
{
    return load_kernels(EACH_TYPE(join_kernel), EACH_TYPE(split_kernel));
}
