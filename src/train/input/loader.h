/* Batches prepared ahead by threads, in a ring of slots. A batch is cut into parts, which threads
 * take in order, those of an earlier batch first: so that all threads work on the batch that is
 * needed next. One thread at a time calls. */
#ifndef ALNICO_TRAIN_INPUT_LOADER_H
#define ALNICO_TRAIN_INPUT_LOADER_H

#include <alnico/alnico.h>

#include <stddef.h>
#include <stdint.h>

enum { LOADER_MOST_THREADS = 256 };

struct loader;

struct loader_options {
    size_t threads; /* at most LOADER_MOST_THREADS; 0: loader_next prepares on the caller's */
    size_t slots;   /* with threads at least held + 1, otherwise at least held */
    size_t held;    /* batches that the caller keeps at a time, > 0 */
    uint64_t first; /* number of the first batch */
    void *context;

    /* Decides on batch `number`, which comes into `slot`, and returns its parts, maybe 0. By one
     * thread at a time, in the order of the numbers. */
    size_t (*begin)(void *context, uint64_t number, size_t slot);

    /* Prepares a part of the batch in `slot`. Each thread, a number below max(threads, 1), has one
     * part at a time. */
    alnico_status_t (*prepare)(void *context, size_t thread, size_t slot, size_t part);
};

/* Starts the threads. Errors: MEMORY, SYSTEM (no thread). On error *out is NULL. */
alnico_status_t loader_create(const struct loader_options *options, struct loader **out);

/* The slot of the next batch, which is the caller's until the held-th call after this one. Errors:
 * those of its part that comes first of all that failed; a further call says it again. */
alnico_status_t loader_next(struct loader *loader, size_t *slot);

/* Waits for parts that are being prepared, and ends the threads. NULL is fine. */
void loader_destroy(struct loader *loader);

#endif
