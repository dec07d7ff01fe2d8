/*
 * Local response norm over neighbouring channels: one pass forward and one backward, which computes
 * the sums of squares again. A thread makes eight channels of a pixel; what it reads of the eight
 * before and behind them is in the cache.
 */
#include "train/kernels/cuda/vector.cuh"

#include <type_traits>

namespace
{

constexpr unsigned THREADS = 256, FORWARD_BLOCKS = 8, BACKWARD_BLOCKS = 4; /* on a multiprocessor */

/* Channels from 8 before `chunk` to 8 behind it; 0 outside the pixel. */
template <class T, int HALF> struct span {
    float v[EIGHT + 2 * HALF];
};

template <class T, int HALF>
__device__ span<T, HALF> span_load(const T *x, size_t chunk, unsigned group, unsigned groups)
{
    span<T, HALF> s;
    float eight[EIGHT];
    load_eight(x + chunk * EIGHT, s.v + HALF);
#pragma unroll
    for (int k = 0; k < EIGHT; k++)
        eight[k] = 0;
    if (HALF && group > 0)
        load_eight(x + (chunk - 1) * EIGHT, eight);
#pragma unroll
    for (int k = 0; k < HALF; k++)
        s.v[k] = eight[EIGHT - HALF + k];
#pragma unroll
    for (int k = 0; k < EIGHT; k++)
        eight[k] = 0;
    if (HALF && group + 1 < groups)
        load_eight(x + (chunk + 1) * EIGHT, eight);
#pragma unroll
    for (int k = 0; k < HALF; k++)
        s.v[HALF + EIGHT + k] = eight[k];
    return s;
}

__device__ float sum_of(const float *x, int count)
{
    float sum = 0;
#pragma unroll
    for (int i = 0; i < count; i++)
        sum += x[i];
    return sum;
}

/* base^-beta, for a base above 0. */
__device__ float power(float base, float beta)
{
    return exp2f(-beta * __log2f(base));
}

template <class T, int HALF>
__global__ void __launch_bounds__(THREADS, FORWARD_BLOCKS)
    forward_kernel(const struct train_local_norm n, T *y, const T *x, size_t chunks)
{
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < chunks;
         i += (size_t)gridDim.x * THREADS) {
        const unsigned groups = n.padded / EIGHT;
        unsigned group;
        float squares[EIGHT + 2 * HALF], out[EIGHT];
        divide(i, groups, &group);
        const span<T, HALF> s = span_load<T, HALF>(x, i, group, groups);
#pragma unroll
        for (int k = 0; k < EIGHT + 2 * HALF; k++)
            squares[k] = s.v[k] * s.v[k];
#pragma unroll
        for (int k = 0; k < EIGHT; k++)
            out[k] = s.v[HALF + k] *
                     power(fmaf(n.alpha, sum_of(squares + k, 2 * HALF + 1), n.k), n.beta);
        store_eight(y + i * EIGHT, out);
    }
}

/* dx = dy base^-beta - 2 alpha beta x (sum around of dy x base^(-beta - 1)). */
template <class T, int HALF>
__global__ void __launch_bounds__(THREADS, BACKWARD_BLOCKS)
    backward_kernel(const struct train_local_norm n, T *dx, const T *dy, const T *x, bool add,
                    size_t chunks)
{
    const float factor = 2 * n.alpha * n.beta;
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < chunks;
         i += (size_t)gridDim.x * THREADS) {
        const unsigned groups = n.padded / EIGHT;
        unsigned group;
        float squares[EIGHT + 4 * HALF], products[EIGHT + 2 * HALF], out[EIGHT];
        divide(i, groups, &group);
        const span<T, 2 *HALF> s = span_load<T, 2 * HALF>(x, i, group, groups);
        const span<T, HALF> g = span_load<T, HALF>(dy, i, group, groups);
#pragma unroll
        for (int k = 0; k < EIGHT + 4 * HALF; k++)
            squares[k] = s.v[k] * s.v[k];
#pragma unroll
        for (int k = 0; k < EIGHT + 2 * HALF; k++) {
            const float base = fmaf(n.alpha, sum_of(squares + k, 2 * HALF + 1), n.k);
            const float slope = g.v[k] * power(base, n.beta);
            products[k] = __fdividef(slope * s.v[HALF + k], base);
            if (k >= HALF && k < HALF + EIGHT)
                out[k - HALF] = slope;
        }
#pragma unroll
        for (int k = 0; k < EIGHT; k++)
            out[k] -= factor * s.v[2 * HALF + k] * sum_of(products + k, 2 * HALF + 1);
        write_eight(dx + i * EIGHT, out, add);
    }
}

/* Calls f with a number of the type and, as a constant, half of the window. */
template <class F> int dispatch(const struct train_local_norm *n, F f)
{
    return typed(n->type, [&](auto number) {
        switch (n->window / 2) {
        case 0:
            return f(number, std::integral_constant<int, 0>());
        case 1:
            return f(number, std::integral_constant<int, 1>());
        case 2:
            return f(number, std::integral_constant<int, 2>());
        case 3:
            return f(number, std::integral_constant<int, 3>());
        default:
            return f(number, std::integral_constant<int, 4>());
        }
    });
}

} // namespace

int train_local_norm(const struct train_gpu *gpu, const struct train_local_norm *n, void *y,
                     const void *x)
{
    const size_t chunks = n->rows * (n->padded / EIGHT);
    return dispatch(n, [&](auto number, auto half) {
        using T = decltype(number);
        return launch(gpu, forward_kernel<T, half.value>,
                      blocks_for(gpu, chunks, THREADS, FORWARD_BLOCKS), THREADS, *n, (T *)y,
                      (const T *)x, chunks);
    });
}

int train_local_norm_gradient(const struct train_gpu *gpu, const struct train_local_norm *n,
                              void *dx, const void *dy, const void *x, bool add)
{
    const size_t chunks = n->rows * (n->padded / EIGHT);
    return dispatch(n, [&](auto number, auto half) {
        using T = decltype(number);
        return launch(gpu, backward_kernel<T, half.value>,
                      blocks_for(gpu, chunks, THREADS, BACKWARD_BLOCKS), THREADS, *n, (T *)dx,
                      (const T *)dy, (const T *)x, add, chunks);
    });
}

/* The kernels for half a window. */
#define KERNELS(HALF) EACH_TYPE_AND(forward_kernel, HALF), EACH_TYPE_AND(backward_kernel, HALF)

int train_local_norm_load(void)
{
    return load_kernels(KERNELS(0), KERNELS(1), KERNELS(2), KERNELS(3), KERNELS(4));
}
