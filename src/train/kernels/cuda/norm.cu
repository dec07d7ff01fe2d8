/*
 * Batch norm forward: one pass that reads x for its mean and variance, and one that reads x (and
 * what is added) and writes y and its mask. See cuda/channels.cuh for who does what.
 *
 * Sums are of x - pivot and its square, the pivot being the first row: float32 then loses nothing
 * to a large mean. What a thread adds up in float32 is some hundred rows; the rest is float64. Sums
 * that a convolution made are of x itself.
 */
#include "train/kernels/cuda/channels.cuh"

#include "train/graph/network.h"

namespace
{

constexpr int STATISTICS_THREADS = 512, STATISTICS_BLOCKS = 1, NORMALISE_THREADS = 256;

/* Factor and offset from mean and 1 / deviation; padding becomes 0. */
__device__ void norm_finish(const struct train_norm &norm, unsigned c, float mean, float inverse)
{
    const bool real = c < norm.channels;
    const float factor = real ? norm.scale[c] * inverse : 0;
    norm.numbers[NORM_MEAN * norm.padded + c] = mean;
    norm.numbers[NORM_INVERSE * norm.padded + c] = inverse;
    norm.numbers[NORM_FACTOR * norm.padded + c] = factor;
    norm.numbers[NORM_OFFSET * norm.padded + c] = real ? norm.shift[c] - mean * factor : 0;
}

__device__ void norm_measure(const struct train_norm &norm, unsigned c, double pivot, double sum,
                             double squares)
{
    const double count = (double)(norm.count ? norm.count : norm.rows), away = sum / count;
    double variance = squares / count - away * away;
    if (variance < 0)
        variance = 0;
    const float mean = (float)(pivot + away);
    if (c < norm.channels) {
        const float unbiased = (float)(variance * count / (count > 1 ? count - 1 : 1));
        float *running = norm.running + c, *running_variance = running + norm.channels;
        *running += NETWORK_NORM_MOMENTUM * (mean - *running);
        *running_variance += NETWORK_NORM_MOMENTUM * (unbiased - *running_variance);
    }
    norm_finish(norm, c, mean, (float)(1 / sqrt(variance + (double)NETWORK_NORM_EPSILON)));
}

/* The sums of x and of its squares, from those of what is beyond the pivot. */
__device__ void norm_leave(const struct train_norm &norm, unsigned c, double pivot, double sum,
                           double squares)
{
    const double count = (double)norm.rows;
    if (c >= norm.channels)
        return;
    norm.joint[c] = sum + count * pivot;
    norm.joint[norm.channels + c] = squares + pivot * (2 * sum + count * pivot);
}

/* SUMS: they are left to be joined with other ranks'. */
template <class T, bool SUMS>
__global__ void __launch_bounds__(STATISTICS_THREADS, STATISTICS_BLOCKS)
    statistics_kernel(const struct train_norm norm, const layout at, void *scratch)
{
    constexpr int UNROLL = sizeof(T) == 2 ? 8 : 4;
    const place p = place_of<STATISTICS_THREADS>(at);
    const T *x = (const T *)norm.x;
    __shared__ double total[2 * SLAB];
    float sums[2][EIGHT] = {}, pivot[EIGHT] = {}, v[EIGHT];
    if (p.inside) {
        load_eight(x + (size_t)p.group * EIGHT, pivot);
        for (unsigned i = 0; i < p.count; i += UNROLL) {
            packed<T> loaded[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; u++) { /* the pivot itself adds nothing */
                const size_t chunk = i + u < p.count ? p.chunk + (i + u) * p.step : p.group;
                loaded[u] = load_packed(x + chunk * EIGHT);
            }
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                unpack(loaded[u], v);
#pragma unroll
                for (int k = 0; k < EIGHT; k++) {
                    const float d = v[k] - pivot[k];
                    sums[0][k] += d;
                    sums[1][k] = fmaf(d, d, sums[1][k]);
                }
            }
        }
    }
    let_next_begin();
    if (!sum_all<2, STATISTICS_THREADS>(at, sums, scratch, total))
        return;
    const unsigned c = blockIdx.y * SLAB + threadIdx.x;
    if (threadIdx.x >= SLAB || c >= norm.padded)
        return;
    if (SUMS)
        norm_leave(norm, c, load_one(x + c), total[threadIdx.x], total[SLAB + threadIdx.x]);
    else
        norm_measure(norm, c, load_one(x + c), total[threadIdx.x], total[SLAB + threadIdx.x]);
}

__global__ void joined_kernel(const struct train_norm norm)
{
    const unsigned c = blockIdx.x * blockDim.x + threadIdx.x;
    const bool real = c < norm.channels;
    let_next_begin();
    if (c < norm.padded)
        norm_measure(norm, c, 0, real ? norm.joint[c] : 0,
                     real ? norm.joint[norm.channels + c] : 0);
}

__global__ void measure_kernel(const struct train_norm norm, const float *sums,
                               const float *squares)
{
    const unsigned c = blockIdx.x * blockDim.x + threadIdx.x;
    let_next_begin();
    if (c < norm.padded)
        norm_measure(norm, c, 0, sums[c], squares[c]);
}

__global__ void running_kernel(const struct train_norm norm)
{
    const unsigned c = blockIdx.x * blockDim.x + threadIdx.x;
    if (c >= norm.padded)
        return;
    const bool real = c < norm.channels;
    const float variance = real ? norm.running[norm.channels + c] : 0;
    norm_finish(norm, c, real ? norm.running[c] : 0,
                (float)(1 / sqrt((double)variance + NETWORK_NORM_EPSILON)));
}

/* The tensor that is added before the ReLU. */
enum { OTHER_NONE, OTHER_PLAIN, OTHER_NORM };

struct normalise {
    const void *x, *other;
    const float *numbers, *other_numbers;
    void *y;
    uint8_t *mask;
    bool relu;
};

/* Blocks on a multiprocessor, as far as registers go. */
template <int OTHER> constexpr unsigned normalise_blocks()
{
    return OTHER == OTHER_NORM ? 3 : 4;
}

/* A thread's rows from i on. */
template <class T, int OTHER, int UNROLL>
__device__ void normalise_loads(const struct normalise &pass, const place &p, unsigned i,
                                packed<T> *loaded, packed<T> *added)
{
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
        if (i + u < p.count) {
            const size_t chunk = chunk_from_last(p, i + u);
            loaded[u] = load_packed<T, true>((const T *)pass.x + chunk * EIGHT);
            if (OTHER != OTHER_NONE)
                added[u] = load_packed<T, true>((const T *)pass.other + chunk * EIGHT);
        }
}

template <class T, int OTHER>
__global__ void __launch_bounds__(NORMALISE_THREADS, normalise_blocks<OTHER>())
    normalise_kernel(const struct normalise pass, const layout at)
{
    constexpr int UNROLL = (sizeof(T) == 2 ? 4 : 2) / (OTHER == OTHER_NONE ? 1 : 2);
    const place p = place_of<NORMALISE_THREADS>(at);
    float factor[EIGHT], offset[EIGHT], other_factor[EIGHT], other_offset[EIGHT];
    packed<T> loaded[UNROLL], added[UNROLL];
    if (!p.inside || p.count == 0)
        return;
    normalise_loads<T, OTHER, UNROLL>(pass, p, 0, loaded, added);
    after_previous();
    numbers_of(pass.numbers, NORM_FACTOR, at.groups, p.group, factor);
    numbers_of(pass.numbers, NORM_OFFSET, at.groups, p.group, offset);
    if (OTHER == OTHER_NORM) {
        numbers_of(pass.other_numbers, NORM_FACTOR, at.groups, p.group, other_factor);
        numbers_of(pass.other_numbers, NORM_OFFSET, at.groups, p.group, other_offset);
    }
    for (unsigned i = 0; i < p.count; i += UNROLL) {
        if (i > 0)
            normalise_loads<T, OTHER, UNROLL>(pass, p, i, loaded, added);
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            if (i + u >= p.count)
                return;
            const size_t chunk = chunk_from_last(p, i + u);
            float y[EIGHT], other[EIGHT];
            unsigned above = 0;
            unpack(loaded[u], y);
            if (OTHER != OTHER_NONE)
                unpack(added[u], other);
#pragma unroll
            for (int k = 0; k < EIGHT; k++) {
                y[k] = fmaf(y[k], factor[k], offset[k]);
                if (OTHER == OTHER_PLAIN)
                    y[k] += other[k];
                if (OTHER == OTHER_NORM)
                    y[k] += fmaf(other[k], other_factor[k], other_offset[k]);
                above |= (unsigned)(y[k] > 0) << k;
                if (pass.relu && !(y[k] > 0))
                    y[k] = y[k] != y[k] ? y[k] : 0; /* NaN stays */
            }
            store_eight((T *)pass.y + chunk * EIGHT, y);
            if (pass.mask)
                pass.mask[chunk] = (uint8_t)above;
        }
    }
}

template <class T, int OTHER>
int normalise_one(const struct train_gpu *gpu, const struct train_norm *norm,
                  const struct normalise &n)
{
    const layout at = wide_layout_of(norm->rows, norm->padded);
    const dim3 grid = grid_of(gpu, at, NORMALISE_THREADS, normalise_blocks<OTHER>());
    return launch_programmatic(gpu, normalise_kernel<T, OTHER>, grid, NORMALISE_THREADS, n, at);
}

} // namespace

template <bool SUMS>
static int statistics(const struct train_gpu *gpu, const struct train_norm *norm)
{
    const layout at = layout_of(norm->rows, norm->padded);
    const dim3 grid = grid_of(gpu, at, STATISTICS_THREADS, STATISTICS_BLOCKS);
    return typed(norm->type, [&](auto number) {
        return launch(gpu, statistics_kernel<decltype(number), SUMS>, grid, STATISTICS_THREADS,
                      *norm, at, gpu->scratch);
    });
}

int train_norm_statistics(const struct train_gpu *gpu, const struct train_norm *norm)
{
    return statistics<false>(gpu, norm);
}

int train_norm_sums(const struct train_gpu *gpu, const struct train_norm *norm)
{
    if (norm->rows)
        return statistics<true>(gpu, norm);
    return cudaMemsetAsync(norm->joint, 0, 2 * norm->channels * sizeof *norm->joint,
                           stream_of(gpu));
}

int train_norm_joined(const struct train_gpu *gpu, const struct train_norm *norm)
{
    return launch(gpu, joined_kernel, (norm->padded + 127) / 128, 128, *norm);
}

int train_norm_measure(const struct train_gpu *gpu, const struct train_norm *norm,
                       const float *sums, const float *squares)
{
    return launch(gpu, measure_kernel, (norm->padded + 127) / 128, 128, *norm, sums, squares);
}

int train_norm_running(const struct train_gpu *gpu, const struct train_norm *norm)
{
    return launch(gpu, running_kernel, (norm->padded + 127) / 128, 128, *norm);
}

int train_normalise(const struct train_gpu *gpu, const struct train_normalise *pass)
{
    const struct normalise n = {pass->norm->x,
                                pass->other ? pass->other->x : pass->plain,
                                pass->norm->numbers,
                                pass->other ? pass->other->numbers : nullptr,
                                pass->y,
                                pass->mask,
                                pass->relu};
    return typed(pass->norm->type, [&](auto number) {
        using T = decltype(number);
        return pass->other   ? normalise_one<T, OTHER_NORM>(gpu, pass->norm, n)
               : pass->plain ? normalise_one<T, OTHER_PLAIN>(gpu, pass->norm, n)
                             : normalise_one<T, OTHER_NONE>(gpu, pass->norm, n);
    });
}

bool train_norm_programmatic(void)
{
    cudaFuncAttributes attributes;
    return cudaFuncGetAttributes(&attributes, measure_kernel) == cudaSuccess &&
           attributes.ptxVersion >= 90;
}

int train_norm_load(void)
{
    return load_kernels(
        running_kernel, measure_kernel, joined_kernel, EACH_TYPE_AND(statistics_kernel, false),
        EACH_TYPE_AND(statistics_kernel, true), EACH_TYPE_AND(normalise_kernel, OTHER_NONE),
        EACH_TYPE_AND(normalise_kernel, OTHER_PLAIN), EACH_TYPE_AND(normalise_kernel, OTHER_NORM));
}
