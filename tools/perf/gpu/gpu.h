/* The kernels of alnico-perf: inputs, checks and load, written in gpu/check.cu. All enqueue on the
 * stream and return; the caller checks what they return, a cudaError_t. Memory is the current
 * device's. */
#ifndef ALNICO_TOOLS_PERF_GPU_GPU_H
#define ALNICO_TOOLS_PERF_GPU_GPU_H

#include "tools/perf/check.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { GPU_POISON = 0xA5 }; /* every byte of a guard */

/* The findings of a check, in device memory: zero it, but `first` to all ones, before. */
struct gpu_findings {
    unsigned long long wrong, first; /* wrong elements, and the index of the first */
    unsigned long long hash;         /* of the result's bits */
    unsigned long long overruns;     /* bytes of guards that are not GPU_POISON any more */
};

/* A rank's first `count` inputs, into each of `slots` places `stride` bytes apart. */
cudaError_t gpu_fill(const struct check *check, int rank, void *out, size_t count, size_t stride,
                     int slots, cudaStream_t stream);

/* Adds the wrong ones of `count` elements from result[at] on, which the check is about; `first`
 * counts from `result`. */
cudaError_t gpu_compare(const struct check *check, const void *result, size_t at, size_t count,
                        struct gpu_findings *findings, cudaStream_t stream);

/* Adds a hash of `bytes` bytes; `memory` is aligned to 8. */
cudaError_t gpu_hash(const void *memory, size_t bytes, struct gpu_findings *findings,
                     cudaStream_t stream);

/* Adds the bytes that are not GPU_POISON. */
cudaError_t gpu_count_overruns(const void *guard, size_t bytes, struct gpu_findings *findings,
                               cudaStream_t stream);

/* A kernel without work; and one that keeps `blocks` blocks of 256 threads busy in registers for so
 * many steps. */
cudaError_t gpu_launch_empty(cudaStream_t stream);
cudaError_t gpu_launch_compute(int blocks, long steps, cudaStream_t stream);

#ifdef __cplusplus
}
#endif

#endif
