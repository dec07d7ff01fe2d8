/*
 * Pairwise all-to-all, for blocks of any length: in round i a rank sends to the one i+1 above it
 * and receives from the one i+1 below.
 *
 * Cost: (p-1) alpha + (p-1)/p n beta; of blocks of unequal length the longest of each round counts.
 * Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in
 * MPICH", IJHPCA 19(1), 2005.
 */
#include "comm/algorithms/algorithm.h"

static int rounds(const struct shape *shape)
{
    return shape->size == 1 ? 1 : shape->size - 1;
}

static bool pairwise_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    int r = shape->rank, to = rank_beyond(shape, i + 1), from = rank_beyond(shape, -i - 1);
    if (shape->size > 1 && k-- == 0)
        return exchange_both(out, to, send_block(shape, to), from, recv_block(shape, from), false);
    return i == 0 && k == 0 &&
           exchange_copy(shape, out, send_block(shape, r), recv_block(shape, r));
}

const struct algorithm algorithm_alltoall_pairwise = {
    .name = "pairwise",
    .about = "(p-1) alpha + (p-1)/p n beta (Thakur et al. 2005)",
    .round = pairwise_round,
    .rounds = rounds,
    .arrivals = nothing_arrives,
};
