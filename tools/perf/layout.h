/* The data of a call: the blocks of the vector forms, the contents of the buffers before it and
 * after it. Pure, but for the memory of struct perf_blocks. */
#ifndef ALNICO_TOOLS_PERF_LAYOUT_H
#define ALNICO_TOOLS_PERF_LAYOUT_H

#include "tools/perf/operations.h"

/* Memory for the blocks of so many ranks. False if there is none; afterwards blocks_finish, also
 * then. */
bool blocks_init(struct perf_blocks *blocks, int ranks);
void blocks_finish(struct perf_blocks *blocks);

/* The blocks of a call: all of `count` elements, or in the vector forms every second one with half
 * as many, rounded down, and the others with as many more; of an odd number of ranks the last has
 * `count`. In an alltoallv rank r's block for rank b is as long as block (r + b) mod ranks is
 * elsewhere. Where a whole vector has more than INT_MAX elements, the ints are undefined. */
void blocks_set(struct perf_blocks *blocks, const struct perf_operation *operation, size_t count,
                int rank, int ranks);

/* A call without buffers. `in_place` is the option; the blocks are set to its own. */
struct perf_job job_make(const struct perf_operation *operation, size_t count, bool in_place,
                         int root, int rank, int ranks, const struct perf_blocks *blocks);

/* The i-th part of this rank's result; false after the last. */
bool job_part(const struct perf_job *job, int i, struct perf_part *out);

/* Elements of recv that the parts of the result cover. */
size_t job_result_count(const struct perf_job *job);

perf_input_of input_vector, input_rooted, input_block, input_blocks, input_none, input_pair;
perf_part_of part_all, part_copy, part_blocks, part_reduced, part_scattered, part_alltoall,
    part_previous, part_pair, part_partner;

#endif
