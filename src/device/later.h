/*
 * What is let go of later. CUDA waits for all that GPUs run before it takes back memory that they may reach, and what
 * they run may wait for another rank, which waits for this one. So it is taken back when more is wanted, for which CUDA
 * waits anyway. Any thread.
 */
#ifndef ALNICO_SRC_LATER_H
#define ALNICO_SRC_LATER_H

#include <stddef.h>

/* At most so many bytes wait, or one thing that is larger: then all that waits is let go of at once. */
enum { LATER_BYTES = 128 << 20 };

/* In what is let go of, which is the list's until `release`, which may free it. */
struct later {
    struct later *next;
    size_t bytes;
    void (*release)(struct later *);
};

void later_put(struct later *item);

/* Lets go of all that waits. */
void later_run(void);

#endif
