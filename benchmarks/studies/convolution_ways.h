/*
 * A convolution of stride 1, padded so that the image keeps its size, in three ways beside plain
 * loops in float64: a product of matrices (im2col), transforms by FFTW, and Winograd's F(2x2, 3x3).
 * Images are [image][channel][row][column], weights [filter][channel][row][column]. One thread.
 */
#ifndef ALNICO_BENCHMARKS_STUDIES_CONVOLUTION_WAYS_H
#define ALNICO_BENCHMARKS_STUDIES_CONVOLUTION_WAYS_H

#include <stddef.h>

struct shape {
    size_t images, channels, filters, side, window; /* window: odd */
};

/* A way's own memory; freed by its function. */
struct way_memory;

struct convolution_way {
    const char *name;
    size_t window; /* the only one that it takes; 0: any */
    struct way_memory *(*open)(const struct shape *shape);
    void (*close)(struct way_memory *memory);
    /* y = x * w; what depends on w only is made anew, since in training w changes. */
    void (*run)(struct way_memory *memory, const float *x, const float *w, float *y);
};

extern const struct convolution_way way_im2col, way_fft, way_winograd;

/* One number of y in float64. */
double convolution_exact(const struct shape *shape, const float *x, const float *w, size_t place);

/* Products of numbers for each 2 x 2 of y, a channel and a filter: plainly, and by Winograd. */
enum { PLAIN_PRODUCTS = 36, WINOGRAD_PRODUCTS = 16 };

#endif
