/*
 * Deferred free: memory that the driver may not free while a stream runs. CUDA waits for all that
 * the current GPU runs before it frees, and that may wait for another rank, which waits for this
 * one. So the destruction of a communicator frees nothing. Two calls free all: one that pins a
 * segment, which waits for all its ranks in any case (no rank may then be held up by another
 * communicator's calls), and one that finds no memory. Any thread.
 */
#ifndef ALNICO_DEVICE_DEFERRED_FREE_H
#define ALNICO_DEVICE_DEFERRED_FREE_H

#include <stddef.h>

/* At most so many bytes wait, or one item that is larger: then all that wait are freed at once. */
enum { DEFERRED_BYTES = 128 << 20 };

/* Part of an item, which is the list's until `release`, which may free it. */
struct deferred {
    struct deferred *next;
    size_t bytes;
    void (*release)(struct deferred *);
};

void deferred_free(struct deferred *item);

/* Frees all that wait. */
void deferred_run(void);

#endif
