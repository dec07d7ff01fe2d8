/* A pool of a device's pinned memory, in bins by powers of two. The bytes kept for later use are
 * bounded; those in use are not. Any thread. */
#ifndef ALNICO_PROGRESS_POOL_H
#define ALNICO_PROGRESS_POOL_H

#include "device/device.h"

#include <pthread.h>

enum {
    POOL_BINS = 15, /* 4 KB to 64 MB; larger buffers are not kept */
    POOL_FIRST_BYTES = 4096,
    POOL_KEPT_LIMIT = 64 << 20 /* bytes kept for later use */
};

struct pool {
    const struct device_ops *device;
    pthread_mutex_t lock;
    struct pool_buffer *bins[POOL_BINS];
    size_t kept, used; /* bytes waiting for use, and in use */
};

void pool_init(struct pool *pool, const struct device_ops *device);
void pool_finish(struct pool *pool);

/* A buffer of at least `bytes`, aligned to 64 bytes, for pool_give. Errors: MEMORY. */
alnico_status_t pool_take(struct pool *pool, size_t bytes, void **out);

/* Bytes in use and kept. */
size_t pool_bytes(struct pool *pool);

/* Gives back what pool_take gave for the same `bytes`. NULL is fine. */
void pool_give(struct pool *pool, void *buffer, size_t bytes);

#endif
