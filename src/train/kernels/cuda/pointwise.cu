/*
 * Additions, ReLUs and sigmoids by themselves, and how float32 tensors, or images of bytes, become
 * padded or folded ones and back. Eight elements a thread where the tensors are activations; what
 * is rare takes one, with the type as a switch.
 */
#include "train/kernels/cuda/vector.cuh"

namespace
{

constexpr unsigned THREADS = 256;

template <class T>
__global__ void add_kernel(T *y, const T *a, const T *b, bool relu, size_t chunks)
{
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < chunks;
         i += (size_t)gridDim.x * THREADS) {
        float sum[EIGHT], other[EIGHT];
        load_eight(a + i * EIGHT, sum);
        if (b)
            load_eight(b + i * EIGHT, other);
#pragma unroll
        for (int k = 0; k < EIGHT; k++) {
            if (b)
                sum[k] += other[k];
            if (relu && sum[k] <= 0)
                sum[k] = 0;
        }
        store_eight(y + i * EIGHT, sum);
    }
}

template <class T>
__global__ void gate_kernel(T *dx, const T *dy, const T *y, bool add, size_t chunks)
{
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < chunks;
         i += (size_t)gridDim.x * THREADS) {
        float g[EIGHT], value[EIGHT];
        load_eight(dy + i * EIGHT, g);
        if (y) {
            load_eight(y + i * EIGHT, value);
#pragma unroll
            for (int k = 0; k < EIGHT; k++)
                g[k] = value[k] > 0 ? g[k] : 0;
        }
        write_eight(dx + i * EIGHT, g, add);
    }
}

template <class T>
__global__ void sigmoid_kernel(T *y, const T *x, unsigned channels, unsigned groups, size_t chunks)
{
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < chunks;
         i += (size_t)gridDim.x * THREADS) {
        float v[EIGHT];
        unsigned group;
        divide(i, groups, &group);
        load_eight(x + i * EIGHT, v);
#pragma unroll
        for (int k = 0; k < EIGHT; k++)
            v[k] = group * EIGHT + k < channels ? 1 / (1 + expf(-v[k])) : 0;
        store_eight(y + i * EIGHT, v);
    }
}

template <class T>
__global__ void sigmoid_gradient_kernel(T *dx, const T *dy, const T *y, bool add, size_t chunks)
{
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < chunks;
         i += (size_t)gridDim.x * THREADS) {
        float g[EIGHT], value[EIGHT];
        load_eight(dy + i * EIGHT, g);
        load_eight(y + i * EIGHT, value);
#pragma unroll
        for (int k = 0; k < EIGHT; k++)
            g[k] *= value[k] * (1 - value[k]);
        write_eight(dx + i * EIGHT, g, add);
    }
}

/* Which element of the plain tensor stands at place k of pixel (y, x) of image n; false:
 * padding. */
__device__ bool plain_at(const struct train_fold &f, size_t n, size_t y, size_t x, unsigned k,
                         size_t *index)
{
    const unsigned c = k % f.channels, square = k / f.channels, d = square % f.fold,
                   b = square / f.fold;
    const size_t row = f.fold * y + b, column = f.fold * x + d;
    if (b >= f.fold || n >= f.outer || row < f.before_rows || column < f.before_columns ||
        row - f.before_rows >= f.height || column - f.before_columns >= f.width)
        return false;
    *index =
        ((n * f.height + row - f.before_rows) * f.width + column - f.before_columns) * f.channels +
        c;
    return true;
}

constexpr unsigned LEVELS = 256;

/* The values of bytes, in a block's shared memory; for float32 nothing. Every thread calls. */
template <class S> __device__ void levels_read(const struct train_fold &f, float *levels)
{
    if constexpr (sizeof(S) == 1) {
        for (unsigned i = threadIdx.x; i < LEVELS; i += THREADS)
            levels[i] = f.levels[i];
        __syncthreads();
    }
}

__device__ float number_of(const float *, float number)
{
    return number;
}

__device__ float number_of(const float *levels, uint8_t byte)
{
    return levels[byte];
}

/* A thread makes up to eight neighbouring numbers of one pixel. */
template <class T, class S>
__global__ void fold_kernel(const struct train_fold f, T *dst, const S *src, size_t chunks)
{
    __shared__ float levels[LEVELS];
    levels_read<S>(f, levels);
    const unsigned each = f.padded % EIGHT == 0 ? EIGHT : 4, groups = f.padded / each;
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < chunks;
         i += (size_t)gridDim.x * THREADS) {
        const unsigned first = (unsigned)(i % groups) * each;
        size_t pixel = i / groups, index;
        const size_t x = pixel % f.out_width, y = pixel / f.out_width % f.out_height,
                     n = pixel / f.out_width / f.out_height;
        float v[EIGHT];
#pragma unroll
        for (unsigned k = 0; k < EIGHT; k++)
            v[k] = k < each && plain_at(f, n, y, x, first + k, &index)
                       ? number_of(levels, src[index])
                       : 0;
        T *to = dst + i * each;
        if (each == EIGHT)
            store_eight(to, v);
        else
            for (unsigned k = 0; k < each; k++)
                store_one(to + k, v[k]);
    }
}

/* Channels of three colours in squares, padded. */
__host__ __device__ constexpr unsigned colours_padded(unsigned fold)
{
    return (3 * fold * fold + EIGHT - 1) / EIGHT * EIGHT;
}

/* fold_kernel for images of three colours: a thread makes a pixel of dst, which is 3 * FOLD
 * neighbouring numbers of FOLD rows. */
template <class T, class S, unsigned FOLD>
__global__ void fold_colours_kernel(const struct train_fold f, T *dst, const S *src,
                                    unsigned pixels)
{
    constexpr unsigned PADDED = colours_padded(FOLD);
    __shared__ float levels[LEVELS];
    levels_read<S>(f, levels);
    const unsigned width = (unsigned)f.out_width, height = (unsigned)f.out_height;
    for (unsigned i = blockIdx.x * THREADS + threadIdx.x; i < pixels; i += gridDim.x * THREADS) {
        const unsigned x = i % width, y = i / width % height, n = i / width / height;
        float v[PADDED] = {};
#pragma unroll
        for (unsigned b = 0; b < FOLD; b++)
#pragma unroll
            for (unsigned d = 0; d < FOLD; d++) {
                const unsigned row = FOLD * y + b - f.before_rows,
                               column = FOLD * x + d - f.before_columns;
                if (n >= f.outer || row >= f.height || column >= f.width) /* below 0 wraps */
                    continue;
                const S *from = src + (((size_t)n * f.height + row) * f.width + column) * 3;
#pragma unroll
                for (unsigned c = 0; c < 3; c++)
                    v[(FOLD * b + d) * 3 + c] = number_of(levels, from[c]);
            }
#pragma unroll
        for (unsigned at = 0; at < PADDED; at += EIGHT)
            store_eight(dst + (size_t)i * PADDED + at, v + at);
    }
}

/* A block makes a row of dst in pieces of 16 bytes, `vectors` of a pixel of src and `each` of one
 * of dst, so that neighbouring threads write neighbouring pieces. */
__global__ void im2col_kernel(uint4 *__restrict__ dst, const uint4 *__restrict__ src, size_t rows,
                              unsigned width, unsigned out_width, unsigned vectors, unsigned each)
{
    for (size_t row = blockIdx.x; row < rows; row += gridDim.x) {
        const uint4 *__restrict__ from = src + row * width * vectors;
        uint4 *__restrict__ to = dst + row * out_width * each;
        for (unsigned v = threadIdx.x; v < each; v += blockDim.x)
#pragma unroll 4
            for (unsigned x = threadIdx.y; x < out_width; x += blockDim.y)
                to[x * each + v] = from[x * vectors + v];
    }
}

/* A block makes a row of dst, or of those that src has if it adds: `each` chunks of eight a pixel,
 * and `step` pixels of the row further for each one that is made. */
template <class T>
__global__ void strided_kernel(const struct train_strided s, T *__restrict__ dst,
                               const T *__restrict__ src, bool add, unsigned rows, unsigned each)
{
    const unsigned step = add ? s.stride : 1;
    const unsigned height = (unsigned)(add ? s.out_height : s.height),
                   width = (unsigned)(add ? s.out_width : s.width);
    for (unsigned row = blockIdx.x; row < rows; row += gridDim.x) {
        const unsigned n = row / height, y = row % height * step;
        T *__restrict__ to = dst + ((size_t)n * s.height + y) * s.width * s.padded;
        const T *__restrict__ from =
            src + ((size_t)n * s.out_height + y / s.stride) * s.out_width * s.padded;
        for (unsigned i = threadIdx.x; i < width * each; i += THREADS) {
            const unsigned x = i / each * step, c = i % each * EIGHT;
            float v[EIGHT] = {};
            if (y % s.stride == 0 && x % s.stride == 0)
                load_eight(from + (size_t)(x / s.stride) * s.padded + c, v);
            write_eight(to + (size_t)x * s.padded + c, v, add);
        }
    }
}

/* A thread for every element of dst. */
__global__ void unfold_kernel(const struct train_fold f, void *dst, int gradient_type,
                              const void *src)
{
    const size_t count = f.outer * f.height * f.width * f.channels;
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < count;
         i += (size_t)gridDim.x * THREADS) {
        const unsigned c = (unsigned)(i % f.channels);
        const size_t pixel = i / f.channels, column = pixel % f.width + f.before_columns,
                     row = pixel / f.width % f.height + f.before_rows,
                     n = pixel / f.width / f.height;
        const size_t place = (n * f.out_height + row / f.fold) * f.out_width + column / f.fold;
        const size_t k = (row % f.fold * f.fold + column % f.fold) * f.channels + c;
        store_any(dst, gradient_type, i, load_any(src, f.type, place * f.padded + k));
    }
}

__global__ void noise_kernel(void *dst, int type, size_t count)
{
    for (size_t i = blockIdx.x * (size_t)THREADS + threadIdx.x; i < count;
         i += (size_t)gridDim.x * THREADS) {
        uint32_t bits = (uint32_t)i * 2654435761u + 12345u;
        bits = (bits ^ bits >> 15) * 2246822519u;
        bits ^= bits >> 13;
        store_any(dst, type, i, (float)(int32_t)bits / 2147483648.0f);
    }
}

} // namespace

int train_add(const struct train_gpu *gpu, void *y, const void *a, const void *b, bool relu,
              size_t count, int type)
{
    const size_t chunks = count / EIGHT;
    return typed(type, [&](auto number) {
        using T = decltype(number);
        return launch(gpu, add_kernel<T>, blocks_for(gpu, chunks, THREADS, 8), THREADS, (T *)y,
                      (const T *)a, (const T *)b, relu, chunks);
    });
}

int train_gate(const struct train_gpu *gpu, void *dx, const void *dy, const void *y, bool add,
               size_t count, int type)
{
    const size_t chunks = count / EIGHT;
    return typed(type, [&](auto number) {
        using T = decltype(number);
        return launch(gpu, gate_kernel<T>, blocks_for(gpu, chunks, THREADS, 8), THREADS, (T *)dx,
                      (const T *)dy, (const T *)y, add, chunks);
    });
}

int train_sigmoid(const struct train_gpu *gpu, void *y, const void *x, size_t rows,
                  unsigned channels, unsigned padded, int type)
{
    const size_t chunks = rows * (padded / EIGHT);
    return typed(type, [&](auto number) {
        using T = decltype(number);
        return launch(gpu, sigmoid_kernel<T>, blocks_for(gpu, chunks, THREADS, 8), THREADS, (T *)y,
                      (const T *)x, channels, padded / EIGHT, chunks);
    });
}

int train_sigmoid_gradient(const struct train_gpu *gpu, void *dx, const void *dy, const void *y,
                           bool add, size_t count, int type)
{
    const size_t chunks = count / EIGHT;
    return typed(type, [&](auto number) {
        using T = decltype(number);
        return launch(gpu, sigmoid_gradient_kernel<T>, blocks_for(gpu, chunks, THREADS, 8), THREADS,
                      (T *)dx, (const T *)dy, (const T *)y, add, chunks);
    });
}

template <class T, class S>
static int fold_launch(const struct train_gpu *gpu, const struct train_fold &f, T *dst,
                       const S *src)
{
    const unsigned each = f.padded % EIGHT == 0 ? EIGHT : 4;
    const size_t pixels = f.out_outer * f.out_height * f.out_width;
    const size_t chunks = pixels * (f.padded / each);
    if (f.channels == 3 && f.padded == colours_padded(f.fold) && pixels < 1u << 31)
        if (f.fold == 2 || f.fold == 4)
            return launch(
                gpu, f.fold == 2 ? fold_colours_kernel<T, S, 2> : fold_colours_kernel<T, S, 4>,
                blocks_for(gpu, pixels, THREADS, 16), THREADS, f, dst, src, (unsigned)pixels);
    return launch(gpu, fold_kernel<T, S>, blocks_for(gpu, chunks, THREADS, 16), THREADS, f, dst,
                  src, chunks);
}

int train_fold(const struct train_gpu *gpu, const struct train_fold *f, void *dst, const void *src)
{
    return typed(f->type, [&](auto number) {
        using T = decltype(number);
        return f->levels ? fold_launch(gpu, *f, (T *)dst, (const uint8_t *)src)
                         : fold_launch(gpu, *f, (T *)dst, (const float *)src);
    });
}

int train_unfold(const struct train_gpu *gpu, const struct train_fold *fold, void *dst,
                 int gradient_type, const void *src)
{
    const size_t count = fold->outer * fold->height * fold->width * fold->channels;
    return launch(gpu, unfold_kernel, blocks_for(gpu, count, THREADS, 8), THREADS, *fold, dst,
                  gradient_type, src);
}

int train_im2col(const struct train_gpu *gpu, const struct train_im2col *r, void *dst,
                 const void *src)
{
    constexpr unsigned BLOCK = 128;
    const unsigned vectors = r->padded * (r->type == ALNICO_FLOAT32 ? 4 : 2) / sizeof(uint4);
    const unsigned each = r->columns * vectors, across = each < BLOCK ? each : BLOCK;
    return launch(gpu, im2col_kernel, blocks_for(gpu, r->rows, 1, 16), dim3(across, BLOCK / across),
                  (uint4 *)dst, (const uint4 *)src, r->rows, (unsigned)r->width,
                  (unsigned)r->out_width, vectors, each);
}

int train_strided(const struct train_gpu *gpu, const struct train_strided *s, void *dst,
                  const void *src, bool add)
{
    const unsigned rows = (unsigned)(s->batch * (add ? s->out_height : s->height));
    return typed(s->type, [&](auto number) {
        using T = decltype(number);
        return launch(gpu, strided_kernel<T>, blocks_for(gpu, rows, 1, 16), THREADS, *s, (T *)dst,
                      (const T *)src, add, rows, s->padded / EIGHT);
    });
}

int train_noise(const struct train_gpu *gpu, void *dst, size_t count, int type)
{
    return launch(gpu, noise_kernel, blocks_for(gpu, count, THREADS, 8), THREADS, dst, type, count);
}

int train_pointwise_load(void)
{
    return load_kernels(unfold_kernel, im2col_kernel, EACH_TYPE(add_kernel), EACH_TYPE(gate_kernel),
                        EACH_TYPE(sigmoid_kernel), EACH_TYPE(sigmoid_gradient_kernel),
                        EACH_TYPE(strided_kernel), EACH_TYPE_AND(fold_kernel, float),
                        EACH_TYPE_AND(fold_kernel, uint8_t),
                        EACH_TYPE_AND(fold_colours_kernel, float, 2),
                        EACH_TYPE_AND(fold_colours_kernel, uint8_t, 2),
                        EACH_TYPE_AND(fold_colours_kernel, float, 4),
                        EACH_TYPE_AND(fold_colours_kernel, uint8_t, 4));
}
