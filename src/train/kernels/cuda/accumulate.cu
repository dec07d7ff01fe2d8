/*
 * Gradients of several backward passes: each is added to sums in float32, and from the last pass
 * come the means, in the gradients' own type.
 */
#include "train/kernels/cuda/vector.cuh"

#include "train/kernels/kernels.h"

namespace
{

constexpr unsigned THREADS = 256;

/* An element's new sum or, in the last pass, its mean. */
template <enum gradient_pass PASS> __device__ inline float combine(float sum, float g, float share)
{
    return PASS == PASS_FIRST ? g : PASS == PASS_NEXT ? sum + g : (sum + g) * share;
}

/* Both begin at the first element; those before a multiple of eight, `before`, and behind the last
 * eight go one by one. */
template <class T, enum gradient_pass PASS>
__global__ void __launch_bounds__(THREADS)
    accumulate_kernel(T *gradients, float *sums, size_t before, size_t count, float share)
{
    const size_t eights = (count - before) / EIGHT, step = (size_t)gridDim.x * THREADS,
                 first = blockIdx.x * (size_t)THREADS + threadIdx.x;
    for (size_t i = first; i < eights; i += step) {
        const size_t at = before + i * EIGHT;
        float g[EIGHT], sum[EIGHT] = {};
        load_eight(gradients + at, g);
        if (PASS != PASS_FIRST)
            load_eight(sums + at, sum);
#pragma unroll
        for (int k = 0; k < EIGHT; k++)
            sum[k] = combine<PASS>(sum[k], g[k], share);
        if (PASS == PASS_LAST)
            store_eight(gradients + at, sum);
        else
            store_eight(sums + at, sum);
    }
    for (size_t i = first; i < count - eights * EIGHT; i += step) {
        const size_t at = i + (i < before ? 0 : eights * EIGHT);
        const float sum =
            combine<PASS>(PASS == PASS_FIRST ? 0 : sums[at], load_one(gradients + at), share);
        if (PASS == PASS_LAST)
            store_one(gradients + at, sum);
        else
            sums[at] = sum;
    }
}

template <class T, enum gradient_pass PASS>
int accumulate(const struct train_gpu *gpu, const struct train_accumulate *pass)
{
    const size_t align = -pass->begin % EIGHT, before = align < pass->count ? align : pass->count;
    return launch(gpu, accumulate_kernel<T, PASS>, blocks_for(gpu, pass->count / EIGHT, THREADS, 8),
                  THREADS, (T *)pass->gradients + pass->begin, pass->sums + pass->begin, before,
                  pass->count, pass->share);
}

} // namespace

int train_accumulate(const struct train_gpu *gpu, const struct train_accumulate *pass)
{
    return typed(pass->type, [&](auto number) {
        using T = decltype(number);
        return pass->pass == PASS_FIRST  ? accumulate<T, PASS_FIRST>(gpu, pass)
               : pass->pass == PASS_NEXT ? accumulate<T, PASS_NEXT>(gpu, pass)
                                         : accumulate<T, PASS_LAST>(gpu, pass);
    });
}

int train_accumulate_load(void)
{
    return load_kernels(EACH_TYPE_AND(accumulate_kernel, PASS_FIRST),
                        EACH_TYPE_AND(accumulate_kernel, PASS_NEXT),
                        EACH_TYPE_AND(accumulate_kernel, PASS_LAST));
}
