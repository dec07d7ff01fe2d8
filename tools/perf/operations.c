/* The table of operations, and how sizes follow from it. */
#include "tools/perf/operations.h"

#include "comm/tuning/tuning.h"

#include <string.h>

#define CALLS(name) .call = call_##name, .mpi = mpi_##name

static const struct perf_operation operations[PERF_OPERATIONS] = {
    {"allreduce", "every rank gets the combination of all ranks' elements", ALNICO_ALLREDUCE,
     SHAPE_VECTOR, 2, .reduces = true, .same = true, .has_place = true, .input = input_vector,
     .part = part_all, CALLS(allreduce)},
    {"reduce", "the root gets it", ALNICO_REDUCE, SHAPE_VECTOR, 1, .reduces = true, .rooted = true,
     .has_place = true, .input = input_vector, .part = part_all, CALLS(reduce)},
    {"broadcast", "every rank gets the root's elements; in place by its nature", ALNICO_BROADCAST,
     SHAPE_VECTOR, 1, .rooted = true, .same = true, .input = input_rooted, .part = part_copy,
     CALLS(broadcast)},
    {"allgather", "every rank gets a block of each", ALNICO_ALLGATHER, SHAPE_BLOCKS, 1,
     .same = true, .has_place = true, .input = input_block, .part = part_blocks, CALLS(allgather)},
    {"allgatherv", "the same with blocks of different length", ALNICO_ALLGATHERV, SHAPE_BLOCKS, 1,
     .same = true, .has_place = true, .input = input_block, .part = part_blocks, CALLS(allgatherv)},
    {"reduce_scatter", "every rank gets its block of the combination", ALNICO_REDUCE_SCATTER,
     SHAPE_BLOCKS, 1, .reduces = true, .has_place = true, .input = input_blocks,
     .part = part_reduced, CALLS(reduce_scatter)},
    {"reduce_scatterv", "the same with blocks of different length", ALNICO_REDUCE_SCATTERV,
     SHAPE_BLOCKS, 1, .reduces = true, .has_place = true, .input = input_blocks,
     .part = part_reduced, CALLS(reduce_scatterv)},
    {"gather", "the root gets a block of each rank", ALNICO_GATHER, SHAPE_BLOCKS, 1, .rooted = true,
     .has_place = true, .input = input_block, .part = part_blocks, CALLS(gather)},
    {"gatherv", "the same with blocks of different length", ALNICO_GATHERV, SHAPE_BLOCKS, 1,
     .rooted = true, .has_place = true, .input = input_block, .part = part_blocks, CALLS(gatherv)},
    {"scatter", "every rank gets its block of the root's", ALNICO_SCATTER, SHAPE_BLOCKS, 1,
     .rooted = true, .has_place = true, .input = input_rooted, .part = part_scattered,
     CALLS(scatter)},
    {"scatterv", "the same with blocks of different length", ALNICO_SCATTERV, SHAPE_BLOCKS, 1,
     .rooted = true, .has_place = true, .input = input_rooted, .part = part_scattered,
     CALLS(scatterv)},
    {"alltoall", "every rank gets a block of each that is for it", ALNICO_ALLTOALL, SHAPE_BLOCKS, 1,
     .has_place = true, .input = input_blocks, .part = part_alltoall, CALLS(alltoall)},
    {"alltoallv", "the same with blocks of different length", ALNICO_ALLTOALLV, SHAPE_BLOCKS, 1,
     .has_place = true, .input = input_blocks, .part = part_alltoall, CALLS(alltoallv)},
    {"barrier", "ends on no rank before it has begun on all; one row", ALNICO_BARRIER, SHAPE_NONE,
     0, .input = input_none, CALLS(barrier)},
    {"sendrecv", "every rank sends to the next and receives from the previous one", ALNICO_SENDRECV,
     SHAPE_VECTOR, 1, .input = input_vector, .part = part_previous, CALLS(sendrecv)},
    {"exchange", "a group: a message to and from both neighbours in a ring", ALNICO_SENDRECV,
     SHAPE_PAIR, 2, .input = input_pair, .part = part_pair, CALLS(exchange)},
    {"pingpong", "rank 0 sends, rank 1 sends back: time of one message", ALNICO_SENDRECV,
     SHAPE_VECTOR, 1, .blocking = true, .messages = 2, .ranks_least = 2, .input = input_vector,
     .part = part_partner, CALLS(pingpong)}};

int perf_operation_id(const struct perf_operation *operation)
{
    return (int)(operation - operations);
}

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
        backend_algorithm_at((int)device, (int)operation->collective, i, NULL);
    return algorithm ? algorithm->name : NULL;
}

double perf_bus_factor(const struct perf_operation *operation, int ranks)
{
    bool spread = operation->shape == SHAPE_BLOCKS || operation->collective == ALNICO_ALLREDUCE;
    return operation->bus * (spread ? (ranks - 1.0) / ranks : 1);
}

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
