/*
 * Pooling, eight channels of one pixel a thread. Backward gathers: a pixel of x reads the windows
 * that cover it, so nothing is added atomically.
 */
#include "train/kernels/cuda/vector.cuh"

namespace
{

constexpr unsigned THREADS = 256, MAX_BLOCKS = 4; /* of maxima on a multiprocessor */

/* Eight channels of pixel (n, i, j). */
struct spot {
    size_t n;
    unsigned i, j, group;
};

__device__ spot spot_of(size_t at, size_t height, size_t width, unsigned groups)
{
    spot s;
    at = divide(at, groups, &s.group);
    at = divide(at, (unsigned)width, &s.j);
    s.n = divide(at, (unsigned)height, &s.i);
    return s;
}

/* The first element of the eight channels of pixel (i, j) of x. */
__device__ size_t inner(const struct train_pool &p, const spot &s, unsigned i, unsigned j)
{
    return ((s.n * p.height + i) * p.width + j) * p.padded + s.group * EIGHT;
}

__device__ size_t outer(const struct train_pool &p, const spot &s, unsigned i, unsigned j)
{
    return ((s.n * p.out_height + i) * p.out_width + j) * p.padded + s.group * EIGHT;
}

/* The maxima so far of eight channels, and their places in the window. */
struct maxima {
    float best[EIGHT];
    unsigned place[EIGHT];
    bool found;
};

__device__ void maxima_take(maxima *m, const float *v, unsigned place)
{
#pragma unroll
    for (int k = 0; k < EIGHT; k++) {
        m->place[k] = !m->found || v[k] > m->best[k] ? place : m->place[k];
        m->best[k] = m->found ? larger(m->best[k], v[k]) : v[k];
    }
    m->found = true;
}

/* THREE pixels beside each other are loaded at once. */
template <class T>
__device__ void maxima_row(maxima *m, const struct train_pool &p, const T *x, const spot &s,
                           unsigned r)
{
    constexpr int THREE = 3;
    const unsigned i = s.i * p.stride + r - p.pad_rows; /* wraps if outside */
    if (i >= p.height)
        return;
    for (unsigned c = 0; c < p.columns; c += THREE) {
        packed<T> loaded[THREE];
        float v[EIGHT];
#pragma unroll
        for (int u = 0; u < THREE; u++) {
            const unsigned j = s.j * p.stride + c + u - p.pad_columns;
            if (c + u < p.columns && j < p.width)
                loaded[u] = load_packed(x + inner(p, s, i, j));
        }
#pragma unroll
        for (int u = 0; u < THREE; u++) {
            const unsigned j = s.j * p.stride + c + u - p.pad_columns;
            if (c + u >= p.columns || j >= p.width)
                continue;
            unpack(loaded[u], v);
            maxima_take(m, v, r * p.columns + c + u);
        }
    }
}

template <class T>
__global__ void __launch_bounds__(THREADS, MAX_BLOCKS)
    max_kernel(const struct train_pool p, T *y, uint8_t *index, const T *x, size_t chunks)
{
    for (size_t at = blockIdx.x * (size_t)THREADS + threadIdx.x; at < chunks;
         at += (size_t)gridDim.x * THREADS) {
        const spot s = spot_of(at, p.out_height, p.out_width, p.padded / EIGHT);
        maxima m = {};
        for (unsigned r = 0; r < p.rows; r++)
            maxima_row(&m, p, x, s, r);
        store_eight(y + at * EIGHT, m.best);
        *(uint2 *)(index + at * EIGHT) = bytes_of(m.place);
    }
}

/* The windows along one side that cover place `at`: from *first to before *end. */
__device__ void covering(unsigned at, unsigned window, unsigned stride, unsigned pad, size_t count,
                         unsigned *first, unsigned *end)
{
    const unsigned place = at + pad;
    *first = place < window ? 0 : (place - window) / stride + 1;
    *end = place / stride + 1;
    if (*end > count)
        *end = (unsigned)count;
}

/* Four windows, two by two from (i, j), are loaded at once: all that cover a pixel if windows reach
 * over two strides. */
template <class T>
__device__ void gather_four(const struct train_pool &p, const spot &s, unsigned i, unsigned j,
                            unsigned i_end, unsigned j_end, const T *dy, const uint8_t *index,
                            float *sum)
{
    packed<T> loaded[4];
    uint2 winners[4];
    float g[EIGHT];
#pragma unroll
    for (unsigned w = 0; w < 4; w++)
        if (i + w / 2 < i_end && j + w % 2 < j_end) {
            const size_t at = outer(p, s, i + w / 2, j + w % 2);
            loaded[w] = load_packed(dy + at);
            winners[w] = *(const uint2 *)(index + at);
        }
#pragma unroll
    for (unsigned w = 0; w < 4; w++) {
        const unsigned a = i + w / 2, b = j + w % 2;
        if (a >= i_end || b >= j_end)
            continue;
        const unsigned place =
            (s.i + p.pad_rows - a * p.stride) * p.columns + s.j + p.pad_columns - b * p.stride;
        unpack(loaded[w], g);
#pragma unroll
        for (int k = 0; k < EIGHT; k++) {
            const unsigned winner =
                (k < 4 ? winners[w].x >> 8 * k : winners[w].y >> 8 * (k - 4)) & 255;
            sum[k] += winner == place ? g[k] : 0;
        }
    }
}

template <class T>
__global__ void __launch_bounds__(THREADS, MAX_BLOCKS)
    max_gradient_kernel(const struct train_pool p, T *dx, const T *dy, const uint8_t *index,
                        bool add, size_t chunks)
{
    for (size_t at = blockIdx.x * (size_t)THREADS + threadIdx.x; at < chunks;
         at += (size_t)gridDim.x * THREADS) {
        const spot s = spot_of(at, p.height, p.width, p.padded / EIGHT);
        unsigned i_first, i_end, j_first, j_end;
        float sum[EIGHT] = {};
        covering(s.i, p.rows, p.stride, p.pad_rows, p.out_height, &i_first, &i_end);
        covering(s.j, p.columns, p.stride, p.pad_columns, p.out_width, &j_first, &j_end);
        for (unsigned i = i_first; i < i_end; i += 2)
            for (unsigned j = j_first; j < j_end; j += 2)
                gather_four(p, s, i, j, i_end, j_end, dy, index, sum);
        write_eight(dx + at * EIGHT, sum, add);
    }
}

/* Pixels of x along one side of the window at `at`. */
__device__ unsigned inside(unsigned at, unsigned window, unsigned stride, unsigned pad,
                           size_t count, unsigned *first)
{
    const unsigned begin = at * stride, end = begin + window;
    *first = begin < pad ? 0 : begin - pad;
    const unsigned stop = end - pad < count ? end - pad : (unsigned)count;
    return stop - *first;
}

template <class T>
__global__ void average_kernel(const struct train_pool p, T *y, const T *x, size_t chunks)
{
    for (size_t at = blockIdx.x * (size_t)THREADS + threadIdx.x; at < chunks;
         at += (size_t)gridDim.x * THREADS) {
        const spot s = spot_of(at, p.out_height, p.out_width, p.padded / EIGHT);
        unsigned i_first, j_first;
        const unsigned rows = inside(s.i, p.rows, p.stride, p.pad_rows, p.height, &i_first);
        const unsigned columns = inside(s.j, p.columns, p.stride, p.pad_columns, p.width, &j_first);
        const float share = 1.0f / (float)(rows * columns);
        float sum[EIGHT] = {}, v[EIGHT];
        for (unsigned r = 0; r < rows; r++)
#pragma unroll 4
            for (unsigned c = 0; c < columns; c++) {
                load_eight(x + inner(p, s, i_first + r, j_first + c), v);
#pragma unroll
                for (int k = 0; k < EIGHT; k++)
                    sum[k] += v[k];
            }
#pragma unroll
        for (int k = 0; k < EIGHT; k++)
            sum[k] *= share;
        store_eight(y + at * EIGHT, sum);
    }
}

template <class T>
__global__ void average_gradient_kernel(const struct train_pool p, T *dx, const T *dy, bool add,
                                        size_t chunks)
{
    for (size_t at = blockIdx.x * (size_t)THREADS + threadIdx.x; at < chunks;
         at += (size_t)gridDim.x * THREADS) {
        const spot s = spot_of(at, p.height, p.width, p.padded / EIGHT);
        unsigned i, i_end, j_first, j_end, unused;
        float sum[EIGHT] = {}, g[EIGHT];
        covering(s.i, p.rows, p.stride, p.pad_rows, p.out_height, &i, &i_end);
        covering(s.j, p.columns, p.stride, p.pad_columns, p.out_width, &j_first, &j_end);
        for (; i < i_end; i++)
            for (unsigned j = j_first; j < j_end; j++) {
                const float share =
                    1.0f / (float)(inside(i, p.rows, p.stride, p.pad_rows, p.height, &unused) *
                                   inside(j, p.columns, p.stride, p.pad_columns, p.width, &unused));
                load_eight(dy + outer(p, s, i, j), g);
#pragma unroll
                for (int k = 0; k < EIGHT; k++)
                    sum[k] = fmaf(g[k], share, sum[k]);
            }
        write_eight(dx + at * EIGHT, sum, add);
    }
}

} // namespace

int train_pool(const struct train_gpu *gpu, const struct train_pool *p, void *y, uint8_t *index,
               const void *x)
{
    const size_t chunks = p->batch * p->out_height * p->out_width * (p->padded / EIGHT);
    const unsigned blocks = blocks_for(gpu, chunks, THREADS, index ? MAX_BLOCKS : 16);
    return typed(p->type, [&](auto number) {
        using T = decltype(number);
        return index ? launch(gpu, max_kernel<T>, blocks, THREADS, *p, (T *)y, index, (const T *)x,
                              chunks)
                     : launch(gpu, average_kernel<T>, blocks, THREADS, *p, (T *)y, (const T *)x,
                              chunks);
    });
}

int train_pool_gradient(const struct train_gpu *gpu, const struct train_pool *p, void *dx,
                        const void *dy, const uint8_t *index, bool add)
{
    const size_t chunks = p->batch * p->height * p->width * (p->padded / EIGHT);
    const unsigned blocks = blocks_for(gpu, chunks, THREADS, index ? MAX_BLOCKS : 16);
    return typed(p->type, [&](auto number) {
        using T = decltype(number);
        return index ? launch(gpu, max_gradient_kernel<T>, blocks, THREADS, *p, (T *)dx,
                              (const T *)dy, index, add, chunks)
                     : launch(gpu, average_gradient_kernel<T>, blocks, THREADS, *p, (T *)dx,
                              (const T *)dy, add, chunks);
    });
}

int train_pool_load(void)
{
    return load_kernels(EACH_TYPE(max_kernel), EACH_TYPE(max_gradient_kernel),
                        EACH_TYPE(average_kernel), EACH_TYPE(average_gradient_kernel));
}
