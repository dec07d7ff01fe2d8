/*
 * Nearest upsampling. Forward a thread makes eight channels of an output pixel. Backward LANES
 * threads share the output pixels of one input pixel's eight channels, and add up in a fixed order:
 * one where the factor is small, a block where it is large.
 */
#include "train/kernels/cuda/vector.cuh"

namespace
{

constexpr unsigned THREADS = 256, FACTOR_LARGE = 8;

template <class T>
__global__ void upsample_kernel(const struct train_upsample p, T *y, const T *x, size_t chunks)
{
    const unsigned groups = p.padded / EIGHT;
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < chunks;
         i += (size_t)gridDim.x * THREADS) {
        unsigned group, column, row;
        const size_t n = divide(divide(divide(i, groups, &group), (unsigned)p.out_width, &column),
                                (unsigned)p.out_height, &row);
        const size_t pixel = (n * p.height + row / p.factor) * p.width + column / p.factor;
        float v[EIGHT];
        load_eight(x + (pixel * groups + group) * EIGHT, v);
        store_eight(y + i * EIGHT, v);
    }
}

/* The sum over every LANES-th output pixel from `lane` on. */
template <unsigned LANES, class T>
__device__ void sum_pixels(const struct train_upsample &p, const T *dy, size_t n, unsigned row,
                           unsigned column, unsigned group, unsigned lane, float *sum)
{
    const size_t top = (size_t)row * p.factor, left = (size_t)column * p.factor,
                 groups = p.padded / EIGHT;
    for (size_t k = lane; k < (size_t)p.factor * p.factor; k += LANES) {
        unsigned across;
        const size_t i = top + divide(k, p.factor, &across), j = left + across;
        float v[EIGHT];
        if (i >= p.out_height || j >= p.out_width)
            continue;
        load_eight(dy + (((n * p.out_height + i) * p.out_width + j) * groups + group) * EIGHT, v);
#pragma unroll
        for (int c = 0; c < EIGHT; c++)
            sum[c] += v[c];
    }
}

template <class T, unsigned LANES>
__global__ void upsample_gradient_kernel(const struct train_upsample p, T *dx, const T *dy,
                                         bool add, size_t chunks)
{
    __shared__ float shared[THREADS];
    const unsigned each = THREADS / LANES, groups = p.padded / EIGHT, lane = threadIdx.x % LANES;
    for (size_t i = blockIdx.x * (size_t)each + threadIdx.x / LANES; i < chunks;
         i += (size_t)gridDim.x * each) {
        unsigned group, column, row;
        const size_t n = divide(divide(divide(i, groups, &group), (unsigned)p.width, &column),
                                (unsigned)p.height, &row);
        float sum[EIGHT] = {};
        sum_pixels<LANES>(p, dy, n, row, column, group, lane, sum);
        if (LANES == THREADS)
            for (int c = 0; c < EIGHT; c++)
                sum[c] = block_sum<THREADS>(sum[c], shared);
        if (lane == 0)
            write_eight(dx + i * EIGHT, sum, add);
    }
}

} // namespace

int train_upsample(const struct train_gpu *gpu, const struct train_upsample *pass, void *y,
                   const void *x)
{
    const size_t chunks = pass->batch * pass->out_height * pass->out_width * (pass->padded / EIGHT);
    return typed(pass->type, [&](auto zero) {
        using T = decltype(zero);
        return launch(gpu, upsample_kernel<T>, blocks_for(gpu, chunks, THREADS, 16), THREADS, *pass,
                      (T *)y, (const T *)x, chunks);
    });
}

int train_upsample_gradient(const struct train_gpu *gpu, const struct train_upsample *pass,
                            void *dx, const void *dy, bool add)
{
    const size_t chunks = pass->batch * pass->height * pass->width * (pass->padded / EIGHT);
    const bool large = pass->factor >= FACTOR_LARGE;
    return typed(pass->type, [&](auto zero) {
        using T = decltype(zero);
        return launch(gpu,
                      large ? upsample_gradient_kernel<T, THREADS> : upsample_gradient_kernel<T, 1>,
                      blocks_for(gpu, large ? chunks * THREADS : chunks, THREADS, 16), THREADS,
                      *pass, (T *)dx, (const T *)dy, add, chunks);
    });
}

int train_upsample_load(void)
{
    return load_kernels(EACH_TYPE(upsample_kernel), EACH_TYPE_AND(upsample_gradient_kernel, 1),
                        EACH_TYPE_AND(upsample_gradient_kernel, THREADS));
}
