/*
 * Arithmetic of averages, eight elements a thread. Of a parameter server: the mean of this rank's
 * gradients and those of others, all read once, summed in float32 in the order of the ranks. Of
 * averages of parameters: the division of their sum.
 */
#include "train/kernels/cuda/vector.cuh"

namespace
{

constexpr unsigned THREADS = 256;

template <class T>
__global__ void __launch_bounds__(THREADS)
    average_kernel(T *mine, const T *others, size_t stride, int blocks, float share, size_t count)
{
    const size_t eights = count / EIGHT, step = (size_t)gridDim.x * THREADS,
                 first = blockIdx.x * (size_t)THREADS + threadIdx.x;
    for (size_t i = first; i < eights; i += step) {
        float sum[EIGHT], x[EIGHT];
        load_eight(mine + i * EIGHT, sum);
#pragma unroll 4
        for (int b = 0; b < blocks; b++) {
            unpack(load_packed<T, true>(others + (size_t)b * stride + i * EIGHT), x);
#pragma unroll
            for (int k = 0; k < EIGHT; k++)
                sum[k] += x[k];
        }
#pragma unroll
        for (int k = 0; k < EIGHT; k++)
            sum[k] *= share;
        store_eight(mine + i * EIGHT, sum);
    }
    for (size_t i = eights * EIGHT + first; i < count; i += step) {
        float sum = load_one(mine + i);
        for (int b = 0; b < blocks; b++)
            sum += load_one(others + (size_t)b * stride + i);
        store_one(mine + i, sum * share);
    }
}

template <class T>
__global__ void __launch_bounds__(THREADS) divide_kernel(T *x, float by, size_t count)
{
    const size_t eights = (size_t)x % 16 ? 0 : count / EIGHT, step = (size_t)gridDim.x * THREADS,
                 first = blockIdx.x * (size_t)THREADS + threadIdx.x;
    for (size_t i = first; i < eights; i += step) {
        float y[EIGHT];
        load_eight(x + i * EIGHT, y);
#pragma unroll
        for (int k = 0; k < EIGHT; k++)
            y[k] = __fdiv_rn(y[k], by);
        store_eight(x + i * EIGHT, y);
    }
    for (size_t i = eights * EIGHT + first; i < count; i += step)
        store_one(x + i, __fdiv_rn(load_one(x + i), by));
}

} // namespace

int train_average(const struct train_gpu *gpu, const struct train_average *pass)
{
    return typed(pass->type, [&](auto number) {
        using T = decltype(number);
        return launch(gpu, average_kernel<T>, blocks_for(gpu, pass->count / EIGHT, THREADS, 8),
                      THREADS, (T *)pass->mine, (const T *)pass->others, pass->stride, pass->blocks,
                      1 / (float)(pass->blocks + 1), pass->count);
    });
}

int train_divide(const struct train_gpu *gpu, void *x, int type, size_t count, int by)
{
    return typed(type, [&](auto number) {
        using T = decltype(number);
        return launch(gpu, divide_kernel<T>, blocks_for(gpu, count / EIGHT, THREADS, 8), THREADS,
                      (T *)x, (float)by, count);
    });
}

int train_average_load(void)
{
    return load_kernels(EACH_TYPE(divide_kernel), EACH_TYPE(average_kernel));
}
