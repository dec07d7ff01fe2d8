/* How messages are laid out in a pool. Pure. */
#include "tools/perf/gpu/pool.h"

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

/* Two caches' worth of slots, but not more than a graph's few hundred calls reach. */
struct pool_layout pool_layout(size_t bytes, size_t cache)
{
    size_t wanted = (2 * cache + bytes - 1) / bytes;
    return (struct pool_layout){.bytes = bytes,
                                .stride = round_up(bytes, POOL_GUARD) + POOL_GUARD,
                                .slots = wanted < 1            ? 1
                                         : wanted > POOL_SLOTS ? POOL_SLOTS
                                                               : (int)wanted};
}

/* slots * stride is at most 2 cache + bytes + slots * 2 guards. */
size_t pool_bytes(size_t most, size_t cache)
{
    return round_up(most + 2 * cache + (2 * POOL_SLOTS + 2) * (size_t)POOL_GUARD, (size_t)2 << 20);
}
