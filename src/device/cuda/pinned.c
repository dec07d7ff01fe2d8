/*
 * Pinned host memory of the process. Before the driver frees some it waits for every kernel of the
 * current GPU, and meanwhile holds a lock that copies need: where a kernel waits for another rank
 * whose copy that is, neither would end. So nothing is freed, and what is given back is used again:
 * at most eight times as large as what is asked for, in blocks of a power of two behind a line with
 * their size. Any thread, under a lock that is not held while the driver allocates.
 */
#include "device/cuda/parts.h"

#include "base/status.h"
#include "device/cuda/driver.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>

enum {
    LINE_BYTES = 64,
    BINS = 64,
    BIN_FIRST = 12, /* 4 KB */
    BINS_ABOVE = 3, /* how much larger a block may be than it must */
};

struct block {
    _Alignas(LINE_BYTES) int bin;
    struct block *next; /* while it is free */
};

static struct {
    pthread_mutex_t lock;
    bool reserved;
    struct block *free[BINS];
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

static size_t bytes_of(int bin)
{
    return ((size_t)1 << bin) + LINE_BYTES;
}

/* BINS: no block is so large. */
static int bin_of(size_t bytes)
{
    int bin = BIN_FIRST;
    while (bin < BINS && (size_t)1 << bin < bytes)
        bin++;
    return bin;
}

static void put(struct block *block, int bin)
{
    pthread_mutex_lock(&cache.lock);
    block->bin = bin;
    block->next = cache.free[bin];
    cache.free[bin] = block;
    pthread_mutex_unlock(&cache.lock);
}

static struct block *find(int bin)
{
    struct block *block = NULL;
    pthread_mutex_lock(&cache.lock);
    for (int c = bin; !block && c <= bin + BINS_ABOVE && c < BINS; c++)
        if ((block = cache.free[c]))
            cache.free[c] = block->next;
    pthread_mutex_unlock(&cache.lock);
    return block;
}

static alnico_status_t allocate(size_t bytes, void **out)
{
    cudaError_t error;
    char text[96];
    RELAXED(error, cudaHostAlloc(out, bytes, cudaHostAllocPortable | cudaHostAllocMapped));
    if (error == cudaSuccess)
        return ALNICO_SUCCESS;
    *out = NULL;
    snprintf(text, sizeof text, "cannot allocate %zu bytes of pinned memory", bytes);
    return cuda_status(error, text);
}

static const struct {
    int bin, count;
} reserve[] = {{12, 64}, {16, 16}, {18, 8}, {20, 4}, {22, 1}};

static alnico_status_t cut_reserve(void)
{
    const int kinds = sizeof reserve / sizeof *reserve;
    size_t bytes = 0;
    void *memory;
    for (int i = 0; i < kinds; i++)
        bytes += (size_t)reserve[i].count * bytes_of(reserve[i].bin);
    TRY(allocate(bytes, &memory));
    char *next = memory;
    for (int i = 0; i < kinds; i++)
        for (int k = 0; k < reserve[i].count; k++) {
            put((struct block *)(void *)next, reserve[i].bin);
            next += bytes_of(reserve[i].bin);
        }
    return ALNICO_SUCCESS;
}

alnico_status_t cuda_pinned_reserve(void)
{
    pthread_mutex_lock(&cache.lock);
    bool first = !cache.reserved;
    cache.reserved = true;
    pthread_mutex_unlock(&cache.lock);
    return first ? cut_reserve() : ALNICO_SUCCESS;
}

alnico_status_t cuda_pinned_alloc(size_t bytes, void **out)
{
    int bin = bin_of(bytes);
    *out = NULL;
    if (bin == BINS)
        return error_set(ALNICO_ERROR_MEMORY, "cannot allocate %zu bytes of pinned memory", bytes);
    struct block *block = find(bin);
    if (!block) {
        void *memory;
        TRY(allocate(bytes_of(bin), &memory));
        block = memory;
        block->bin = bin;
    }
    *out = block + 1;
    return ALNICO_SUCCESS;
}

void cuda_pinned_free(void *memory)
{
    if (!memory)
        return;
    struct block *block = (struct block *)memory - 1;
    put(block, block->bin);
}
