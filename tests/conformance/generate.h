/* Where batches come from: the table, every combination of what matters once, and random ones. All
 * ranks generate the same. Pure. */
#ifndef ALNICO_TESTS_CONFORMANCE_GENERATE_H
#define ALNICO_TESTS_CONFORMANCE_GENERATE_H

#include "comm/algorithms/algorithm.h"
#include "tests/conformance/options.h"

/* A place in the table: operation x algorithm x type x reduction x place x blocking or not; lanes,
 * counts, layouts and roots take turns. */
struct table {
    const struct options *options;
    int ranks;
    int operation, way, type, op, place, nonblocking;
    uint64_t turn;
};

/* The algorithms that an operation may have, from 0; NULL: no more. */
const struct algorithm *way_at(const struct options *options, int operation, int way);

void table_init(struct table *table, const struct options *options, int ranks);

/* The next few calls; false after the last. */
bool table_next(struct table *table, struct batch *out);

/* Batch `index` of the seed's. */
void random_batch(const struct options *options, int ranks, uint64_t index, struct batch *out);

#endif
