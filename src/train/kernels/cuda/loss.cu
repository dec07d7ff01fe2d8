/*
 * Softmax and cross-entropy, a block for every image. What each image adds to the score stands in
 * scratch until one block adds it up, in the order of the images.
 */
#include "train/kernels/cuda/vector.cuh"

#include "train/kernels/kernels.h"

namespace
{

constexpr unsigned THREADS = 128, SCORE_THREADS = 256;

/* The part of an image in the score. */
struct result {
    float loss;
    int32_t correct; /* -1: no image */
};

/* The first of the largest. */
__device__ unsigned first_of(const float *row, unsigned classes, float most, float *shared)
{
    unsigned first = classes;
    for (unsigned k = threadIdx.x; k < classes; k += THREADS)
        if (row[k] == most && k < first)
            first = k;
    return (unsigned)block_reduce<THREADS>((float)first, shared,
                                           [](float a, float b) { return a < b ? a : b; });
}

__global__ void __launch_bounds__(THREADS)
    loss_kernel(const struct train_loss loss, const void *logits, int type, struct result *results)
{
    __shared__ float shared[THREADS];
    const size_t at = (size_t)blockIdx.x * loss.padded;
    float *row = loss.log_probability + (size_t)blockIdx.x * loss.classes;
    float most = -INFINITY, sum = 0, total = 0;
    for (unsigned k = threadIdx.x; k < loss.classes; k += THREADS)
        most = fmaxf(most, load_any(logits, type, at + k));
    most = block_reduce<THREADS>(most, shared, [](float a, float b) { return a > b ? a : b; });
    for (unsigned k = threadIdx.x; k < loss.classes; k += THREADS)
        sum += expf(load_any(logits, type, at + k) - most);
    const float shift = most + logf(block_sum<THREADS>(sum, shared));
    for (unsigned k = threadIdx.x; k < loss.classes; k += THREADS) {
        row[k] = load_any(logits, type, at + k) - shift;
        total += row[k];
    }
    total = block_sum<THREADS>(total, shared);
    const unsigned first = first_of(row, loss.classes, most - shift, shared);
    if (threadIdx.x > 0)
        return;
    const int32_t label = loss.labels[blockIdx.x];
    struct result r = {0, -1};
    if (label >= 0) {
        r.loss = -(1 - loss.smoothing) * row[label] - loss.smoothing * total / (float)loss.classes;
        r.correct = first == (unsigned)label;
    }
    results[blockIdx.x] = r;
}

__global__ void __launch_bounds__(SCORE_THREADS)
    score_kernel(double *score, const struct result *results, size_t batch)
{
    __shared__ double sums[SCORES][SCORE_THREADS];
    double mine[SCORES] = {};
    for (size_t n = threadIdx.x; n < batch; n += SCORE_THREADS)
        if (results[n].correct >= 0) {
            mine[SCORE_LOSS] += results[n].loss;
            mine[SCORE_CORRECT] += results[n].correct;
            mine[SCORE_IMAGES] += 1;
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

__global__ void gradient_kernel(const struct train_loss loss, void *diff, int type, bool add,
                                const float *control)
{
    const size_t count = loss.batch * loss.padded;
    const float share = control[CONTROL_LOSS_SCALE] / (float)loss.batch;
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < count;
         i += (size_t)gridDim.x * THREADS) {
        const size_t n = i / loss.padded;
        const unsigned k = (unsigned)(i % loss.padded);
        const int32_t label = loss.labels[n];
        float d = 0;
        if (k < loss.classes && label >= 0) {
            const float target = (1 - loss.smoothing) * (float)((unsigned)label == k) +
                                 loss.smoothing / (float)loss.classes;
            d = (expf(loss.log_probability[n * loss.classes + k]) - target) * share;
        }
        store_any(diff, type, i, add ? d + load_any(diff, type, i) : d);
    }
}

} // namespace

int train_cross_entropy(const struct train_gpu *gpu, const struct train_loss *loss,
                        const void *logits, int type)
{
    struct result *results = (struct result *)gpu->scratch;
    if (loss->batch * sizeof *results > TRAIN_SCRATCH_BYTES - (64 << 10))
        return cudaErrorInvalidValue;
    results = (struct result *)((char *)gpu->scratch +
                                (64 << 10)); /* behind what the batch norms count in */
    const int error =
        launch(gpu, loss_kernel, (unsigned)loss->batch, THREADS, *loss, logits, type, results);
    if (error != cudaSuccess)
        return error;
    return launch(gpu, score_kernel, 1, SCORE_THREADS, loss->score, results, loss->batch);
}

int train_cross_entropy_gradient(const struct train_gpu *gpu, const struct train_loss *loss,
                                 void *diff, int type, bool add)
{
    return launch(gpu, gradient_kernel, blocks_for(gpu, loss->batch * loss->padded, THREADS, 16),
                  THREADS, *loss, diff, type, add, gpu->control);
}

int train_loss_load(void)
{
    return load_kernels(loss_kernel, score_kernel, gradient_kernel);
}
