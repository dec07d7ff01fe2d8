/*
 * Pooling, eight channels of one pixel a thread. Backward gathers: a pixel of x reads the windows that cover it, so
 * nothing is added atomically.
 */
#include "train_vector.cuh"

namespace
{

constexpr unsigned THREADS = 256;

/* Eight channels of pixel (n, i, j). */
struct spot {
    size_t n;
    unsigned i, j, group;
};

__device__ spot spot_of(size_t at, size_t height, size_t width, unsigned groups)
{
    spot s;
    s.group = (unsigned)(at % groups);
    at /= groups;
    s.j = (unsigned)(at % width);
    at /= width;
    s.i = (unsigned)(at % height);
    s.n = at / height;
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

template <class T>
__global__ void max_kernel(const struct train_pool p, T *y, uint8_t *index, const T *x,
                           size_t chunks)
{
    for (size_t at = blockIdx.x * (size_t)THREADS + threadIdx.x; at < chunks;
         at += (size_t)gridDim.x * THREADS) {
        const spot s = spot_of(at, p.out_height, p.out_width, p.padded / EIGHT);
        float best[EIGHT], v[EIGHT];
        unsigned place[EIGHT] = {};
        bool found = false;
        for (unsigned r = 0; r < p.rows; r++)
            for (unsigned c = 0; c < p.columns; c++) {
                const unsigned i = s.i * p.stride + r - p.pad,
                               j = s.j * p.stride + c - p.pad; /* wraps if outside */
                if (i >= p.height || j >= p.width)
                    continue;
                load_eight(x + inner(p, s, i, j), v);
#pragma unroll
                for (int k = 0; k < EIGHT; k++)
                    if (!found || v[k] > best[k]) {
                        best[k] = v[k];
                        place[k] = r * p.columns + c;
                    }
                found = true;
            }
        store_eight(y + at * EIGHT, best);
        uint2 bytes = make_uint2(0, 0);
#pragma unroll
        for (int k = 0; k < 4; k++) {
            bytes.x |= place[k] << 8 * k;
            bytes.y |= place[k + 4] << 8 * k;
        }
        *(uint2 *)(index + at * EIGHT) = bytes;
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

template <class T>
__global__ void max_gradient_kernel(const struct train_pool p, T *dx, const T *dy,
                                    const uint8_t *index, bool add, size_t chunks)
{
    for (size_t at = blockIdx.x * (size_t)THREADS + threadIdx.x; at < chunks;
         at += (size_t)gridDim.x * THREADS) {
        const spot s = spot_of(at, p.height, p.width, p.padded / EIGHT);
        unsigned i, i_end, j_first, j_end;
        float sum[EIGHT] = {}, g[EIGHT];
        covering(s.i, p.rows, p.stride, p.pad, p.out_height, &i, &i_end);
        covering(s.j, p.columns, p.stride, p.pad, p.out_width, &j_first, &j_end);
        for (; i < i_end; i++)
            for (unsigned j = j_first; j < j_end; j++) {
                const unsigned place =
                    (s.i + p.pad - i * p.stride) * p.columns + s.j + p.pad - j * p.stride;
                const uint2 bytes = *(const uint2 *)(index + outer(p, s, i, j));
                load_eight(dy + outer(p, s, i, j), g);
#pragma unroll
                for (int k = 0; k < EIGHT; k++) {
                    const unsigned winner =
                        (k < 4 ? bytes.x >> 8 * k : bytes.y >> 8 * (k - 4)) & 255;
                    sum[k] += winner == place ? g[k] : 0;
                }
            }
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
        const unsigned rows = inside(s.i, p.rows, p.stride, p.pad, p.height, &i_first);
        const unsigned columns = inside(s.j, p.columns, p.stride, p.pad, p.width, &j_first);
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
        covering(s.i, p.rows, p.stride, p.pad, p.out_height, &i, &i_end);
        covering(s.j, p.columns, p.stride, p.pad, p.out_width, &j_first, &j_end);
        for (; i < i_end; i++)
            for (unsigned j = j_first; j < j_end; j++) {
                const float share =
                    1.0f / (float)(inside(i, p.rows, p.stride, p.pad, p.height, &unused) *
                                   inside(j, p.columns, p.stride, p.pad, p.width, &unused));
                load_eight(dy + outer(p, s, i, j), g);
#pragma unroll
                for (int k = 0; k < EIGHT; k++)
                    sum[k] = fmaf(g[k], share, sum[k]);
            }
        write_eight(dx + at * EIGHT, sum, add);
    }
}

size_t x_chunks(const struct train_pool *p)
{
    return p->batch * p->height * p->width * (p->padded / EIGHT);
}

size_t y_chunks(const struct train_pool *p)
{
    return p->batch * p->out_height * p->out_width * (p->padded / EIGHT);
}

template <class T>
int max_run(const struct train_gpu *gpu, const struct train_pool *p, void *y, uint8_t *index,
            const void *x)
{
    const size_t chunks = y_chunks(p);
    max_kernel<T><<<blocks_for(gpu, chunks, THREADS, 16), THREADS, 0, stream_of(gpu)>>>(
        *p, (T *)y, index, (const T *)x, chunks);
    return cudaGetLastError();
}

template <class T>
int max_gradient_run(const struct train_gpu *gpu, const struct train_pool *p, void *dx,
                     const void *dy, const uint8_t *index, bool add)
{
    const size_t chunks = x_chunks(p);
    max_gradient_kernel<T><<<blocks_for(gpu, chunks, THREADS, 16), THREADS, 0, stream_of(gpu)>>>(
        *p, (T *)dx, (const T *)dy, index, add, chunks);
    return cudaGetLastError();
}

template <class T>
int average_run(const struct train_gpu *gpu, const struct train_pool *p, void *y, const void *x)
{
    const size_t chunks = y_chunks(p);
    average_kernel<T><<<blocks_for(gpu, chunks, THREADS, 16), THREADS, 0, stream_of(gpu)>>>(
        *p, (T *)y, (const T *)x, chunks);
    return cudaGetLastError();
}

template <class T>
int average_gradient_run(const struct train_gpu *gpu, const struct train_pool *p, void *dx,
                         const void *dy, bool add)
{
    const size_t chunks = x_chunks(p);
    average_gradient_kernel<T>
        <<<blocks_for(gpu, chunks, THREADS, 16), THREADS, 0, stream_of(gpu)>>>(
            *p, (T *)dx, (const T *)dy, add, chunks);
    return cudaGetLastError();
}

template <class T> int load()
{
    cudaFuncAttributes attributes;
    int error = cudaFuncGetAttributes(&attributes, max_kernel<T>);
    if (error == cudaSuccess)
        error = cudaFuncGetAttributes(&attributes, max_gradient_kernel<T>);
    if (error == cudaSuccess)
        error = cudaFuncGetAttributes(&attributes, average_kernel<T>);
    return error == cudaSuccess ? cudaFuncGetAttributes(&attributes, average_gradient_kernel<T>)
                                : error;
}

} // namespace

int train_max_pool(const struct train_gpu *gpu, const struct train_pool *pool, void *y,
                   uint8_t *index, const void *x)
{
    return TYPED(pool->type, max_run, gpu, pool, y, index, x);
}

int train_max_pool_gradient(const struct train_gpu *gpu, const struct train_pool *pool, void *dx,
                            const void *dy, const uint8_t *index, bool add)
{
    return TYPED(pool->type, max_gradient_run, gpu, pool, dx, dy, index, add);
}

int train_average_pool(const struct train_gpu *gpu, const struct train_pool *pool, void *y,
                       const void *x)
{
    return TYPED(pool->type, average_run, gpu, pool, y, x);
}

int train_average_pool_gradient(const struct train_gpu *gpu, const struct train_pool *pool,
                                void *dx, const void *dy, bool add)
{
    return TYPED(pool->type, average_gradient_run, gpu, pool, dx, dy, add);
}

int train_pool_load(void)
{
    int error = cudaSuccess;
    for (int type : {ALNICO_FLOAT32, ALNICO_BFLOAT16, ALNICO_FLOAT16})
        if (error == cudaSuccess)
            error = TYPED(type, load);
    return error;
}
