/*
 * A convolution of stride 1, padded so that the image keeps its size, in three ways beside plain
 * loops in float64: a product of matrices (im2col), transforms, and Winograd's F(2x2, 3x3). Images
 * are [image][channel][row][column], weights [filter][channel][row][column]. Main thread.
 */
#ifndef ALNICO_BENCHMARKS_STUDIES_CONVOLUTIONS_WAYS_H
#define ALNICO_BENCHMARKS_STUDIES_CONVOLUTIONS_WAYS_H

#include <stddef.h>

struct study_device;

struct shape {
    size_t images, channels, filters, side, window; /* window: odd */
};

/* Tiles of 2 x 2 of y in a channel of all images, which Winograd takes one by one. */
static inline size_t shape_tiles(const struct shape *shape)
{
    const size_t side = (shape->side + 1) / 2;
    return shape->images * side * side;
}

/* A way's own memory; freed by its function. */
struct way_memory;

struct convolution_way {
    const char *name;
    size_t window; /* the only one that it takes; 0: any */
    struct way_memory *(*open)(const struct study_device *device, const struct shape *shape);
    void (*close)(struct way_memory *memory);
    /* y = x * w, memory of the device; what depends on w only is made anew, since in training w changes. */
    void (*run)(struct way_memory *memory, const float *x, const float *w, float *y);
};

/* On the CPU by OpenBLAS and FFTW, on a GPU by cuBLAS and cuFFT, without which the first to be opened
 * ends the study with 77. */
enum { CONVOLUTION_WAYS = 3 };
extern const struct convolution_way convolution_ways_cpu[CONVOLUTION_WAYS],
    convolution_ways_gpu[CONVOLUTION_WAYS];

/* The side of transforms: long enough for the window, and a product of 2, 3 and 5. */
size_t convolution_fft_side(const struct shape *shape);

/* One number of y in float64. */
double convolution_exact(const struct shape *shape, const float *x, const float *w, size_t place);

#endif
