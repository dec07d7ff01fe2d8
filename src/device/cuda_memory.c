/* Memory of GPUs. */
#include "device/cuda_parts.h"

#include "device/cuda_driver.h"

#include <stdio.h>

/* Even for no bytes there is an address. */
alnico_status_t cuda_alloc(size_t bytes, void **out)
{
    cudaError_t error;
    char text[96];
    RELAXED(error, cudaMalloc(out, bytes ? bytes : 1));
    if (error == cudaSuccess)
        return ALNICO_SUCCESS;
    *out = NULL;
    snprintf(text, sizeof text, "cannot allocate %zu bytes of GPU memory", bytes);
    return cuda_status(error, text);
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
