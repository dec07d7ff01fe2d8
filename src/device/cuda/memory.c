/* Memory of GPUs. Small allocations, as each communicator has, are freed later (device/deferred_free.h),
 * or when there is no more to be had; large ones at once. */
#include "device/cuda/parts.h"

#include "base/status.h"
#include "device/cuda/driver.h"
#include "device/deferred_free.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

enum { LITTLE_BYTES = 64 << 10 };

/* Made with the memory, so that giving it back cannot fail. */
struct allocation {
    struct deferred later; /* first */
    struct allocation *next;
    void *memory;
};

static struct {
    pthread_mutex_t lock;
    struct allocation *first;
} allocations = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void release(struct deferred *item)
{
    cudaError_t error;
    RELAXED(error, cudaFree(((struct allocation *)item)->memory));
    (void)error;
    free(item);
}

static void remember(struct allocation *allocation, void *memory, size_t bytes)
{
    *allocation =
        (struct allocation){.later = {.bytes = bytes, .release = release}, .memory = memory};
    pthread_mutex_lock(&allocations.lock);
    allocation->next = allocations.first;
    allocations.first = allocation;
    pthread_mutex_unlock(&allocations.lock);
}

/* NULL: it is large. */
static struct allocation *forget(const void *memory)
{
    pthread_mutex_lock(&allocations.lock);
    struct allocation **link = &allocations.first;
    while (*link && (*link)->memory != memory)
        link = &(*link)->next;
    struct allocation *allocation = *link;
    if (allocation)
        *link = allocation->next;
    pthread_mutex_unlock(&allocations.lock);
    return allocation;
}

/* Even for no bytes there is an address. */
alnico_status_t cuda_alloc(size_t bytes, void **out)
{
    cudaError_t error;
    char text[96];
    bool little = bytes <= LITTLE_BYTES;
    struct allocation *allocation = little ? malloc(sizeof *allocation) : NULL;
    *out = NULL;
    if (little && !allocation)
        return error_set(ALNICO_ERROR_MEMORY, "no memory");
    RELAXED(error, cudaMalloc(out, bytes ? bytes : 1));
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        deferred_run();
        RELAXED(error, cudaMalloc(out, bytes ? bytes : 1));
    }
    if (error == cudaSuccess) {
        if (little)
            remember(allocation, *out, bytes);
        return ALNICO_SUCCESS;
    }
    free(allocation);
    *out = NULL;
    snprintf(text, sizeof text, "cannot allocate %zu bytes of GPU memory", bytes);
    return cuda_status(error, text);
}

void cuda_free(void *memory)
{
    struct allocation *allocation = memory ? forget(memory) : NULL;
    cudaError_t error;
    if (allocation) {
        deferred_free(&allocation->later);
        return;
    }
    RELAXED(error, cudaFree(memory));
    (void)error;
}

alnico_status_t cuda_memory(size_t *available, size_t *total)
{
    return cuda_status(cudaMemGetInfo(available, total), "cudaMemGetInfo");
}
