/* A few extents of memory, replaced in turns. */
#include "comm/communicator/pointer_cache.h"

#include "base/status.h"

static bool is_known(struct known *known, uintptr_t memory)
{
    for (int i = 0; i < KNOWN_EXTENTS; i++)
        if (memory - known->extents[i].from < known->extents[i].bytes && known->extents[i].left) {
            known->extents[i].left--;
            return true;
        }
    return false;
}

/* In the place of an older answer about the same memory, so that no two tell of it. */
static void remember(struct known *known, uintptr_t memory, uintptr_t from, size_t bytes)
{
    unsigned place = known->next;
    known->some = true;
    for (unsigned i = 0; i < KNOWN_EXTENTS; i++)
        if (memory - known->extents[i].from < known->extents[i].bytes)
            place = i;
    if (place == known->next)
        known->next = (known->next + 1) % KNOWN_EXTENTS;
    known->extents[place].from = from;
    known->extents[place].bytes = bytes;
    known->extents[place].left = KNOWN_CALLS;
}

alnico_status_t known_check(struct known *known, const struct device_ops *device,
                            const void *memory, const char *name, const char *who)
{
    uintptr_t from;
    size_t bytes;
    if (!device->check_memory || (known->some && is_known(known, (uintptr_t)memory)))
        return ALNICO_SUCCESS;
    TRY(device->check_memory(memory, name, who));
    if (device->extent && device->extent(memory, &from, &bytes))
        remember(known, (uintptr_t)memory, from, bytes);
    return ALNICO_SUCCESS;
}
