/*
 * Losses. A block makes a row where there are many channels, a thread where there are few, as of
 * pixels. What each block adds to the score stands in scratch until one block adds it up, in the
 * order of the blocks.
 */
#include "train/kernels/cuda/vector.cuh"

#include "train/kernels/kernels.h"

namespace
{

/* CHANNELS_FEW: the most that one thread goes over. BLOCKS_MOST: those whose results scratch has room for. */
constexpr unsigned THREADS = 128, SCORE_THREADS = 256, CHANNELS_FEW = 32, BLOCKS_MOST = 1 << 16;

/* What a block, or a thread, has added up. */
struct result {
    float loss;
    unsigned correct, terms;
};

/* The threads that share a row: all of a block, or one. */
template <bool FEW> struct team {
    float *shared;

    __device__ unsigned first() const
    {
        return FEW ? 0 : threadIdx.x;
    }
    __device__ unsigned step() const
    {
        return FEW ? 1 : THREADS;
    }
    __device__ float sum(float mine) const
    {
        return FEW ? mine : block_sum<THREADS>(mine, shared);
    }
    __device__ float most(float mine) const
    {
        return FEW ? mine : block_reduce<THREADS>(mine, shared, [](float a, float b) {
            return a > b ? a : b;
        });
    }
    __device__ float least(float mine) const
    {
        return FEW ? mine : block_reduce<THREADS>(mine, shared, [](float a, float b) {
            return a < b ? a : b;
        });
    }
};

/* The first of the largest. */
template <bool FEW>
__device__ unsigned first_of(const team<FEW> &t, const float *row, unsigned channels, float most)
{
    unsigned first = channels;
    for (unsigned k = t.first(); k < channels; k += t.step())
        if (row[k] == most && k < first)
            first = k;
    return (unsigned)t.least((float)first);
}

__device__ float target_of(const struct train_loss &loss, int32_t label, unsigned k)
{
    const float hot = (unsigned)label == k;
    if (loss.kind == LOSS_CROSS_ENTROPY)
        return (1 - loss.smoothing) * hot + loss.smoothing / (float)loss.channels;
    return loss.channels > 1 ? hot : (float)label;
}

/* Makes a row's value; returns what is added to it, by each thread for its channels: the logarithm of the softmax's denominator; 0 of a squared error. */
template <bool FEW>
__device__ float shift_of(const struct train_loss &loss, const team<FEW> &t, const void *x,
                          int type, size_t at)
{
    float most = -INFINITY, sum = 0;
    if (loss.kind == LOSS_SQUARED_ERROR)
        return 0;
    for (unsigned k = t.first(); k < loss.channels; k += t.step())
        most = fmaxf(most, load_any(x, type, at + k));
    most = t.most(most);
    for (unsigned k = t.first(); k < loss.channels; k += t.step())
        sum += expf(load_any(x, type, at + k) - most);
    return most + logf(t.sum(sum));
}

/* A row's value, and what its term adds to the score. */
template <bool FEW>
__device__ void row_make(const struct train_loss &loss, const team<FEW> &t, const void *x, int type,
                         size_t n, struct result *sums)
{
    const size_t at = n * loss.padded;
    const int32_t label = loss.labels[n];
    const bool entropy = loss.kind == LOSS_CROSS_ENTROPY;
    float *row = loss.value + n * loss.channels, most = -INFINITY, term = 0;
    const float shift = shift_of(loss, t, x, type, at);
    for (unsigned k = t.first(); k < loss.channels; k += t.step()) {
        const float value = load_any(x, type, at + k) - shift, target = target_of(loss, label, k);
        row[k] = value;
        most = fmaxf(most, value);
        term += entropy ? -target * value : (value - target) * (value - target) / loss.channels;
    }
    if (!loss.score)
        return;
    term = t.sum(term);
    const unsigned first = first_of(t, row, loss.channels, t.most(most));
    if (label < 0)
        return;
    sums->loss += term;
    sums->terms++;
    sums->correct += entropy || loss.channels > 1 ? first == (unsigned)label
                                                  : fabsf(row[0] - (float)label) < 0.5f;
}

/* The sums of a block's threads, in its first. */
__device__ struct result block_result(struct result mine)
{
    __shared__ float losses[THREADS];
    __shared__ unsigned counts[THREADS];
    mine.loss = block_sum<THREADS>(mine.loss, losses);
    mine.correct = block_sum<THREADS>(mine.correct, counts);
    mine.terms = block_sum<THREADS>(mine.terms, counts);
    return mine;
}

template <bool FEW>
__global__ void __launch_bounds__(THREADS)
    loss_kernel(const struct train_loss loss, const void *x, int type, struct result *results)
{
    __shared__ float shared[THREADS];
    const team<FEW> t = {shared};
    const size_t first = FEW ? blockIdx.x * (size_t)THREADS + threadIdx.x : blockIdx.x;
    struct result sums = {};
    for (size_t n = first; n < loss.rows; n += (size_t)gridDim.x * (FEW ? THREADS : 1))
        row_make(loss, t, x, type, n, &sums);
    if (FEW)
        sums = block_result(sums);
    if (threadIdx.x == 0)
        results[blockIdx.x] = sums;
}

__global__ void __launch_bounds__(SCORE_THREADS)
    score_kernel(double *score, const struct result *results, unsigned blocks)
{
    __shared__ double sums[SCORES][SCORE_THREADS];
    double mine[SCORES] = {};
    for (unsigned n = threadIdx.x; n < blocks; n += SCORE_THREADS) {
        mine[SCORE_LOSS] += results[n].loss;
        mine[SCORE_CORRECT] += results[n].correct;
        mine[SCORE_TERMS] += results[n].terms;
    }
    for (int s = 0; s < SCORES; s++)
        sums[s][threadIdx.x] = mine[s];
    __syncthreads();
    for (unsigned half = SCORE_THREADS / 2; half > 0; half /= 2) {
        if (threadIdx.x < half)
            for (int s = 0; s < SCORES; s++)
                sums[s][threadIdx.x] += sums[s][threadIdx.x + half];
        __syncthreads();
    }
    if (threadIdx.x < SCORES)
        score[threadIdx.x] += sums[threadIdx.x][0];
}

/* Eight channels a thread. */
template <class T>
__global__ void gradient_kernel(const struct train_loss loss, T *dx, bool add, const float *control,
                                size_t chunks)
{
    const unsigned groups = loss.padded / EIGHT;
    const float share = loss.weight * control[CONTROL_LOSS_SCALE] / loss.terms;
    const float slope = loss.kind == LOSS_CROSS_ENTROPY ? share : 2 * share / loss.channels;
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < chunks;
         i += (size_t)gridDim.x * THREADS) {
        unsigned group;
        const size_t n = divide(i, groups, &group);
        const int32_t label = loss.labels[n];
        float d[EIGHT] = {};
#pragma unroll
        for (unsigned c = 0; c < EIGHT; c++) {
            const unsigned k = group * EIGHT + c;
            if (k < loss.channels && label >= 0) {
                const float value = loss.value[n * loss.channels + k];
                d[c] = slope * ((loss.kind == LOSS_CROSS_ENTROPY ? expf(value) : value) -
                                target_of(loss, label, k));
            }
        }
        write_eight(dx + i * EIGHT, d, add);
    }
}

} // namespace

int train_loss_forward(const struct train_gpu *gpu, const struct train_loss *loss, const void *x,
                       int type)
{
    struct result *results =
        (struct result *)((char *)gpu->scratch +
                          (64 << 10)); /* behind what the batch norms count in */
    static_assert(BLOCKS_MOST * sizeof *results <= TRAIN_SCRATCH_BYTES - (64 << 10), "");
    const bool few = loss->channels <= CHANNELS_FEW;
    const unsigned blocks = few ? blocks_for(gpu, loss->rows, THREADS, 16)
                                : (unsigned)(loss->rows < BLOCKS_MOST ? loss->rows : BLOCKS_MOST);
    const int error = launch(gpu, few ? loss_kernel<true> : loss_kernel<false>, blocks, THREADS,
                             *loss, x, type, results);
    if (error != cudaSuccess || !loss->score)
        return error;
    return launch(gpu, score_kernel, 1, SCORE_THREADS, loss->score, results, blocks);
}

int train_loss_backward(const struct train_gpu *gpu, const struct train_loss *loss, void *dx,
                        int type, bool add)
{
    const size_t chunks = loss->rows * (loss->padded / EIGHT);
    return typed(type, [&](auto number) {
        using T = decltype(number);
        return launch(gpu, gradient_kernel<T>, blocks_for(gpu, chunks, THREADS, 16), THREADS, *loss,
                      (T *)dx, add, gpu->control, chunks);
    });
}

int train_loss_load(void)
{
    return load_kernels(loss_kernel<true>, loss_kernel<false>, score_kernel,
                        EACH_TYPE(gradient_kernel));
}
