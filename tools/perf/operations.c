/* The table of operations, and how sizes follow from it. */
#include "tools/perf/operations.h"

#include "comm/tuning/tuning.h"
#include "tools/perf/layout.h"

#include <string.h>

/* ---- What the busiest link carries, over the size ---- */

static double factor_none(int ranks)
{
    (void)ranks;
    return 0;
}

static double factor_one(int ranks)
{
    (void)ranks;
    return 1;
}

static double factor_two(int ranks)
{
    (void)ranks;
    return 2;
}

static double factor_blocks(int ranks)
{
    return (ranks - 1.0) / ranks;
}

static double factor_allreduce(int ranks)
{
    return 2.0 * (ranks - 1) / ranks;
}

/* ---- The table ---- */

static const struct perf_operation operations[PERF_OPERATIONS] = {
    {"allreduce", "every rank gets the combination of all ranks' elements", PERF_ALLREDUCE,
     ALNICO_ALLREDUCE, SHAPE_VECTOR, factor_allreduce, .reduces = true, .same = true,
     .has_place = true, .input = input_vector, .part = part_all, .call = call_allreduce,
     .mpi = mpi_allreduce},
    {"reduce", "the root gets it", PERF_REDUCE, ALNICO_REDUCE, SHAPE_VECTOR, factor_one,
     .reduces = true, .rooted = true, .has_place = true, .input = input_vector,
     .part = part_root_all, .call = call_reduce, .mpi = mpi_reduce},
    {"broadcast", "every rank gets the root's elements; in place by its nature", PERF_BROADCAST,
     ALNICO_BROADCAST, SHAPE_VECTOR, factor_one, .rooted = true, .same = true,
     .input = input_rooted, .part = part_copy, .call = call_broadcast, .mpi = mpi_broadcast},
    {"allgather", "every rank gets a block of each", PERF_ALLGATHER, ALNICO_ALLGATHER, SHAPE_BLOCKS,
     factor_blocks, .same = true, .has_place = true, .input = input_block, .part = part_blocks,
     .call = call_allgather, .mpi = mpi_allgather},
    {"allgatherv", "the same with blocks of different length", PERF_ALLGATHERV, ALNICO_ALLGATHERV,
     SHAPE_BLOCKS, factor_blocks, .same = true, .has_place = true, .input = input_block,
     .part = part_blocks, .call = call_allgatherv, .mpi = mpi_allgatherv},
    {"reduce_scatter", "every rank gets its block of the combination", PERF_REDUCE_SCATTER,
     ALNICO_REDUCE_SCATTER, SHAPE_BLOCKS, factor_blocks, .reduces = true, .has_place = true,
     .input = input_blocks, .part = part_reduced, .call = call_reduce_scatter,
     .mpi = mpi_reduce_scatter},
    {"reduce_scatterv", "the same with blocks of different length", PERF_REDUCE_SCATTERV,
     ALNICO_REDUCE_SCATTERV, SHAPE_BLOCKS, factor_blocks, .reduces = true, .has_place = true,
     .input = input_blocks, .part = part_reduced, .call = call_reduce_scatterv,
     .mpi = mpi_reduce_scatterv},
    {"gather", "the root gets a block of each rank", PERF_GATHER, ALNICO_GATHER, SHAPE_BLOCKS,
     factor_blocks, .rooted = true, .has_place = true, .input = input_block, .part = part_gathered,
     .call = call_gather, .mpi = mpi_gather},
    {"gatherv", "the same with blocks of different length", PERF_GATHERV, ALNICO_GATHERV,
     SHAPE_BLOCKS, factor_blocks, .rooted = true, .has_place = true, .input = input_block,
     .part = part_gathered, .call = call_gatherv, .mpi = mpi_gatherv},
    {"scatter", "every rank gets its block of the root's", PERF_SCATTER, ALNICO_SCATTER,
     SHAPE_BLOCKS, factor_blocks, .rooted = true, .has_place = true, .input = input_rooted,
     .part = part_scattered, .call = call_scatter, .mpi = mpi_scatter},
    {"scatterv", "the same with blocks of different length", PERF_SCATTERV, ALNICO_SCATTERV,
     SHAPE_BLOCKS, factor_blocks, .rooted = true, .has_place = true, .input = input_rooted,
     .part = part_scattered, .call = call_scatterv, .mpi = mpi_scatterv},
    {"alltoall", "every rank gets a block of each that is for it", PERF_ALLTOALL, ALNICO_ALLTOALL,
     SHAPE_BLOCKS, factor_blocks, .has_place = true, .input = input_blocks, .part = part_alltoall,
     .call = call_alltoall, .mpi = mpi_alltoall},
    {"alltoallv", "the same with blocks of different length", PERF_ALLTOALLV, ALNICO_ALLTOALLV,
     SHAPE_BLOCKS, factor_blocks, .has_place = true, .input = input_blocks, .part = part_alltoall,
     .call = call_alltoallv, .mpi = mpi_alltoallv},
    {"barrier", "ends on no rank before it has begun on all; one row", PERF_BARRIER, ALNICO_BARRIER,
     SHAPE_NONE, factor_none, .input = input_none, .part = part_none, .call = call_barrier,
     .mpi = mpi_barrier},
    {"sendrecv", "every rank sends to the next and receives from the previous one", PERF_SENDRECV,
     ALNICO_SENDRECV, SHAPE_VECTOR, factor_one, .input = input_vector, .part = part_previous,
     .call = call_sendrecv, .mpi = mpi_sendrecv},
    {"exchange", "a group: a message to and from both neighbours in a ring", PERF_EXCHANGE,
     ALNICO_SENDRECV, SHAPE_PAIR, factor_two, .input = input_pair, .part = part_pair,
     .call = call_exchange, .mpi = mpi_exchange},
    {"pingpong", "rank 0 sends, rank 1 sends back: time of one message", PERF_PINGPONG,
     ALNICO_SENDRECV, SHAPE_VECTOR, factor_one, .blocking = true, .messages = 2, .ranks_least = 2,
     .input = input_vector, .part = part_partner, .call = call_pingpong, .mpi = mpi_pingpong}};

const struct perf_operation *perf_operation_at(int i)
{
    return i < PERF_OPERATIONS ? &operations[i] : NULL;
}

const struct perf_operation *perf_operation_find(const char *name)
{
    for (int i = 0; i < PERF_OPERATIONS; i++)
        if (strcmp(operations[i].name, name) == 0)
            return &operations[i];
    return NULL;
}

const char *perf_algorithm(const struct perf_operation *operation, alnico_device_t device, int i)
{
    const struct algorithm *algorithm =
        tuning_algorithm_at((int)device, (int)operation->collective, i, NULL);
    return algorithm ? algorithm->name : NULL;
}

/* ---- Sizes ---- */

size_t perf_count(const struct perf_operation *operation, size_t elements, int ranks)
{
    if (operation->shape == SHAPE_NONE)
        return 0;
    size_t count = operation->shape == SHAPE_BLOCKS ? elements / (size_t)ranks : elements;
    return count ? count : 1;
}

size_t perf_size(const struct perf_operation *operation, size_t count, int ranks)
{
    return operation->shape == SHAPE_BLOCKS ? count * (size_t)ranks : count;
}

size_t perf_extent(const struct perf_operation *operation, size_t count, int ranks)
{
    return operation->shape == SHAPE_PAIR ? 2 * count : perf_size(operation, count, ranks);
}
