/*
 * Dissemination barrier: in round i each rank sends to the one 2^i above it: it, and all whose
 * messages have reached it, are there. A message is one element of WORK without meaning.
 *
 * Cost: ceil(lg p) alpha. Source: Hensgen, Finkel, Manber, "Two algorithms for barrier
 * synchronization", International Journal of Parallel Programming 17(1), 1988.
 */
#include "comm/algorithms/algorithm.h"

static size_t work(const struct shape *shape)
{
    (void)shape;
    return 2;
}

static int rounds(const struct shape *shape)
{
    return log_above(shape->size);
}

static bool dissemination_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    return k == 0 &&
           exchange_both(out, rank_beyond(shape, 1 << i), (struct span){BUFFER_WORK, 0, 1},
                         rank_beyond(shape, -(1 << i)), (struct span){BUFFER_WORK, 1, 1}, false);
}

const struct algorithm algorithm_barrier_dissemination = {
    .name = "dissemination",
    .about = "ceil(lg p) alpha (Hensgen, Finkel, Manber 1988)",
    .work = work,
    .round = dissemination_round,
    .rounds = rounds,
    .arrivals = nothing_arrives,
};
