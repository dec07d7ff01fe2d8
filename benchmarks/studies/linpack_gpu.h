/* Linpack on one GPU, by cuBLAS and, for panels and as what it is compared with, cuSOLVER. Main
 * thread. */
#ifndef ALNICO_BENCHMARKS_STUDIES_LINPACK_GPU_H
#define ALNICO_BENCHMARKS_STUDIES_LINPACK_GPU_H

#include "benchmarks/studies/study.h"

struct linpack_gpu;

/* [A | b]: size x (size + 1) numbers of the host, column by column, which are copied. Ends the study
 * with 77 if a library is missing. */
struct linpack_gpu *linpack_gpu_open(const struct study_device *device, const double *matrix,
                                     int size);
void linpack_gpu_close(struct linpack_gpu *gpu);

/* Seconds of solving A x = b in blocks; block = size: all is one panel, cuSOLVER's. */
double linpack_gpu_run(struct linpack_gpu *gpu, int block, double *x);

#endif
