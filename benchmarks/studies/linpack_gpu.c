/* See linpack_gpu.h. Everything is on the device's stream; only the clock waits for it. */
#include "benchmarks/studies/linpack_gpu.h"

#include <cublas_api.h>
#include <cusolverDn.h>
#include <stdlib.h>

/* cuBLAS is what cuSOLVER stands on. */
#define FUNCTIONS(F)                                                                               \
    F(cublasCreate_v2)                                                                             \
    F(cublasDestroy_v2)                                                                            \
    F(cublasSetStream_v2)                                                                          \
    F(cublasDtrsm_v2)                                                                              \
    F(cublasDgemm_v2)                                                                              \
    F(cusolverDnCreate)                                                                            \
    F(cusolverDnDestroy)                                                                           \
    F(cusolverDnSetStream)                                                                         \
    F(cusolverDnDgetrf_bufferSize)                                                                 \
    F(cusolverDnDgetrf)                                                                            \
    F(cusolverDnDlaswp)

struct linpack_gpu {
    const struct study_device *device;
    FUNCTIONS(STUDY_FUNCTION)
    cublasHandle_t cublas;
    cusolverDnHandle_t cusolver;
    int size, work_size;
    double *first, *matrix, *work; /* on the GPU; first: the matrix as it came */
    int *pivots, *info;
};

static void require(int error, const char *what)
{
    if (error)
        program_fail("%s failed with status %d", what, error);
}

static void library_find(struct linpack_gpu *gpu)
{
    static const char *const names[] = {"libcusolver.so.12", "libcusolver.so.11", NULL};
#define FIND(name) {#name, &gpu->name},
    const struct study_function functions[] = {FUNCTIONS(FIND)};
#undef FIND
    study_library(names, functions, sizeof functions / sizeof *functions);
}

struct linpack_gpu *linpack_gpu_open(const struct study_device *device, const double *matrix,
                                     int size)
{
    struct linpack_gpu *gpu = study_memory(sizeof *gpu);
    const size_t bytes = (size_t)size * ((size_t)size + 1) * sizeof *matrix;
    gpu->device = device;
    gpu->size = size;
    library_find(gpu);
    require(gpu->cublasCreate_v2(&gpu->cublas), "cublasCreate");
    require(gpu->cublasSetStream_v2(gpu->cublas, device->stream), "cublasSetStream");
    require(gpu->cusolverDnCreate(&gpu->cusolver), "cusolverDnCreate");
    require(gpu->cusolverDnSetStream(gpu->cusolver, device->stream), "cusolverDnSetStream");
    gpu->first = study_put(device, matrix, bytes);
    gpu->matrix = study_put(device, NULL, bytes);
    gpu->pivots = study_put(device, NULL, (size_t)size * sizeof *gpu->pivots);
    gpu->info = study_put(device, NULL, sizeof *gpu->info);
    return gpu;
}

void linpack_gpu_close(struct linpack_gpu *gpu)
{
    void *const all[] = {gpu->first, gpu->matrix, gpu->work, gpu->pivots, gpu->info};
    gpu->cusolverDnDestroy(gpu->cusolver);
    gpu->cublasDestroy_v2(gpu->cublas);
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        gpu->device->ops->free(all[i]);
    free(gpu);
}

/* Factors a block of columns, and brings those behind it up to date. */
static void block_run(struct linpack_gpu *gpu, int first, int width)
{
    const int n = gpu->size, rows = n - first, columns = n + 1 - first - width;
    const double one = 1, minus = -1;
    double *panel = gpu->matrix + (size_t)first * (size_t)n + first,
           *upper = panel + (size_t)width * (size_t)n;
    require(gpu->cusolverDnDgetrf(gpu->cusolver, rows, width, panel, n, gpu->work, gpu->pivots,
                                  gpu->info),
            "cusolverDnDgetrf");
    require(gpu->cusolverDnDlaswp(gpu->cusolver, columns, upper, n, 1, width, gpu->pivots, 1),
            "cusolverDnDlaswp");
    require(gpu->cublasDtrsm_v2(gpu->cublas, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_LOWER, CUBLAS_OP_N,
                                CUBLAS_DIAG_UNIT, width, columns, &one, panel, n, upper, n),
            "cublasDtrsm");
    if (rows > width)
        require(gpu->cublasDgemm_v2(gpu->cublas, CUBLAS_OP_N, CUBLAS_OP_N, rows - width, columns,
                                    width, &minus, panel + width, n, upper, n, &one, upper + width,
                                    n),
                "cublasDgemm");
}

/* Memory for panels of so many columns. */
static void work_take(struct linpack_gpu *gpu, int columns)
{
    int size;
    require(gpu->cusolverDnDgetrf_bufferSize(gpu->cusolver, gpu->size, columns, gpu->matrix,
                                             gpu->size, &size),
            "cusolverDnDgetrf_bufferSize");
    if (size <= gpu->work_size)
        return;
    gpu->device->ops->free(gpu->work);
    gpu->work = study_put(gpu->device, NULL, (size_t)size * sizeof *gpu->work);
    gpu->work_size = size;
}

double linpack_gpu_run(struct linpack_gpu *gpu, int block, double *x)
{
    const struct device_ops *ops = gpu->device->ops;
    const int n = gpu->size;
    const size_t area = (size_t)n * (size_t)n;
    const double one = 1;
    work_take(gpu, block < n ? block : n);
    program_check(
        ops->copy(gpu->matrix, gpu->first, (area + (size_t)n) * sizeof *x, gpu->device->stream),
        "the matrix");
    program_check(ops->stream_synchronize(gpu->device->stream), "the matrix");
    const double begin = seconds_now();
    for (int first = 0; first < n; first += block)
        block_run(gpu, first, n - first < block ? n - first : block);
    require(gpu->cublasDtrsm_v2(gpu->cublas, CUBLAS_SIDE_LEFT, CUBLAS_FILL_MODE_UPPER, CUBLAS_OP_N,
                                CUBLAS_DIAG_NON_UNIT, n, 1, &one, gpu->matrix, n,
                                gpu->matrix + area, n),
            "cublasDtrsm");
    program_check(ops->stream_synchronize(gpu->device->stream), "solving");
    const double seconds = seconds_now() - begin;
    study_get(gpu->device, x, gpu->matrix + area, (size_t)n * sizeof *x);
    return seconds;
}
