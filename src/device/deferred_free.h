/*
 * What is let go of later. CUDA waits for all that the current GPU runs before it takes memory
 * back, and that may wait for another rank, which waits for this one. So nothing is taken back
 * where a communicator ends, but where one pins a segment of its own, which waits for all its ranks
 * in any case (no rank may then be held up by another communicator's calls), and where memory has
 * run out. Any thread.
 */
#ifndef ALNICO_DEVICE_DEFERRED_FREE_H
#define ALNICO_DEVICE_DEFERRED_FREE_H

#include <stddef.h>

/* At most so many bytes wait, or one thing that is larger: then all that waits is let go of at
 * once. */
enum { DEFERRED_BYTES = 128 << 20 };

/* In what is let go of, which is the list's until `release`, which may free it. */
struct deferred {
    struct deferred *next;
    size_t bytes;
    void (*release)(struct deferred *);
};

void deferred_free(struct deferred *item);

/* Lets go of all that waits. */
void deferred_run(void);

#endif
