/*
 * Ring allreduce: a reduce-scatter and an allgather around a ring of all ranks, p-1 rounds each.
 * The vector is cut into p blocks. In round i of the first half, rank r passes block r-i on and
 * adds what it gets to block r-i-1; after p-1 rounds it holds the finished block r+1, and the
 * second half passes the finished blocks on.
 *
 * Cost: 2 (p-1) alpha + 2 (p-1)/p n beta + (p-1)/p n gamma, with messages to neighbours only.
 * Source: Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations",
 * JPDC 69(2), 2009.
 */
#include "comm/algorithms/algorithm.h"

static int rounds(const struct shape *shape)
{
    return 2 * (shape->size - 1);
}

static struct span block(const struct shape *shape, int b)
{
    int wrapped = (b % shape->size + shape->size) % shape->size;
    return block_span(shape->count, shape->size, wrapped, wrapped + 1);
}

static bool ring_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    if (k > 0)
        return false;
    int p = shape->size, r = shape->rank;
    bool reducing = i < p - 1;
    int sent = reducing ? r - i : r + 1 - (i - (p - 1));
    return exchange_both(out, rank_beyond(shape, 1), block(shape, sent), rank_beyond(shape, -1),
                         block(shape, sent - 1), reducing);
}

const struct algorithm algorithm_ring = {
    .name = "ring",
    .about = "2 (p-1) alpha + 2 (p-1)/p n beta + (p-1)/p n gamma (Patarasuk, Yuan 2009)",
    .round = ring_round,
    .rounds = rounds,
};
