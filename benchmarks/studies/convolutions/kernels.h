/* Kernels of the ways to convolve on a GPU: what lies between the products and transforms of the
 * libraries. On the stream; each returns a cudaError_t. Layouts: ways.h. */
#ifndef ALNICO_BENCHMARKS_STUDIES_CONVOLUTIONS_KERNELS_H
#define ALNICO_BENCHMARKS_STUDIES_CONVOLUTIONS_KERNELS_H

#include "benchmarks/studies/convolutions/ways.h"

#ifdef __cplusplus
extern "C" {
#endif

/* columns: [image][channel, row and column of the window][pixel]; zeros outside the image. */
int convolution_columns(const struct shape *shape, const float *x, float *columns, void *stream);

/* Planes of side x side into those of rows x rows, zeros behind; `middle` numbers of each row and
 * column go around the edge. */
int convolution_pad(const float *from, size_t planes, size_t side, size_t middle, size_t rows,
                    float *to, void *stream);

/* The first side x side of planes of rows x rows. */
int convolution_crop(const float *from, size_t planes, size_t rows, size_t side, float *to,
                     void *stream);

/* u: [product][filter][channel]; v: [product][channel][image][tile]; m: [product][filter][image]
 * [tile]. */
int convolution_winograd_weights(const struct shape *shape, const float *w, float *u, void *stream);
int convolution_winograd_pixels(const struct shape *shape, const float *x, float *v, void *stream);
int convolution_winograd_results(const struct shape *shape, const float *m, float *y, void *stream);

#ifdef __cplusplus
}
#endif

#endif
