/* The table of operations, and how sizes follow from it. */
#include "tools/perf/operations.h"

#include "comm/tuning/tuning.h"

#include <string.h>

/* About comes last, then what is not 0 of the fields behind it. */
#define ROW(NAME, ENUM, SHAPE, BUS, PART, ...)                                                     \
    {                                                                                              \
        .name = #NAME, .collective = ALNICO_##ENUM, .shape = SHAPE_##SHAPE, .bus = BUS,            \
        .part = PART, .call = call_##NAME, .about = __VA_ARGS__                                    \
    }

static const char unequal[] = "the same with blocks of different length";

static const struct perf_operation operations[PERF_OPERATIONS] = {
    ROW(allreduce, ALLREDUCE, VECTOR, 2, part_all,
        "every rank gets the combination of all ranks' elements", .same = true),
    ROW(reduce, REDUCE, VECTOR, 1, part_all, "the root gets it"),
    ROW(broadcast, BROADCAST, VECTOR, 1, part_copy,
        "every rank gets the root's elements; in place by its nature", .same = true),
    ROW(allgather, ALLGATHER, BLOCKS, 1, part_blocks, "every rank gets a block of each",
        .same = true),
    ROW(allgatherv, ALLGATHERV, BLOCKS, 1, part_blocks, unequal, .same = true),
    ROW(reduce_scatter, REDUCE_SCATTER, BLOCKS, 1, part_reduced,
        "every rank gets its block of the combination"),
    ROW(reduce_scatterv, REDUCE_SCATTERV, BLOCKS, 1, part_reduced, unequal),
    ROW(gather, GATHER, BLOCKS, 1, part_blocks, "the root gets a block of each rank"),
    ROW(gatherv, GATHERV, BLOCKS, 1, part_blocks, unequal),
    ROW(scatter, SCATTER, BLOCKS, 1, part_scattered, "every rank gets its block of the root's"),
    ROW(scatterv, SCATTERV, BLOCKS, 1, part_scattered, unequal),
    ROW(alltoall, ALLTOALL, BLOCKS, 1, part_blocks,
        "every rank gets a block of each that is for it"),
    ROW(alltoallv, ALLTOALLV, BLOCKS, 1, part_blocks, unequal),
    ROW(barrier, BARRIER, NONE, 0, NULL, "ends on no rank before it has begun on all; one row"),
    ROW(sendrecv, SENDRECV, VECTOR, 1, part_previous,
        "every rank sends to the next and receives from the previous one"),
    ROW(exchange, SENDRECV, PAIR, 2, part_pair,
        "a group: a message to and from both neighbours in a ring"),
    ROW(pingpong, SENDRECV, VECTOR, 1, part_partner,
        "rank 0 sends, rank 1 sends back: time of one message", .blocking = true, .messages = 2,
        .ranks_least = 2)};

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
