/* Products of matrices by a library, which the studies compare with: OpenBLAS on the CPU, cuBLAS on a
 * GPU. On a device's stream; main thread. */
#ifndef ALNICO_BENCHMARKS_STUDIES_BLAS_H
#define ALNICO_BENCHMARKS_STUDIES_BLAS_H

#include "benchmarks/studies/study.h"

struct blas;

/* Rows of float32, one after the other; `transposed` turns what stands there. */
struct matrix {
    float *at;
    bool transposed;
    size_t row; /* elements from one row to the next, as it stands */
};

/* c (rows x columns) = a (rows x depth) b (depth x columns); c is not transposed. */
struct product {
    struct matrix a, b, c;
    size_t rows, columns, depth;
};

/* Ends the study with 77 if the device's library is missing. The device outlives it. */
struct blas *blas_open(const struct study_device *device);
void blas_close(struct blas *blas);

void blas_multiply(struct blas *blas, const struct product *product);

/* The ways in which the library makes a product, cuBLASLt's kernels among them, as works for a race:
 * how many of BLAS_WAYS. They and the product live until the library is closed. */
enum { BLAS_WAYS = 33 };
int blas_works(struct blas *blas, const struct product *product,
               struct study_work works[BLAS_WAYS]);

/* The least time of some works that have run. */
double blas_best_us(const struct study_work *works, int count);

#endif
