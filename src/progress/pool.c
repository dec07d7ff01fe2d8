/* The pool: a kept buffer's first bytes link it to the next. Any thread, under a lock. */
#include "progress/pool.h"

struct pool_buffer {
    struct pool_buffer *next;
};

void pool_init(struct pool *pool, const struct device_ops *device)
{
    *pool = (struct pool){.device = device};
    pthread_mutex_init(&pool->lock, NULL);
}

void pool_finish(struct pool *pool)
{
    for (int bin = 0; bin < POOL_BINS; bin++)
        while (pool->bins[bin]) {
            struct pool_buffer *buffer = pool->bins[bin];
            pool->bins[bin] = buffer->next;
            pool->device->pinned_free(buffer);
        }
    pthread_mutex_destroy(&pool->lock);
}

static int bin_of(size_t bytes)
{
    int bin = 0;
    while (bin < POOL_BINS && ((size_t)POOL_FIRST_BYTES << bin) < bytes)
        bin++;
    return bin;
}

static size_t size_of(int bin, size_t bytes)
{
    return bin < POOL_BINS ? (size_t)POOL_FIRST_BYTES << bin : bytes;
}

alnico_status_t pool_take(struct pool *pool, size_t bytes, void **out)
{
    int bin = bin_of(bytes);
    size_t size = size_of(bin, bytes);
    pthread_mutex_lock(&pool->lock);
    struct pool_buffer *buffer = bin < POOL_BINS ? pool->bins[bin] : NULL;
    if (buffer) {
        pool->bins[bin] = buffer->next;
        pool->kept -= size;
    }
    pool->used += size;
    pthread_mutex_unlock(&pool->lock);
    *out = buffer;
    if (buffer)
        return ALNICO_SUCCESS;
    alnico_status_t status = pool->device->pinned_alloc(size, out);
    if (status != ALNICO_SUCCESS) {
        pthread_mutex_lock(&pool->lock);
        pool->used -= size;
        pthread_mutex_unlock(&pool->lock);
    }
    return status;
}

size_t pool_bytes(struct pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    size_t bytes = pool->used + pool->kept;
    pthread_mutex_unlock(&pool->lock);
    return bytes;
}

void pool_give(struct pool *pool, void *memory, size_t bytes)
{
    if (!memory)
        return;
    struct pool_buffer *buffer = memory;
    int bin = bin_of(bytes);
    size_t size = size_of(bin, bytes);
    pthread_mutex_lock(&pool->lock);
    pool->used -= size;
    bool keep = bin < POOL_BINS && pool->kept + size <= POOL_KEPT_LIMIT;
    if (keep) {
        buffer->next = pool->bins[bin];
        pool->bins[bin] = buffer;
        pool->kept += size;
    }
    pthread_mutex_unlock(&pool->lock);
    if (!keep)
        pool->device->pinned_free(memory);
}
