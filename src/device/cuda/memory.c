/* Memory of GPUs. Small blocks, as each communicator has, are freed later (device/deferred_free.h),
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
struct block {
    struct deferred later; /* first */
    struct block *next;
    void *memory;
};

static struct {
    pthread_mutex_t lock;
    struct block *first;
} blocks = {.lock = PTHREAD_MUTEX_INITIALIZER};

static void release(struct deferred *item)
{
    cudaError_t error;
    RELAXED(error, cudaFree(((struct block *)item)->memory));
    (void)error;
    free(item);
}

static void remember(struct block *block, void *memory, size_t bytes)
{
    *block = (struct block){.later = {.bytes = bytes, .release = release}, .memory = memory};
    pthread_mutex_lock(&blocks.lock);
    block->next = blocks.first;
    blocks.first = block;
    pthread_mutex_unlock(&blocks.lock);
}

/* NULL: it is large. */
static struct block *forget(const void *memory)
{
    pthread_mutex_lock(&blocks.lock);
    struct block **link = &blocks.first;
    while (*link && (*link)->memory != memory)
        link = &(*link)->next;
    struct block *block = *link;
    if (block)
        *link = block->next;
    pthread_mutex_unlock(&blocks.lock);
    return block;
}

/* Even for no bytes there is an address. */
alnico_status_t cuda_alloc(size_t bytes, void **out)
{
    cudaError_t error;
    char text[96];
    bool little = bytes <= LITTLE_BYTES;
    struct block *block = little ? malloc(sizeof *block) : NULL;
    *out = NULL;
    if (little && !block)
        return error_set(ALNICO_ERROR_MEMORY, "no memory");
    RELAXED(error, cudaMalloc(out, bytes ? bytes : 1));
    if (error == cudaErrorMemoryAllocation) {
        cudaGetLastError();
        deferred_run();
        RELAXED(error, cudaMalloc(out, bytes ? bytes : 1));
    }
    if (error == cudaSuccess) {
        if (little)
            remember(block, *out, bytes);
        return ALNICO_SUCCESS;
    }
    free(block);
    *out = NULL;
    snprintf(text, sizeof text, "cannot allocate %zu bytes of GPU memory", bytes);
    return cuda_status(error, text);
}

void cuda_free(void *memory)
{
    struct block *block = memory ? forget(memory) : NULL;
    cudaError_t error;
    if (block) {
        deferred_free(&block->later);
        return;
    }
    RELAXED(error, cudaFree(memory));
    (void)error;
}

alnico_status_t cuda_memory(size_t *available, size_t *total)
{
    return cuda_status(cudaMemGetInfo(available, total), "cudaMemGetInfo");
}
