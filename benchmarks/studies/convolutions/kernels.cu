/* See kernels.h. A thread a number, or a tile of Winograd's. */
#include "benchmarks/studies/convolutions/kernels.h"

#include "benchmarks/studies/convolutions/winograd.h"

#include <cuda_runtime.h>

namespace
{

constexpr unsigned THREADS = 256;

unsigned blocks_of(size_t count)
{
    return (unsigned)((count + THREADS - 1) / THREADS);
}

__device__ size_t index()
{
    return (size_t)blockIdx.x * THREADS + threadIdx.x;
}

/* A pixel of a plane; 0 outside. */
__device__ float pixel(const float *plane, int side, int row, int column)
{
    return row < 0 || column < 0 || row >= side || column >= side ? 0 : plane[row * side + column];
}

/* A block row a row of columns, and a block layer an image. */
__global__ void columns_kernel(struct shape s, const float *x, float *columns)
{
    const int side = (int)s.side, window = (int)s.window, place = (int)index(),
              offset = (int)(blockIdx.y % (s.window * s.window));
    const size_t pixels = s.side * s.side, channel = blockIdx.y / (s.window * s.window),
                 image = blockIdx.z;
    if (place < side * side)
        columns[(image * gridDim.y + blockIdx.y) * pixels + place] =
            pixel(x + (image * s.channels + channel) * pixels, side,
                  place / side + offset / window - window / 2,
                  place % side + offset % window - window / 2);
}

__global__ void pad_kernel(const float *from, size_t planes, int side, int middle, int rows,
                           float *to)
{
    const size_t i = index(), plane = i / ((size_t)rows * rows);
    const int place = (int)(i % ((size_t)rows * rows)), row = (place / rows + middle) % rows,
              column = (place % rows + middle) % rows;
    if (plane < planes)
        to[i] = pixel(from + plane * side * side, side, row, column);
}

__global__ void crop_kernel(const float *from, size_t planes, int rows, int side, float *to)
{
    const size_t i = index(), plane = i / ((size_t)side * side);
    const int place = (int)(i % ((size_t)side * side));
    if (plane < planes)
        to[i] = from[(plane * rows + place / side) * rows + place % side];
}

__global__ void weights_kernel(size_t count, const float *w, float *u)
{
    const size_t i = index();
    float all[WINOGRAD_PRODUCTS];
    if (i >= count)
        return;
    winograd_weights(w + 9 * i, all);
    for (int k = 0; k < WINOGRAD_PRODUCTS; k++)
        u[k * count + i] = all[k];
}

/* A tile: its plane, and its first row and column of y. */
struct tile {
    size_t plane;
    int row, column;
};

/* The one with index i of [plane][tile]. */
__device__ struct tile tile_at(const struct shape &s, size_t i)
{
    const size_t side = (s.side + 1) / 2, tile = i % (side * side);
    return {i / (side * side), 2 * (int)(tile / side), 2 * (int)(tile % side)};
}

__global__ void pixels_kernel(struct shape s, size_t count, const float *x, float *v)
{
    const size_t i = index();
    float d[16], all[WINOGRAD_PRODUCTS];
    if (i >= count)
        return;
    const struct tile tile = tile_at(s, i); /* planes: [channel][image] */
    const float *plane =
        x + (tile.plane % s.images * s.channels + tile.plane / s.images) * s.side * s.side;
    for (int k = 0; k < 16; k++)
        d[k] = pixel(plane, (int)s.side, tile.row + k / 4 - 1, tile.column + k % 4 - 1);
    winograd_pixels(d, all);
    for (int k = 0; k < WINOGRAD_PRODUCTS; k++)
        v[k * count + i] = all[k];
}

__global__ void results_kernel(struct shape s, size_t count, const float *m, float *y)
{
    const size_t i = index();
    float all[WINOGRAD_PRODUCTS], out[4];
    if (i >= count)
        return;
    const struct tile tile = tile_at(s, i); /* planes: [filter][image] */
    float *plane =
        y + (tile.plane % s.images * s.filters + tile.plane / s.images) * s.side * s.side;
    for (int k = 0; k < WINOGRAD_PRODUCTS; k++)
        all[k] = m[k * count + i];
    winograd_results(all, out);
    for (int k = 0; k < 4; k++)
        if (tile.row + k / 2 < (int)s.side && tile.column + k % 2 < (int)s.side)
            plane[(tile.row + k / 2) * s.side + tile.column + k % 2] = out[k];
}

} // namespace

int convolution_columns(const struct shape *s, const float *x, float *columns, void *stream)
{
    const dim3 grid(blocks_of(s->side * s->side), (unsigned)(s->channels * s->window * s->window),
                    (unsigned)s->images);
    columns_kernel<<<grid, THREADS, 0, (cudaStream_t)stream>>>(*s, x, columns);
    return cudaGetLastError();
}

int convolution_pad(const float *from, size_t planes, size_t side, size_t middle, size_t rows,
                    float *to, void *stream)
{
    pad_kernel<<<blocks_of(planes * rows * rows), THREADS, 0, (cudaStream_t)stream>>>(
        from, planes, (int)side, (int)middle, (int)rows, to);
    return cudaGetLastError();
}

int convolution_crop(const float *from, size_t planes, size_t rows, size_t side, float *to,
                     void *stream)
{
    crop_kernel<<<blocks_of(planes * side * side), THREADS, 0, (cudaStream_t)stream>>>(
        from, planes, (int)rows, (int)side, to);
    return cudaGetLastError();
}

int convolution_winograd_weights(const struct shape *s, const float *w, float *u, void *stream)
{
    const size_t count = s->filters * s->channels;
    weights_kernel<<<blocks_of(count), THREADS, 0, (cudaStream_t)stream>>>(count, w, u);
    return cudaGetLastError();
}

int convolution_winograd_pixels(const struct shape *s, const float *x, float *v, void *stream)
{
    const size_t count = s->channels * shape_tiles(s);
    pixels_kernel<<<blocks_of(count), THREADS, 0, (cudaStream_t)stream>>>(*s, count, x, v);
    return cudaGetLastError();
}

int convolution_winograd_results(const struct shape *s, const float *m, float *y, void *stream)
{
    const size_t count = s->filters * shape_tiles(s);
    results_kernel<<<blocks_of(count), THREADS, 0, (cudaStream_t)stream>>>(*s, count, m, y);
    return cudaGetLastError();
}
