/* The order of an epoch's images: of all at once, or by blocks, so that a file is read in runs.
 * Called by data.c. One thread. */
#ifndef ALNICO_TRAIN_INPUT_SHUFFLE_H
#define ALNICO_TRAIN_INPUT_SHUFFLE_H

#include "train/input/source.h"

/* Blocks that are mixed with each other. */
enum { SHUFFLE_WINDOW = 16 };

struct shuffle {
    size_t count;
    size_t block;     /* images that stay near each other; 0: all are one block */
    uint32_t *order;  /* a permutation of the images */
    uint32_t *blocks; /* and of the blocks; NULL: there is one */
    size_t expected;  /* windows of which the source heard */
};

/* In their own order. Errors: MEMORY; what is there is for shuffle_free. */
alnico_status_t shuffle_create(size_t count, size_t block, struct shuffle *out);
void shuffle_free(struct shuffle *shuffle);

/* Draws an epoch's order from a generator's state: by Fisher and Yates, or the blocks so, and then
 * the images of each window of blocks. */
void shuffle_draw(struct shuffle *shuffle, uint64_t state);

/* Tells the source of the blocks of the windows that places from `from` to `to` of the order are in,
 * and of the window behind them. */
void shuffle_expect(struct shuffle *shuffle, size_t from, size_t to, const struct source *source);

#endif
