/* A few extents of memory, replaced in turns. */
#include "comm/communicator/pointer_cache.h"

#include "base/status.h"

static bool is_known(struct pointer_cache *cache, uintptr_t memory)
{
    for (int i = 0; i < CACHE_EXTENTS; i++)
        if (memory - cache->extents[i].from < cache->extents[i].bytes && cache->extents[i].left) {
            cache->extents[i].left--;
            return true;
        }
    return false;
}

/* In the place of an older answer about the same memory, so that no two tell of it. */
static void remember(struct pointer_cache *cache, uintptr_t memory, uintptr_t from, size_t bytes)
{
    unsigned place = cache->next;
    cache->some = true;
    for (unsigned i = 0; i < CACHE_EXTENTS; i++)
        if (memory - cache->extents[i].from < cache->extents[i].bytes)
            place = i;
    if (place == cache->next)
        cache->next = (cache->next + 1) % CACHE_EXTENTS;
    cache->extents[place].from = from;
    cache->extents[place].bytes = bytes;
    cache->extents[place].left = CACHE_CALLS;
}

alnico_status_t pointer_cache_check(struct pointer_cache *cache, const struct device_ops *device,
                                    const void *memory, const char *name, const char *who)
{
    uintptr_t from;
    size_t bytes;
    if (!device->check_memory || (cache->some && is_known(cache, (uintptr_t)memory)))
        return ALNICO_SUCCESS;
    TRY(device->check_memory(memory, name, who));
    if (device->extent && device->extent(memory, &from, &bytes))
        remember(cache, (uintptr_t)memory, from, bytes);
    return ALNICO_SUCCESS;
}
