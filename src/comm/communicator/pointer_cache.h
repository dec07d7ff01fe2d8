/* Pointer cache: answers about memory that a communicator was given before. Asking the driver where a buffer
 * lies takes a good part of a short call's time, so the answer holds for the buffer's whole
 * allocation and for some calls. On the thread that calls on the communicator. */
#ifndef ALNICO_COMM_COMMUNICATOR_POINTER_CACHE_H
#define ALNICO_COMM_COMMUNICATOR_POINTER_CACHE_H

#include "device/device.h"

enum {
    CACHE_EXTENTS = 4,
    CACHE_CALLS =
        64 /* for so many buffers an answer holds; what was freed meanwhile goes unnoticed */
};

struct pointer_cache {
    struct {
        uintptr_t from;
        size_t bytes;
        unsigned left; /* 0: free, or to be asked again */
    } extents[CACHE_EXTENTS];
    unsigned next; /* which one a new extent replaces */
    bool some;     /* false: nothing is cached, as where no question costs anything */
};

/* As the device's check_memory, which it calls for memory that is not known. Zeroed at first. */
alnico_status_t pointer_cache_check(struct pointer_cache *cache, const struct device_ops *device,
                                    const void *memory, const char *name, const char *who);

#endif
