/*
 * The optimizer over all parameters at once, a block for every chunk of at most TRAIN_CHUNK of
 * them: stochastic gradient descent with momentum, weight decay and LARS, gradients divided by the
 * loss scale, and the parameters written once more in the type that is computed with. Infinite
 * gradients skip the update where the loss scale is searched.
 */
#include "train/kernels/cuda/vector.cuh"

#include "train/kernels/kernels.h"

namespace
{

constexpr unsigned THREADS = 256;

/* The loss scale is doubled after so many updates without infinite gradients. */
constexpr float GROW_AFTER = 2000, SCALE_MOST = 16777216, SCALE_LEAST = 1;

template <class T> __global__ void finite_kernel(const T *gradients, size_t count, unsigned *bad)
{
    const size_t eights = count / EIGHT, step = (size_t)gridDim.x * THREADS,
                 first = blockIdx.x * (size_t)THREADS + threadIdx.x;
    bool mine = false;
#pragma unroll 4
    for (size_t i = first; i < eights; i += step) {
        float g[EIGHT];
        load_eight(gradients + i * EIGHT, g);
#pragma unroll
        for (int k = 0; k < EIGHT; k++)
            mine |= !isfinite(g[k]);
    }
    for (size_t i = eights * EIGHT + first; i < count; i += step)
        mine |= !isfinite(load_one(gradients + i));
    if (__syncthreads_or(mine) && threadIdx.x == 0)
        *bad = 1; /* whoever writes writes the same */
}

/* Squares of a chunk's weights and gradients. */
template <class T> __global__ void squares_kernel(const struct train_update u, const float *control)
{
    __shared__ double shared[THREADS];
    const struct train_chunk chunk = u.chunks[blockIdx.x];
    const float inverse = 1 / control[CONTROL_LOSS_SCALE];
    double weights = 0, gradients = 0;
    for (unsigned i = threadIdx.x; i < chunk.count; i += THREADS) {
        const double w = u.parameters[chunk.begin + i],
                     g = load_one((const T *)u.gradients + chunk.begin + i) * inverse;
        weights += w * w;
        gradients += g * g;
    }
    weights = block_sum<THREADS>(weights, shared);
    gradients = block_sum<THREADS>(gradients, shared);
    if (threadIdx.x == 0) {
        u.sums[2 * blockIdx.x] = (float)weights;
        u.sums[2 * blockIdx.x + 1] = (float)gradients;
    }
}

/* A block for every parameter tensor: how much its rate is changed. */
__global__ void trust_kernel(const struct train_update u)
{
    __shared__ double shared[THREADS];
    const struct train_segment segment = u.segments[blockIdx.x];
    double weights = 0, gradients = 0;
    for (unsigned i = threadIdx.x; i < segment.chunks; i += THREADS) {
        weights += u.sums[2 * (segment.first + i)];
        gradients += u.sums[2 * (segment.first + i) + 1];
    }
    weights = sqrt(block_sum<THREADS>(weights, shared));
    gradients = sqrt(block_sum<THREADS>(gradients, shared));
    const bool changed = segment.decays && weights > 0 && gradients > 0;
    if (threadIdx.x == 0)
        u.sums[2 * u.chunk_count + blockIdx.x] =
            changed ? (float)(u.trust * weights / (gradients + u.decay * weights)) : 1;
}

/* The update of one parameter and its velocity. */
struct rule {
    float rate, inverse, trust, decay, momentum;
};

__device__ inline void rule_apply(const rule &r, float gradient, float *parameter, float *velocity)
{
    const float p = *parameter, slope = r.trust * (gradient * r.inverse + r.decay * p);
    *velocity = r.momentum * *velocity + slope;
    *parameter = p - r.rate * *velocity;
}

template <class T, class W>
__device__ void update_one(const struct train_update &u, const rule &r, size_t at)
{
    float p = u.parameters[at], v = u.velocity[at];
    rule_apply(r, load_one((const T *)u.gradients + at), &p, &v);
    u.velocity[at] = v;
    u.parameters[at] = p;
    if (u.working)
        store_one((W *)u.working + at, p);
}

/* Eight at a time, 80 bytes or more to load before any is stored. */
template <class T, class W>
__device__ void update_eights(const struct train_update &u, const rule &r, size_t begin,
                              unsigned eights)
{
    for (unsigned i = threadIdx.x; i < eights; i += THREADS) {
        const size_t at = begin + (size_t)i * EIGHT;
        const packed<float> parameters = load_packed(u.parameters + at),
                            velocities = load_packed(u.velocity + at);
        const packed<T> gradients = load_packed((const T *)u.gradients + at);
        float p[EIGHT], v[EIGHT], g[EIGHT];
        unpack(parameters, p);
        unpack(velocities, v);
        unpack(gradients, g);
#pragma unroll
        for (int k = 0; k < EIGHT; k++)
            rule_apply(r, g[k], &p[k], &v[k]);
        store_eight(u.velocity + at, v);
        store_eight(u.parameters + at, p);
        if (u.working)
            store_eight((W *)u.working + at, p);
    }
}

template <class T, class W>
__global__ void __launch_bounds__(THREADS)
    update_kernel(const struct train_update u, const float *control)
{
    if (u.find_scale && *u.bad)
        return;
    const struct train_chunk chunk = u.chunks[blockIdx.x];
    const struct train_segment segment = u.segments[chunk.segment];
    const rule r = {control[CONTROL_RATE], 1 / control[CONTROL_LOSS_SCALE],
                    u.trust > 0 ? u.sums[2 * u.chunk_count + chunk.segment] : 1,
                    segment.decays ? u.decay : 0, u.momentum};
    const unsigned eights = chunk.begin % EIGHT == 0 ? chunk.count / EIGHT : 0;
    update_eights<T, W>(u, r, chunk.begin, eights);
    for (unsigned i = eights * EIGHT + threadIdx.x; i < chunk.count; i += THREADS)
        update_one<T, W>(u, r, chunk.begin + i);
}

template <class W> __global__ void refresh_kernel(W *working, const float *parameters, size_t count)
{
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < count;
         i += (size_t)gridDim.x * THREADS)
        store_one(working + i, parameters[i]);
}

__global__ void scale_kernel(float *control, unsigned *bad)
{
    float *scale = &control[CONTROL_LOSS_SCALE], *good = &control[CONTROL_GOOD_STEPS];
    if (*bad) {
        *scale = fmaxf(*scale / 2, SCALE_LEAST);
        *good = 0;
    } else if (++*good >= GROW_AFTER) {
        *scale = fminf(*scale * 2, SCALE_MOST);
        *good = 0;
    }
    *bad = 0;
}

template <class T> int finite(const struct train_gpu *gpu, const struct train_update *u)
{
    return launch(gpu, finite_kernel<T>, blocks_for(gpu, u->count, THREADS, 8), THREADS,
                  (const T *)u->gradients, u->count, u->bad);
}

template <class T> int lars(const struct train_gpu *gpu, const struct train_update *u)
{
    const int error = launch(gpu, squares_kernel<T>, u->chunk_count, THREADS, *u, gpu->control);
    return error ? error : launch(gpu, trust_kernel, u->segment_count, THREADS, *u);
}

template <class T> int update(const struct train_gpu *gpu, const struct train_update *u)
{
    return typed(u->working_type, [&](auto number) {
        return launch(gpu, update_kernel<T, decltype(number)>, u->chunk_count, THREADS, *u,
                      gpu->control);
    });
}

} // namespace

int train_update(const struct train_gpu *gpu, const struct train_update *u)
{
    if (!u->chunk_count)
        return cudaSuccess;
    const int error = typed(u->gradient_type, [&](auto number) {
        using T = decltype(number);
        int failed = u->find_scale ? finite<T>(gpu, u) : (int)cudaSuccess;
        if (!failed && u->trust > 0)
            failed = lars<T>(gpu, u);
        return failed ? failed : update<T>(gpu, u);
    });
    return error || !u->find_scale ? error : launch(gpu, scale_kernel, 1, 1, gpu->control, u->bad);
}

int train_refresh(const struct train_gpu *gpu, const struct train_update *u)
{
    if (!u->working || !u->count)
        return cudaSuccess;
    return typed(u->working_type, [&](auto number) {
        using W = decltype(number);
        return launch(gpu, refresh_kernel<W>, blocks_for(gpu, u->count, THREADS, 8), THREADS,
                      (W *)u->working, u->parameters, u->count);
    });
}

int train_update_load(void)
{
    return load_kernels(trust_kernel, scale_kernel, EACH_TYPE(finite_kernel),
                        EACH_TYPE(squares_kernel), EACH_TYPE_AND(update_kernel, float),
                        EACH_TYPE_AND(update_kernel, __nv_bfloat16),
                        EACH_TYPE_AND(update_kernel, __half), EACH_TYPE(refresh_kernel));
}
