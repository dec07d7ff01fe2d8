/*
 * Batch norm backward: one pass that reads dy and x (and a mask) for the gradients of scale and
 * shift, and one that reads them again and writes dx, the gated dy for what was added, or the dx of
 * two batch norms that were added.
 *
 * With g the gated dy, over all rows: dshift = sum g, dscale = inverse * sum g * (x - mean), and
 * dx = factor * (g - dshift / rows - (x - mean) * inverse * dscale / rows) = a * g + b * x + c.
 */
#include "train/kernels/cuda/channels.cuh"

#include <type_traits>

namespace
{

constexpr int REDUCE_THREADS = 512, REDUCE_BLOCKS = 1, GRADIENT_THREADS = 256, GRADIENT_BLOCKS = 2;

/* A pass, as the kernels get it. */
struct backward {
    struct train_norm norm, other;
    const void *dy;
    const uint8_t *mask;
    void *dx, *dx_other, *dplain;
    bool add, add_other, add_plain, frozen;
};

template <class T, int GATE>
__device__ void gate(float *g, const float *x, const float *factor, const float *offset,
                     unsigned bits)
{
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        if (GATE == NORM_GATE_MASK)
            g[k] = bits >> k & 1 ? g[k] : 0;
        if (GATE == NORM_GATE_VALUE)
            g[k] = fmaf(x[k], factor[k], offset[k]) > 0 ? g[k] : 0;
    }
}

/* a, b and c; product: of g and x - mean. */
__device__ void factors_make(const struct train_norm &norm, unsigned c, double sum, double product,
                             bool frozen)
{
    const double count = (double)(norm.count ? norm.count : norm.rows),
                 mean = norm.numbers[NORM_MEAN * norm.padded + c],
                 inverse = norm.numbers[NORM_INVERSE * norm.padded + c],
                 factor = norm.numbers[NORM_FACTOR * norm.padded + c];
    const double b = frozen ? 0 : -factor * inverse * inverse * product / count;
    const double constant = frozen ? 0 : -factor * sum / count - b * mean;
    norm.numbers[NORM_A * norm.padded + c] = (float)factor;
    norm.numbers[NORM_B * norm.padded + c] = (float)b;
    norm.numbers[NORM_C * norm.padded + c] = (float)constant;
}

/* The gradients of scale and shift, and a, b, c or what is to be joined with other ranks'. */
__device__ void finish(const struct train_norm &norm, unsigned c, double sum, double product,
                       bool frozen)
{
    const double inverse = norm.numbers[NORM_INVERSE * norm.padded + c];
    if (c < norm.channels) {
        store_any(norm.shift_diff, norm.gradient_type, c, (float)sum);
        store_any(norm.scale_diff, norm.gradient_type, c, (float)(product * inverse));
    }
    if (!norm.joint) {
        factors_make(norm, c, sum, product, frozen);
    } else if (c < norm.channels) {
        norm.joint[c] = sum;
        norm.joint[norm.channels + c] = product;
    }
}

__global__ void join_kernel(const struct train_norm norm)
{
    const unsigned c = blockIdx.x * blockDim.x + threadIdx.x;
    const bool real = c < norm.channels;
    let_next_begin();
    if (c < norm.padded)
        factors_make(norm, c, real ? norm.joint[c] : 0, real ? norm.joint[norm.channels + c] : 0,
                     false);
}

/* A thread's loads of one chunk. */
template <class T> struct loads {
    packed<T> dy, x, other;
    unsigned bits;
};

template <class T, int GATE, bool TWO, bool LAST>
__device__ loads<T> load_chunk(const struct backward &pass, size_t chunk)
{
    loads<T> l;
    l.dy = load_packed<T, LAST>((const T *)pass.dy + chunk * EIGHT);
    l.x = load_packed<T, LAST>((const T *)pass.norm.x + chunk * EIGHT);
    if (TWO)
        l.other = load_packed<T, LAST>((const T *)pass.other.x + chunk * EIGHT);
    l.bits = GATE != NORM_GATE_MASK ? 0 : LAST ? __ldcs(pass.mask + chunk) : pass.mask[chunk];
    return l;
}

template <class T, int GATE, bool TWO>
__global__ void __launch_bounds__(REDUCE_THREADS, REDUCE_BLOCKS)
    reduce_kernel(const struct backward pass, const layout at, void *scratch)
{
    constexpr int SUMS = TWO ? 3 : 2, UNROLL = (sizeof(T) == 2 ? 4 : 2) - (TWO ? 1 : 0);
    const place p = place_of<REDUCE_THREADS>(at);
    __shared__ double total[SUMS * SLAB];
    float sums[SUMS][EIGHT] = {};
    if (p.inside) {
        float mean[EIGHT], other_mean[EIGHT], factor[EIGHT], offset[EIGHT];
        numbers_of(pass.norm.numbers, NORM_MEAN, at.groups, p.group, mean);
        if (TWO)
            numbers_of(pass.other.numbers, NORM_MEAN, at.groups, p.group, other_mean);
        if (GATE == NORM_GATE_VALUE) {
            numbers_of(pass.norm.numbers, NORM_FACTOR, at.groups, p.group, factor);
            numbers_of(pass.norm.numbers, NORM_OFFSET, at.groups, p.group, offset);
        }
        for (unsigned i = 0; i < p.count; i += UNROLL) {
            loads<T> loaded[UNROLL];
#pragma unroll
            for (int u = 0; u < UNROLL; u++)
                if (i + u < p.count)
                    loaded[u] = load_chunk<T, GATE, TWO, false>(pass, p.chunk + (i + u) * p.step);
#pragma unroll
            for (int u = 0; u < UNROLL; u++) {
                float g[EIGHT], x[EIGHT], other[EIGHT];
                if (i + u >= p.count)
                    break;
                unpack(loaded[u].dy, g);
                unpack(loaded[u].x, x);
                if (TWO)
                    unpack(loaded[u].other, other);
                gate<T, GATE>(g, x, factor, offset, loaded[u].bits);
#pragma unroll
                for (int k = 0; k < EIGHT; k++) {
                    sums[0][k] += g[k];
                    sums[1][k] = fmaf(g[k], x[k] - mean[k], sums[1][k]);
                    if (TWO)
                        sums[SUMS - 1][k] = fmaf(g[k], other[k] - other_mean[k], sums[SUMS - 1][k]);
                }
            }
        }
    }
    let_next_begin();
    if (!sum_all<SUMS, REDUCE_THREADS>(at, sums, scratch, total))
        return;
    const unsigned c = blockIdx.y * SLAB + threadIdx.x;
    if (threadIdx.x >= SLAB || c >= pass.norm.padded)
        return;
    finish(pass.norm, c, total[threadIdx.x], total[SLAB + threadIdx.x], pass.frozen);
    if (TWO)
        finish(pass.other, c, total[threadIdx.x], total[(SUMS - 1) * SLAB + threadIdx.x],
               pass.frozen);
}

/* a * g + b * x + c, for one of the batch norms. */
__device__ void slope(const float *g, const float *x, const float *a, const float *b,
                      const float *c, float *out)
{
#pragma unroll
    for (int k = 0; k < EIGHT; k++)
        out[k] = fmaf(a[k], g[k], fmaf(b[k], x[k], c[k]));
}

/* A thread's rows from i on. */
template <class T, int GATE, bool TWO, int UNROLL>
__device__ void gradient_loads(const struct backward &pass, const place &p, unsigned i,
                               loads<T> *loaded)
{
#pragma unroll
    for (int u = 0; u < UNROLL; u++)
        if (i + u < p.count)
            loaded[u] = load_chunk<T, GATE, TWO, true>(pass, chunk_from_last(p, i + u));
}

template <class T, int GATE, bool TWO>
__global__ void __launch_bounds__(GRADIENT_THREADS, GRADIENT_BLOCKS)
    gradient_kernel(const struct backward pass, const layout at)
{
    constexpr int UNROLL = (sizeof(T) == 2 ? 4 : 2) / (TWO ? 2 : 1);
    const place p = place_of<GRADIENT_THREADS>(at);
    float a[EIGHT], b[EIGHT], c[EIGHT], a2[EIGHT], b2[EIGHT], c2[EIGHT], offset[EIGHT];
    loads<T> loaded[UNROLL];
    if (!p.inside || p.count == 0)
        return;
    gradient_loads<T, GATE, TWO, UNROLL>(pass, p, 0, loaded);
    after_previous();
    numbers_of(pass.norm.numbers, NORM_A, at.groups, p.group, a);
    numbers_of(pass.norm.numbers, NORM_B, at.groups, p.group, b);
    numbers_of(pass.norm.numbers, NORM_C, at.groups, p.group, c);
    if (TWO) {
        numbers_of(pass.other.numbers, NORM_A, at.groups, p.group, a2);
        numbers_of(pass.other.numbers, NORM_B, at.groups, p.group, b2);
        numbers_of(pass.other.numbers, NORM_C, at.groups, p.group, c2);
    }
    if (GATE == NORM_GATE_VALUE) /* a is the factor */
        numbers_of(pass.norm.numbers, NORM_OFFSET, at.groups, p.group, offset);
    for (unsigned i = 0; i < p.count; i += UNROLL) {
        if (i > 0)
            gradient_loads<T, GATE, TWO, UNROLL>(pass, p, i, loaded);
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            if (i + u >= p.count)
                return;
            const size_t chunk = chunk_from_last(p, i + u);
            float g[EIGHT], x[EIGHT], other[EIGHT], out[EIGHT];
            unpack(loaded[u].dy, g);
            unpack(loaded[u].x, x);
            if (TWO)
                unpack(loaded[u].other, other);
            gate<T, GATE>(g, x, a, offset, loaded[u].bits);
            if (pass.dx) {
                slope(g, x, a, b, c, out);
                write_eight((T *)pass.dx + chunk * EIGHT, out, pass.add);
            }
            if (TWO && pass.dx_other) {
                slope(g, other, a2, b2, c2, out);
                write_eight((T *)pass.dx_other + chunk * EIGHT, out, pass.add_other);
            }
            if (pass.dplain)
                write_eight((T *)pass.dplain + chunk * EIGHT, g, pass.add_plain);
        }
    }
}

struct backward backward_of(const struct train_norm_backward *p)
{
    return {*p->norm,     p->other ? *p->other : train_norm{},
            p->dy,        p->mask,
            p->dx,        p->dx_other,
            p->dplain,    p->add,
            p->add_other, p->add_plain,
            p->frozen};
}

/* Calls f with a number of the type, and as constants the gate and whether there are two norms. */
template <class F> int dispatch(const struct train_norm_backward *pass, F f)
{
    constexpr std::integral_constant<int, NORM_GATE_NONE> none;
    constexpr std::integral_constant<int, NORM_GATE_MASK> mask;
    constexpr std::integral_constant<int, NORM_GATE_VALUE> value;
    constexpr std::bool_constant<true> two;
    constexpr std::bool_constant<false> one;
    return typed(pass->norm->type, [&](auto number) {
        if (pass->other)
            return pass->gate == NORM_GATE_MASK ? f(number, mask, two) : f(number, none, two);
        if (pass->gate == NORM_GATE_VALUE)
            return f(number, value, one);
        return pass->gate == NORM_GATE_MASK ? f(number, mask, one) : f(number, none, one);
    });
}

} // namespace

int train_norm_reduce(const struct train_gpu *gpu, const struct train_norm_backward *pass)
{
    const layout at = layout_of(pass->norm->rows, pass->norm->padded);
    const dim3 grid = grid_of(gpu, at, REDUCE_THREADS, REDUCE_BLOCKS);
    return dispatch(pass, [&](auto number, auto gate, auto two) {
        return launch(gpu, reduce_kernel<decltype(number), gate.value, two.value>, grid,
                      REDUCE_THREADS, backward_of(pass), at, gpu->scratch);
    });
}

int train_norm_join(const struct train_gpu *gpu, const struct train_norm_backward *pass)
{
    return launch(gpu, join_kernel, (pass->norm->padded + 127) / 128, 128, *pass->norm);
}

int train_norm_gradient(const struct train_gpu *gpu, const struct train_norm_backward *pass)
{
    const layout at = wide_layout_of(pass->norm->rows, pass->norm->padded);
    const dim3 grid = grid_of(gpu, at, GRADIENT_THREADS, GRADIENT_BLOCKS);
    return dispatch(pass, [&](auto number, auto gate, auto two) {
        return launch_programmatic(gpu, gradient_kernel<decltype(number), gate.value, two.value>,
                                   grid, GRADIENT_THREADS, backward_of(pass), at);
    });
}

/* The kernels of a gate, for one batch norm or two. */
#define KERNELS(...)                                                                               \
    EACH_TYPE_AND(reduce_kernel, __VA_ARGS__), EACH_TYPE_AND(gradient_kernel, __VA_ARGS__)

int train_norm_backward_load(void)
{
    return load_kernels(join_kernel, KERNELS(NORM_GATE_NONE, false), KERNELS(NORM_GATE_MASK, false),
                        KERNELS(NORM_GATE_VALUE, false), KERNELS(NORM_GATE_NONE, true),
                        KERNELS(NORM_GATE_MASK, true));
}
