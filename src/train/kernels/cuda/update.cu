/*
 * The optimizer over all parameters at once, a block for every chunk of at most TRAIN_CHUNK of
 * them: each optimizer's rule with weight decay, LARS and clipping, gradients divided by the loss
 * scale, and the parameters written once more in the type that is computed with. Infinite gradients
 * skip the update where the loss scale is searched.
 */
#include "train/kernels/cuda/vector.cuh"

#include "train/kernels/kernels.h"

namespace
{

constexpr unsigned THREADS = 256, BLOCKS = 3; /* of a multiprocessor, in an update */

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

/* Squares of a chunk's gradients and, for LARS, of its weights. */
template <class T> __global__ void squares_kernel(const struct train_update u, const float *control)
{
    __shared__ double shared[THREADS];
    const struct train_chunk chunk = u.chunks[blockIdx.x];
    const float inverse = 1 / control[CONTROL_LOSS_SCALE];
    double weights = 0, gradients = 0;
    for (unsigned i = threadIdx.x; i < chunk.count; i += THREADS) {
        const double w = u.trust > 0 ? u.parameters[chunk.begin + i] : 0,
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

/* One block: what the update needs to know of all gradients, and of the updates before it. An
 * update that is skipped does not count. */
__global__ void numbers_kernel(const struct train_update u, float *control)
{
    __shared__ double shared[THREADS];
    double gradients = 0;
    for (unsigned i = threadIdx.x; u.clip > 0 && i < u.chunk_count; i += THREADS)
        gradients += u.sums[2 * i + 1];
    gradients = block_sum<THREADS>(gradients, shared);
    if (threadIdx.x)
        return;
    u.numbers[UPDATE_CLIP] = u.clip > 0 ? rule_clip(u.clip, sqrt(gradients)) : 1;
    if (!u.counts || (u.find_scale && *u.bad))
        return;
    const float updates = control[CONTROL_UPDATES] + 1;
    control[CONTROL_UPDATES] = updates;
    rule_correct(u.beta1, u.beta2, updates, &u.numbers[UPDATE_RATE], &u.numbers[UPDATE_ROOT]);
}

__device__ inline float clip_of(const struct train_update &u)
{
    return u.clip > 0 ? u.numbers[UPDATE_CLIP] : 1;
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
    gradients = clip_of(u) * sqrt(block_sum<THREADS>(gradients, shared));
    const bool changed = segment.decays && weights > 0 && gradients > 0;
    if (threadIdx.x == 0)
        u.sums[2 * u.chunk_count + blockIdx.x] =
            changed ? (float)(u.trust * weights / (gradients + u.rule.decay * weights)) : 1;
}

/* The rule without what differs between chunks: trust and decay. */
__device__ inline struct rule rule_common(const struct train_update &u, const float *control)
{
    struct rule r = u.rule;
    r.rate = control[CONTROL_RATE];
    r.scale = clip_of(u) / control[CONTROL_LOSS_SCALE];
    if (u.counts) {
        r.rate *= u.numbers[UPDATE_RATE];
        r.root = u.numbers[UPDATE_ROOT];
    }
    return r;
}

template <class T, class W, int STATES, rule_function *RULE>
__device__ void update_one(const struct train_update &u, const struct rule &r, size_t at)
{
    float p = u.parameters[at], s[STATES];
    for (int k = 0; k < STATES; k++)
        s[k] = u.states[k][at];
    RULE(&r, load_one((const T *)u.gradients + at), &p, &s[0], &s[STATES - 1]);
    for (int k = 0; k < STATES; k++)
        u.states[k][at] = s[k];
    u.parameters[at] = p;
    if (u.working)
        store_one((W *)u.working + at, p);
}

/* Eight at a time, 80 bytes or more to load before any is stored. */
template <class T, class W, int STATES, rule_function *RULE>
__device__ void update_eights(const struct train_update &u, const struct rule &r, size_t begin,
                              unsigned eights)
{
    for (unsigned i = threadIdx.x; i < eights; i += THREADS) {
        const size_t at = begin + (size_t)i * EIGHT;
        const packed<float> parameters = load_packed(u.parameters + at);
        packed<float> states[STATES];
        for (int k = 0; k < STATES; k++)
            states[k] = load_packed(u.states[k] + at);
        const packed<T> gradients = load_packed((const T *)u.gradients + at);
        float p[EIGHT], s[STATES][EIGHT], g[EIGHT];
        unpack(parameters, p);
        for (int k = 0; k < STATES; k++)
            unpack(states[k], s[k]);
        unpack(gradients, g);
#pragma unroll
        for (int k = 0; k < EIGHT; k++)
            RULE(&r, g[k], &p[k], &s[0][k], &s[STATES - 1][k]);
        for (int k = 0; k < STATES; k++)
            store_eight(u.states[k] + at, s[k]);
        store_eight(u.parameters + at, p);
        if (u.working)
            store_eight((W *)u.working + at, p);
    }
}

/* Eights stand on multiples of eight; what is before and behind them goes one by one. Each block
 * takes every gridDim.x-th chunk, and reads the next one's description while it updates this one. */
template <class T, class W, int STATES, rule_function *RULE>
__global__ void __launch_bounds__(THREADS, BLOCKS)
    update_kernel(const struct train_update u, const float *control)
{
    if (u.find_scale && *u.bad)
        return;
    struct rule r = rule_common(u, control);
    struct train_chunk next = u.chunks[blockIdx.x];
    for (unsigned c = blockIdx.x; c < u.chunk_count; c += gridDim.x) {
        const struct train_chunk chunk = next;
        if (c + gridDim.x < u.chunk_count)
            next = u.chunks[c + gridDim.x];
        r.trust = u.trust > 0 ? u.sums[2 * u.chunk_count + chunk.segment] : 1;
        r.decay = chunk.decays ? u.rule.decay : 0;
        const unsigned before = min((unsigned)(-chunk.begin % EIGHT), chunk.count),
                       eights = (chunk.count - before) / EIGHT;
        update_eights<T, W, STATES, RULE>(u, r, chunk.begin + before, eights);
        for (unsigned i = threadIdx.x; i < chunk.count - eights * EIGHT; i += THREADS)
            update_one<T, W, STATES, RULE>(u, r,
                                           chunk.begin + i + (i < before ? 0 : eights * EIGHT));
    }
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

/* Finds infinite gradients, lengths and corrections, before the first parameter changes. */
template <class T> int prepare(const struct train_gpu *gpu, const struct train_update *u)
{
    int error = u->find_scale ? finite<T>(gpu, u) : (int)cudaSuccess;
    if (!error && (u->trust > 0 || u->clip > 0))
        error = launch(gpu, squares_kernel<T>, u->chunk_count, THREADS, *u, gpu->control);
    if (!error && (u->counts || u->clip > 0))
        error = launch(gpu, numbers_kernel, 1, THREADS, *u, gpu->control);
    if (!error && u->trust > 0)
        error = launch(gpu, trust_kernel, u->segment_count, THREADS, *u);
    return error;
}

struct row {
    int (*update)(const struct train_gpu *gpu, const struct train_update *u);
    int (*load)();
};

/* An optimizer: its number of states, and its rule. */
template <int STATES, rule_function *RULE> struct optimizer {
    static int update(const struct train_gpu *gpu, const struct train_update *u)
    {
        return typed(u->gradient_type, [&](auto gradient) {
            return typed(u->working_type, [&](auto working) {
                using T = decltype(gradient);
                using W = decltype(working);
                return launch(gpu, update_kernel<T, W, STATES, RULE>,
                              blocks_for(gpu, (size_t)u->chunk_count * THREADS, THREADS, BLOCKS),
                              THREADS, *u, gpu->control);
            });
        });
    }

    static int load()
    {
        return load_kernels(EACH_TYPE_AND(update_kernel, float, STATES, RULE),
                            EACH_TYPE_AND(update_kernel, __nv_bfloat16, STATES, RULE),
                            EACH_TYPE_AND(update_kernel, __half, STATES, RULE));
    }
};

template <int STATES, rule_function *RULE> constexpr struct row row_of()
{
    return {optimizer<STATES, RULE>::update, optimizer<STATES, RULE>::load};
}

/* By kind. */
constexpr struct row optimizers[] = {
    row_of<1, rule_sgd>(),      row_of<1, rule_nag>(),     row_of<1, rule_adagrad>(),
    row_of<2, rule_adadelta>(), row_of<1, rule_rmsprop>(), row_of<2, rule_adam>(),
};
static_assert(sizeof optimizers / sizeof *optimizers == OPTIMIZERS, "a row for each optimizer");

} // namespace

int train_update(const struct train_gpu *gpu, const struct train_update *u)
{
    if (!u->chunk_count)
        return cudaSuccess;
    int error =
        typed(u->gradient_type, [&](auto gradient) { return prepare<decltype(gradient)>(gpu, u); });
    if (!error)
        error = optimizers[u->optimizer].update(gpu, u);
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
    int error = load_kernels(trust_kernel, numbers_kernel, scale_kernel, EACH_TYPE(finite_kernel),
                             EACH_TYPE(squares_kernel), EACH_TYPE(refresh_kernel));
    for (const auto &optimizer : optimizers)
        error = error ? error : optimizer.load();
    return error;
}
