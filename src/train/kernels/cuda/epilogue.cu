/*
 * What follows a convolution or a dense layer: a bias, a ReLU and dropout in one pass, and back in one
 * that also adds up the bias's gradient. A thread stays with eight channels and goes up the rows.
 */
#include "train/kernels/cuda/channels.cuh"

namespace
{

constexpr int FORWARD_THREADS = 256, FORWARD_BLOCKS = 4, BACKWARD_THREADS = 512,
              BACKWARD_BLOCKS = 1;

/* The factors of eight channels of a row. */
__device__ void drop(const struct train_epilogue &pass, const struct dropout &dropout, size_t row,
                     unsigned group, float *x)
{
    unsigned pixel;
    const size_t n = divide(row, pass.pixels, &pixel);
    const uint64_t image = dropout_image(&dropout, n);
    const size_t place = dropout_pixel(&dropout, pixel);
    const size_t groups = dropout_groups(pass.channels);
#pragma unroll
    for (int half = 0; half < EIGHT / DROPOUT_CHANNELS; half++) {
        const uint64_t hash =
            dropout_hash(image, place, groups, group * (EIGHT / DROPOUT_CHANNELS) + half);
#pragma unroll
        for (int k = 0; k < DROPOUT_CHANNELS; k++)
            x[half * DROPOUT_CHANNELS + k] *= dropout_factor(&dropout, hash, k);
    }
}

/* Eight biases, 0 where channels are padding. */
__device__ void biases_of(const struct train_epilogue &pass, unsigned group, float *out)
{
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        const unsigned c = group * EIGHT + k;
        out[k] = pass.bias && c < pass.channels ? pass.bias[c] : 0;
    }
}

/* A thread's chunks in a tensor whose rows are `pitch` elements apart. */
__device__ place pitched(const place &p, const layout &at, unsigned pitch)
{
    place q = p;
    q.chunk = p.chunk / at.groups * (pitch / EIGHT) + p.group;
    q.step = p.step / at.groups * (pitch / EIGHT);
    return q;
}

template <class T, bool DROPS>
__global__ void __launch_bounds__(FORWARD_THREADS, FORWARD_BLOCKS)
    forward_kernel(const struct train_epilogue pass, const layout at)
{
    constexpr int UNROLL = sizeof(T) == 2 ? 4 : 2;
    const place p = place_of<FORWARD_THREADS>(at), q = pitched(p, at, pass.pitch);
    struct dropout dropout = pass.dropout;
    float bias[EIGHT], x[EIGHT];
    if (!p.inside)
        return;
    if (DROPS) {
        dropout.draw.step = pass.draw->step;
        dropout.draw.image += pass.draw->image;
    }
    biases_of(pass, p.group, bias);
    for (unsigned i = 0; i < p.count; i += UNROLL) {
        packed<T> loaded[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++)
            if (i + u < p.count)
                loaded[u] = load_packed((const T *)pass.x + (p.chunk + (i + u) * p.step) * EIGHT);
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            const size_t chunk = p.chunk + (i + u) * p.step;
            if (i + u >= p.count)
                break;
            unpack(loaded[u], x);
#pragma unroll
            for (int k = 0; k < EIGHT; k++) {
                x[k] += bias[k];
                x[k] = pass.relu && x[k] <= 0 ? 0 : x[k];
            }
            if (DROPS)
                drop(pass, dropout, chunk / at.groups, p.group, x);
            write_eight((T *)pass.y + (q.chunk + (i + u) * q.step) * EIGHT, x, pass.add);
        }
    }
}

template <class T, bool RELU>
__global__ void __launch_bounds__(BACKWARD_THREADS, BACKWARD_BLOCKS)
    backward_kernel(const struct train_epilogue_backward pass, const layout at, void *scratch)
{
    constexpr int UNROLL = sizeof(T) == 2 ? 4 : 2;
    const place p = place_of<BACKWARD_THREADS>(at), q = pitched(p, at, pass.pitch);
    __shared__ double total[SLAB];
    float sums[1][EIGHT] = {};
    for (unsigned i = 0; p.inside && i < p.count; i += UNROLL) {
        packed<T> dy[UNROLL], y[UNROLL];
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            const size_t chunk = q.chunk + (i + u) * q.step;
            if (i + u >= p.count)
                break;
            dy[u] = load_packed((const T *)pass.dy + chunk * EIGHT);
            if (RELU)
                y[u] = load_packed((const T *)pass.y + chunk * EIGHT);
        }
#pragma unroll
        for (int u = 0; u < UNROLL; u++) {
            float g[EIGHT], value[EIGHT];
            if (i + u >= p.count)
                break;
            unpack(dy[u], g);
            if (RELU)
                unpack(y[u], value);
#pragma unroll
            for (int k = 0; k < EIGHT; k++) {
                if (RELU)
                    g[k] = value[k] > 0 ? g[k] * pass.scale : 0;
                sums[0][k] += g[k];
            }
            if (RELU)
                store_eight((T *)pass.dx + (p.chunk + (i + u) * p.step) * EIGHT, g);
        }
    }
    if (!pass.bias_diff || !sum_all<1, BACKWARD_THREADS>(at, sums, scratch, total))
        return;
    const unsigned c = blockIdx.y * SLAB + threadIdx.x;
    if (threadIdx.x < SLAB && c < pass.channels)
        store_any(pass.bias_diff, pass.gradient_type, c, (float)total[threadIdx.x]);
}

} // namespace

int train_epilogue(const struct train_gpu *gpu, const struct train_epilogue *pass)
{
    const layout at = wide_layout_of(pass->rows, pass->padded);
    const dim3 grid = grid_of(gpu, at, FORWARD_THREADS, FORWARD_BLOCKS);
    return typed(pass->type, [&](auto number) {
        using T = decltype(number);
        return launch(gpu, pass->draw ? forward_kernel<T, true> : forward_kernel<T, false>, grid,
                      FORWARD_THREADS, *pass, at);
    });
}

int train_epilogue_backward(const struct train_gpu *gpu, const struct train_epilogue_backward *pass)
{
    const layout at = layout_of(pass->rows, pass->padded);
    const dim3 grid = grid_of(gpu, at, BACKWARD_THREADS, BACKWARD_BLOCKS);
    return typed(pass->type, [&](auto number) {
        using T = decltype(number);
        return launch(gpu, pass->y ? backward_kernel<T, true> : backward_kernel<T, false>, grid,
                      BACKWARD_THREADS, *pass, at, gpu->scratch);
    });
}

int train_epilogue_load(void)
{
    return load_kernels(EACH_TYPE_AND(forward_kernel, false), EACH_TYPE_AND(forward_kernel, true),
                        EACH_TYPE_AND(backward_kernel, false),
                        EACH_TYPE_AND(backward_kernel, true));
}
