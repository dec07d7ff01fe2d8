/*
 * Staging: a communicator's pinned memory for messages of a device that the host does not reach. All of
 * it is made with the communicator, because an allocation may wait for work of the device.
 *
 * Short messages take regions of a ring; the stream's own kernels copy them. A region is used again
 * when its operation has ended: in the stream's order the result is read before the next input is
 * written there. Long messages go through a few chunks, which one operation has at a time; streams of
 * the library's copy.
 */
#ifndef ALNICO_PROGRESS_STAGING_H
#define ALNICO_PROGRESS_STAGING_H

#include "progress/gate.h"
#include "progress/tickets.h"

#include <stdatomic.h>

enum {
    STAGING_SHORT_BYTES =
        32 << 10, /* up to there a kernel's copy is faster than the copy engine's */
    STAGING_RING_BYTES = 1 << 20,
    STAGING_REGIONS = 1024, /* in use at a time, at most */
    STAGING_CHUNKS = 4,
    STAGING_CHUNK_BYTES = 512 << 10,
    STAGING_BYTES = STAGING_RING_BYTES + STAGING_CHUNKS * STAGING_CHUNK_BYTES /* in all */
};

struct region {
    size_t begin; /* in the ring */
    atomic_bool over;
};

struct staging {
    const struct device_ops *device;
    int device_index;
    char *memory; /* the ring, then the chunks */

    /* The ring: for the thread that calls on the communicator. Regions' numbers are never used
     * again. */
    struct region regions[STAGING_REGIONS];
    unsigned oldest, next;
    size_t head; /* where the next region begins */

    /* Chunks: only who polls the communicator's operations, for the one whose ticket is served. */
    struct tickets tickets;
    char *chunks[STAGING_CHUNKS];
    struct gate copied[STAGING_CHUNKS]; /* open when the copy to or from the chunk has ended */
    void *out, *in;                     /* streams of the copies to the host and from it */
};

/* On the current device. Errors: MEMORY, and the device's. */
alnico_status_t staging_create(const struct device_ops *device, struct staging **out);

/* Nothing of the communicator is in flight. NULL is fine. */
void staging_destroy(struct staging *staging);

/* A region of the ring, aligned to 64 bytes; NULL if there is no room now. */
char *staging_take(struct staging *staging, size_t bytes, unsigned *region);

/* The operation writes and reads it no more. Any thread. */
void staging_give(struct staging *staging, unsigned region);

/* A copy on a stream, of the two or the user's; and after one or several the opening of the gate, also if one
 * failed, since those before it run. `enqueued` is their status, returned if it is an error. Any
 * thread. */
alnico_status_t staging_enqueue(struct staging *staging, void *dst, const void *src, size_t bytes,
                                void *stream);
alnico_status_t staging_mark_after(struct staging *staging, struct gate *copied, void *stream,
                                   alnico_status_t enqueued);

#endif
