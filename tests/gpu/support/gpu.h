/* What tests on GPUs share: a test program calls gpu_require first, and is skipped where there is
 * none. */
#ifndef ALNICO_TESTS_GPU_SUPPORT_GPU_H
#define ALNICO_TESTS_GPU_SUPPORT_GPU_H

#include <alnico/alnico.h>

#include "device/device.h"

#include <cuda_runtime_api.h>

#include <stdio.h>
#include <stdlib.h>

enum { GPU_SKIPPED = 77 };

/* Number of GPUs that this process sees. */
static inline int gpu_count(void)
{
    int count = 0;
    return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

/* Ends the process as skipped, with the reason, unless there are so many GPUs. Returns how many
 * there are. */
static inline int gpu_require(int least)
{
    if (!device_find(ALNICO_DEVICE_CUDA)) {
        printf("skipped: %s\n", alnico_error_detail());
        exit(GPU_SKIPPED);
    }
    if (gpu_count() < least) {
        printf("skipped: needs %d GPUs, and there are %d\n", least, gpu_count());
        exit(GPU_SKIPPED);
    }
    return gpu_count();
}

/* Ends the process with the place and CUDA's reason unless the call succeeds. */
#define GPU(call) gpu_check((call), #call, __FILE__, __LINE__)
static inline void gpu_check(cudaError_t error, const char *call, const char *file, int line)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s:%d: %s: %s: %s\n", file, line, call, cudaGetErrorName(error),
            cudaGetErrorString(error));
    exit(EXIT_FAILURE);
}

#endif
