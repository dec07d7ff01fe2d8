/* Memory of GPUs, and of the host that they reach. */
#include "device/cuda_parts.h"

#include "device/cuda_driver.h"

#include <stdio.h>

/* Even for no bytes there is an address. */
static alnico_status_t allocated(cudaError_t error, size_t bytes, const char *what, void **out)
{
    if (error == cudaSuccess)
        return ALNICO_SUCCESS;
    *out = NULL;
    char text[96];
    snprintf(text, sizeof text, "cannot allocate %zu bytes of %s", bytes, what);
    return cuda_status(error, text);
}

alnico_status_t cuda_alloc(size_t bytes, void **out)
{
    cudaError_t error;
    *out = NULL;
    RELAXED(error, cudaMalloc(out, bytes ? bytes : 1));
    return allocated(error, bytes, "GPU memory", out);
}

void cuda_free(void *memory)
{
    cudaError_t error;
    RELAXED(error, cudaFree(memory));
    (void)error;
}

alnico_status_t cuda_memory(size_t *available, size_t *total)
{
    return cuda_status(cudaMemGetInfo(available, total), "cudaMemGetInfo");
}

alnico_status_t cuda_pinned_alloc(size_t bytes, void **out)
{
    cudaError_t error;
    *out = NULL;
    RELAXED(error,
            cudaHostAlloc(out, bytes ? bytes : 1, cudaHostAllocPortable | cudaHostAllocMapped));
    return allocated(error, bytes, "pinned memory", out);
}

void cuda_pinned_free(void *memory)
{
    cudaError_t error;
    RELAXED(error, cudaFreeHost(memory));
    (void)error;
}
