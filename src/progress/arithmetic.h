/* Device arithmetic: what a communicator's rounds need to combine and copy elements in the device's
 * own memory: a stream of the library's, and scratch for a few chunks, which one operation has at a
 * time. All of it is made with the communicator, because an allocation may wait for work of the
 * device. */
#ifndef ALNICO_PROGRESS_ARITHMETIC_H
#define ALNICO_PROGRESS_ARITHMETIC_H

#include "progress/gate.h"
#include "progress/tickets.h"

enum {
    ARITHMETIC_CHUNKS = 3,
    ARITHMETIC_CHUNK_BYTES = 4 << 20,
    ARITHMETIC_BYTES = ARITHMETIC_CHUNKS * ARITHMETIC_CHUNK_BYTES
};

struct arithmetic_memory;

struct arithmetic {
    const struct device_ops *device;
    void *stream;
    struct arithmetic_memory *memory; /* the chunks' scratch */
    struct tickets tickets;
    char *scratch[ARITHMETIC_CHUNKS];
    struct gate ended[ARITHMETIC_CHUNKS]; /* open when what a chunk's rounds enqueued has ended */
};

/* On the current device. Errors: MEMORY, and the device's. */
alnico_status_t arithmetic_create(const struct device_ops *device, struct arithmetic **out);

/* Nothing of the communicator is in flight. NULL is fine. */
void arithmetic_destroy(struct arithmetic *a);

#endif
