/* The collectives as the public header describes them, written down once more for the fuzz targets:
 * which calls are allowed on a rank, and what memory holds afterwards. Every rank has an arena in
 * which its buffers lie. */
#ifndef ALNICO_TESTS_FUZZ_CALL_MODEL_H
#define ALNICO_TESTS_FUZZ_CALL_MODEL_H

#include <alnico/alnico.h>

#include <stdbool.h>
#include <stddef.h>

enum { MODEL_RANKS = 3, MODEL_ARENA = 4096 };

/* In place of a place in the arena. */
enum { PLACE_NULL = -1, PLACE_IN_PLACE = -2 };

enum { SENT, RECEIVED };

/* What all ranks pass, but for what is said to depend on the rank. */
struct model_call {
    int collective, type, op, root;
    int send, recv; /* bytes from the arena's begin, or one of the above; a broadcast's is recv */
    size_t count;   /* of equal blocks */
    size_t extra;   /* what a rank passes as its own count beyond what its block has */
    bool has_counts
        [2]; /* the arrays of the side that is sent, and of the one that is received: NULL if not */
    bool has_at[2];
    size_t counts[2][MODEL_RANKS], at[2][MODEL_RANKS];
};

/* The arrays as the rank passes them: those of an alltoallv fit each other if both sides have the
 * same. */
void model_counts(const struct model_call *c, int side, int rank, int size, size_t *counts);

/* The elements of its own block, as the rank passes them to vector forms. */
size_t model_own_count(const struct model_call *c, int rank, int size);

bool model_is_vector(const struct model_call *c);
bool model_allows(const struct model_call *c, int rank, int size);

/* Allowed on all ranks, which fit each other, in arenas that are large enough. */
bool model_runs(const struct model_call *c, int size);

/* What the arenas hold afterwards. What reductions of floats of several ranks write is taken from
 * `found`. */
void model_apply(const struct model_call *c, int size, unsigned char (*arenas)[MODEL_ARENA],
                 unsigned char (*found)[MODEL_ARENA]);

#endif
