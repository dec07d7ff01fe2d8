/*
 * Broadcast over a binomial tree: in each round every rank that has the vector sends it to one
 * more, to the one farthest from it first. And by a binomial scatter and a ring allgather: the
 * vector is cut into p blocks, the tree's ranks pass on only those of the places below them, and
 * then each rank passes round what it got, but for blocks that the next has.
 *
 * Cost: ceil(lg p) (alpha + n beta); (ceil(lg p) + p-1) alpha + 2 (p-1)/p n beta. Source: Barnett,
 * Gupta, Payne, Shuler, van de Geijn, Watts, "Interprocessor collective communication library
 * (InterCom)", SHPCC 1994; as in Thakur, Rabenseifner, Gropp, "Optimization of Collective
 * Communication Operations in MPICH", IJHPCA 19(1), 2005.
 */
#include "comm/algorithms/algorithm.h"

static int depth(const struct shape *shape)
{
    return log_above(shape->size);
}

/* One level of the tree, where distance is a power of two: the vector's blocks of the places below
 * the child. */
static bool descend(const struct shape *shape, int distance, bool scatters, struct exchange *out)
{
    int place = tree_place(shape), parent = place - place % (2 * distance);
    int child = parent + distance, p = shape->size;
    if (child >= p || (place != parent && place != child))
        return false;
    struct span what = scatters
                           ? block_span(shape->count, p, child, child + tree_extent(shape, child))
                           : (struct span){BUFFER_RECV, 0, shape->count};
    if (place == parent)
        return exchange_send(out, tree_rank(shape, child), what);
    return exchange_receive(out, tree_rank(shape, parent), what, false);
}

static bool binomial_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    return k == 0 && descend(shape, 1 << (depth(shape) - 1 - i), false, out);
}

static int scatter_ring_rounds(const struct shape *shape)
{
    return depth(shape) + shape->size - 1;
}

/* Whether the scatter brings a block to a place. */
static bool has(const struct shape *shape, int place, int block)
{
    return block >= place && block < place + tree_extent(shape, place);
}

/* In round i of the ring, place v passes block v-i on. */
static bool pass_on(const struct shape *shape, int i, struct exchange *out)
{
    int p = shape->size, place = tree_place(shape);
    int sent = (place - i + p) % p, got = (place - 1 - i + p) % p;
    bool sends = !has(shape, (place + 1) % p, sent), receives = !has(shape, place, got);
    return (sends || receives) && exchange_both(out, sends ? rank_beyond(shape, 1) : -1,
                                                block_span(shape->count, p, sent, sent + 1),
                                                receives ? rank_beyond(shape, -1) : -1,
                                                block_span(shape->count, p, got, got + 1), false);
}

static bool scatter_ring_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    int levels = depth(shape);
    if (k > 0)
        return false;
    return i < levels ? descend(shape, 1 << (levels - 1 - i), true, out)
                      : pass_on(shape, i - levels, out);
}

const struct algorithm algorithm_broadcast_binomial = {
    .name = "binomial",
    .about = "ceil(lg p) (alpha + n beta) (Barnett et al. 1994)",
    .round = binomial_round,
    .rounds = depth,
    .arrivals = nothing_arrives,
};

const struct algorithm algorithm_broadcast_scatter_ring = {
    .name = "scatter_ring_allgather",
    .about = "(ceil(lg p) + p-1) alpha + 2 (p-1)/p n beta (Barnett et al. 1994)",
    .round = scatter_ring_round,
    .rounds = scatter_ring_rounds,
    .arrivals = nothing_arrives,
};
