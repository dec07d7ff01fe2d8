/* The GPU buffers of alnico-perf: a pool of slots for a message each, which calls go through in
 * turn, so that more than the second-level cache lies between two uses of one. Guards of GPU_POISON
 * lie before, between and behind the slots. Main thread. */
#ifndef ALNICO_TOOLS_PERF_GPU_POOL_H
#define ALNICO_TOOLS_PERF_GPU_POOL_H

#include <stddef.h>

enum { POOL_GUARD = 4096, POOL_SLOTS = 256 };

/* Where the slots of messages of one size lie: the i-th at POOL_GUARD + i * stride. */
struct pool_layout {
    size_t bytes, stride;
    int slots;
};

struct pool_layout pool_layout(size_t bytes, size_t cache);

/* Bytes that a pool needs for messages of up to `most` bytes. */
size_t pool_bytes(size_t most, size_t cache);

static inline size_t pool_offset(const struct pool_layout *layout, int slot)
{
    return POOL_GUARD + (size_t)slot * layout->stride;
}

/* Two equal pieces of memory for sending and receiving. */
struct gpu_pool {
    char *send, *recv;
};

#endif
