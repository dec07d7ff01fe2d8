/*
 * A batch norm, a ReLU and a maximum pooling in one pass each way: windows of 3 x 3 with a stride
 * of 2 and a pad of 1. What the norm makes is never written. Forward keeps for each window its
 * winner's place and x, so that the gradients of scale and shift are sums over windows
 * (train_norm_reduce), not over pixels. See cuda/channels.cuh for who does what.
 *
 * Backward a thread has the four pixels (2i, 2j) to (2i + 1, 2j + 1) of x: only the windows (i, j)
 * to (i + 1, j + 1) cover them, and there are as many such squares as windows.
 */
#include "train/kernels/cuda/channels.cuh"

namespace
{

constexpr int SIDE = 3, POOL_THREADS = 256, BACKWARD_BLOCKS = 2;
constexpr unsigned NOBODY = 255; /* wins where no pixel is above 0 */

/* Blocks on a multiprocessor, as far as registers go. */
template <class T> constexpr unsigned forward_blocks()
{
    return sizeof(T) == 2 ? 3 : 2;
}

/* A pass, as the kernels get it. */
struct windows {
    unsigned height, width, out_height, out_width, channels; /* padded */
    const void *x;
    const float *numbers;
    void *y, *winners;
    uint8_t *index, *mask;
    const void *dy;
    void *dx;
    bool add;
};

/* Window (i, j) of image n, or the four pixels that begin at (2i, 2j). */
struct square {
    size_t n;
    unsigned i, j;
};

__device__ square square_of(const struct windows &w, const layout &at, size_t chunk)
{
    square s;
    unsigned group;
    const size_t row = divide(chunk, at.groups, &group);
    s.n = divide(divide(row, w.out_width, &s.j), w.out_height, &s.i);
    return s;
}

/* The first of eight channels of pixel (i, j) of x. */
__device__ size_t pixel(const struct windows &w, size_t n, unsigned i, unsigned j, unsigned group)
{
    return ((n * w.height + i) * w.width + j) * w.channels + group * EIGHT;
}

/* The largest values so far of eight channels, their x, and where they stand. */
struct winner {
    float value[EIGHT], x[EIGHT];
    unsigned place[EIGHT];
    bool found;
};

__device__ void winner_take(winner *best, const float *x, const float *factor, const float *offset,
                            unsigned place)
{
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        const float value = fmaf(x[k], factor[k], offset[k]);
        const bool wins = !best->found || value > best->value[k];
        best->value[k] = best->found ? larger(best->value[k], value) : value;
        best->x[k] = wins ? x[k] : best->x[k];
        best->place[k] = wins ? place : best->place[k];
    }
    best->found = true;
}

template <class T>
__device__ void winner_find(const struct windows &w, const square &s, unsigned group,
                            const float *factor, const float *offset, winner *best)
{
    best->found = false;
#pragma unroll
    for (int r = 0; r < SIDE; r++) {
        const unsigned i = 2 * s.i + r - 1; /* wraps if outside */
        packed<T> loaded[SIDE];
        float x[EIGHT];
        if (i >= w.height)
            continue;
#pragma unroll
        for (int c = 0; c < SIDE; c++)
            if (2 * s.j + c - 1 < w.width)
                loaded[c] = load_packed((const T *)w.x + pixel(w, s.n, i, 2 * s.j + c - 1, group));
#pragma unroll
        for (int c = 0; c < SIDE; c++) {
            if (2 * s.j + c - 1 >= w.width)
                continue;
            unpack(loaded[c], x);
            winner_take(best, x, factor, offset, r * SIDE + c);
        }
    }
}

template <class T>
__global__ void __launch_bounds__(POOL_THREADS, forward_blocks<T>())
    norm_pool_kernel(const struct windows w, const layout at)
{
    const place p = place_of<POOL_THREADS>(at);
    float factor[EIGHT], offset[EIGHT];
    if (!p.inside)
        return;
    numbers_of(w.numbers, NORM_FACTOR, at.groups, p.group, factor);
    numbers_of(w.numbers, NORM_OFFSET, at.groups, p.group, offset);
    for (unsigned u = 0; u < p.count; u++) {
        const size_t chunk = chunk_from_last(p, u);
        winner best;
        unsigned above = 0;
        winner_find<T>(w, square_of(w, at, chunk), p.group, factor, offset, &best);
#pragma unroll
        for (int k = 0; k < EIGHT; k++) {
            const bool positive = best.value[k] > 0;
            above |= (unsigned)positive << k;
            best.place[k] = positive ? best.place[k] : NOBODY;
            if (!positive)
                best.value[k] = best.value[k] != best.value[k] ? best.value[k] : 0; /* NaN stays */
        }
        store_eight((T *)w.y + chunk * EIGHT, best.value);
        store_eight((T *)w.winners + chunk * EIGHT, best.x);
        *(uint2 *)(w.index + chunk * EIGHT) = bytes_of(best.place);
        w.mask[chunk] = (uint8_t)above;
    }
}

/* Which of the four windows may be won by pixel (r, c) of a square, and its place in it: window (a,
 * b) begins 2a - 1 rows and 2b - 1 columns from the square. */
__device__ constexpr bool covers(int a, int b, int r, int c)
{
    return r + 1 - 2 * a >= 0 && c + 1 - 2 * b >= 0;
}

__device__ constexpr unsigned place_in(int a, int b, int r, int c)
{
    return (unsigned)((r + 1 - 2 * a) * SIDE + c + 1 - 2 * b);
}

/* A thread's loads of a square: the windows that reach it, and its pixels. */
template <class T> struct around {
    packed<T> dy[2][2], x[2][2];
    uint2 places[2][2];
};

template <class T>
__device__ void around_load(const struct windows &w, const layout &at, const square &s,
                            size_t chunk, unsigned group, around<T> *l)
{
#pragma unroll
    for (int a = 0; a < 2; a++)
#pragma unroll
        for (int b = 0; b < 2; b++) {
            const size_t window = chunk + ((size_t)a * w.out_width + b) * at.groups;
            l->places[a][b] = make_uint2(~0u, ~0u);
            if (s.i + a < w.out_height && s.j + b < w.out_width) {
                l->dy[a][b] = load_packed((const T *)w.dy + window * EIGHT);
                l->places[a][b] = *(const uint2 *)(w.index + window * EIGHT);
            }
            if (2 * s.i + a < w.height && 2 * s.j + b < w.width)
                l->x[a][b] = load_packed<T, true>((const T *)w.x +
                                                  pixel(w, s.n, 2 * s.i + a, 2 * s.j + b, group));
        }
}

/* The gated gradient of pixel (r, c) of a square. */
template <class T> __device__ void around_gather(const around<T> &l, int r, int c, float *g)
{
#pragma unroll
    for (int k = 0; k < EIGHT; k++)
        g[k] = 0;
#pragma unroll
    for (int a = 0; a < 2; a++)
#pragma unroll
        for (int b = 0; b < 2; b++) {
            float dy[EIGHT];
            if (!covers(a, b, r, c))
                continue;
            unpack(l.dy[a][b], dy);
#pragma unroll
            for (int k = 0; k < EIGHT; k++) {
                const unsigned word = k < 4 ? l.places[a][b].x : l.places[a][b].y;
                g[k] += (word >> 8 * (k % 4) & 255) == place_in(a, b, r, c) ? dy[k] : 0;
            }
        }
}

template <class T>
__global__ void __launch_bounds__(POOL_THREADS, BACKWARD_BLOCKS)
    norm_pool_gradient_kernel(const struct windows w, const layout at)
{
    const place p = place_of<POOL_THREADS>(at);
    float a[EIGHT], b[EIGHT], c[EIGHT];
    if (!p.inside)
        return;
    numbers_of(w.numbers, NORM_A, at.groups, p.group, a);
    numbers_of(w.numbers, NORM_B, at.groups, p.group, b);
    numbers_of(w.numbers, NORM_C, at.groups, p.group, c);
    for (unsigned u = 0; u < p.count; u++) {
        const size_t chunk = chunk_from_last(p, u);
        const square s = square_of(w, at, chunk);
        around<T> loaded;
        around_load(w, at, s, chunk, p.group, &loaded);
#pragma unroll
        for (int r = 0; r < 2; r++)
#pragma unroll
            for (int q = 0; q < 2; q++) {
                float g[EIGHT], x[EIGHT];
                const unsigned i = 2 * s.i + r, j = 2 * s.j + q;
                if (i >= w.height || j >= w.width)
                    continue;
                around_gather(loaded, r, q, g);
                unpack(loaded.x[r][q], x);
#pragma unroll
                for (int k = 0; k < EIGHT; k++)
                    g[k] = fmaf(a[k], g[k], fmaf(b[k], x[k], c[k]));
                write_eight((T *)w.dx + pixel(w, s.n, i, j, p.group), g, w.add);
            }
    }
}

struct windows windows_of(const struct train_norm_pool *pass)
{
    const unsigned height = (unsigned)pass->height, width = (unsigned)pass->width;
    return {height,
            width,
            (height + 1) / 2,
            (width + 1) / 2,
            pass->norm->padded,
            pass->norm->x,
            pass->norm->numbers,
            pass->y,
            pass->winners,
            pass->index,
            pass->mask,
            pass->dy,
            pass->dx,
            pass->add};
}

/* On windows, whose rows are fewer than those of x. */
layout layout_of(const struct train_norm_pool *pass, const struct windows &w)
{
    layout at = wide_layout_of(pass->norm->rows, pass->norm->padded);
    at.rows = pass->norm->rows / ((size_t)w.height * w.width) * w.out_height * w.out_width;
    return at;
}

} // namespace

int train_norm_pool(const struct train_gpu *gpu, const struct train_norm_pool *pass)
{
    const struct windows w = windows_of(pass);
    const layout at = layout_of(pass, w);
    return typed(pass->norm->type, [&](auto number) {
        using T = decltype(number);
        const dim3 grid = grid_of(gpu, at, POOL_THREADS, forward_blocks<T>());
        return launch(gpu, norm_pool_kernel<T>, grid, POOL_THREADS, w, at);
    });
}

int train_norm_pool_gradient(const struct train_gpu *gpu, const struct train_norm_pool *pass)
{
    const struct windows w = windows_of(pass);
    const layout at = layout_of(pass, w);
    const dim3 grid = grid_of(gpu, at, POOL_THREADS, BACKWARD_BLOCKS);
    return typed(pass->norm->type, [&](auto number) {
        return launch(gpu, norm_pool_gradient_kernel<decltype(number)>, grid, POOL_THREADS, w, at);
    });
}

int train_norm_pool_load(void)
{
    return load_kernels(EACH_TYPE(norm_pool_kernel), EACH_TYPE(norm_pool_gradient_kernel));
}
