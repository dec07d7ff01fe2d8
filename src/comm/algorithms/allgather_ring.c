/*
 * Ring allgather, for blocks of any length: in round i, rank r passes block r-i on to the next and
 * gets block r-1-i.
 *
 * Cost: (p-1) alpha + (p-1)/p n beta, with messages to neighbours only; of blocks of unequal length
 * (p-1) alpha + (p-1) m beta at most, where m are the bytes of the longest. Source: Chan, Heimlich,
 * Purkayastha, van de Geijn, "Collective communication: theory, practice, and experience", CCPE
 * 19(13), 2007.
 */
#include "comm/algorithms/algorithm.h"

static int rounds(const struct shape *shape)
{
    return shape->size == 1 ? 1 : shape->size - 1;
}

/* In the first round the own block may still be on its way to RECV. */
static bool ring_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    int r = shape->rank, passed = rank_beyond(shape, -i), got = rank_beyond(shape, -i - 1);
    struct span own = {BUFFER_SEND, 0, recv_block(shape, r).len};
    if (shape->size > 1 && k-- == 0)
        return exchange_both(out, rank_beyond(shape, 1), i ? recv_block(shape, passed) : own,
                             rank_beyond(shape, -1), recv_block(shape, got), false);
    return i == 0 && k == 0 && exchange_copy(shape, out, own, recv_block(shape, r));
}

const struct algorithm algorithm_allgather_ring = {
    .name = "ring",
    .about = "(p-1) alpha + (p-1)/p n beta, to neighbours only (Chan et al. 2007)",
    .round = ring_round,
    .rounds = rounds,
    .arrivals = nothing_arrives,
};
