/*
 * Reduce-scatter for blocks of any length. Pairwise: in round i a rank sends to the one i above it
 * that one's block of its input, and adds to its own what comes from the one i below. Ring: block b
 * starts at the rank above b and collects a summand at each rank on its way around to b; what
 * arrives is added to the input in a round of its own.
 *
 * Cost: both (p-1) alpha + (p-1)/p n (beta + gamma); the ring's messages go to neighbours only.
 * Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in
 * MPICH", IJHPCA 19(1), 2005; Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms for
 * clusters of workstations", JPDC 69(2), 2009.
 */
#include "comm/algorithms/algorithm.h"

static struct span own(const struct shape *shape)
{
    return (struct span){BUFFER_RECV, 0, send_block(shape, shape->rank).len};
}

/* Both begin with a copy of the own block of the input. */
static bool copy_own(const struct shape *shape, struct exchange *out)
{
    return exchange_copy(shape, out, send_block(shape, shape->rank), own(shape));
}

static size_t own_arrives(const struct shape *shape)
{
    return own(shape).len;
}

static int pairwise_rounds(const struct shape *shape)
{
    return shape->size;
}

static bool pairwise_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    if (k > 0)
        return false;
    if (i == 0)
        return copy_own(shape, out);
    int to = rank_beyond(shape, i);
    return exchange_both(out, to, send_block(shape, to), rank_beyond(shape, -i), own(shape), true);
}

static size_t longer(size_t a, size_t b)
{
    return a > b ? a : b;
}

static size_t longest(const struct shape *shape)
{
    size_t most = shape->count;
    for (int b = 0; shape->send_counts && b < shape->size; b++)
        most = longer(most, shape->send_counts[b]);
    return most;
}

/* Room for the block that one step brings and the next passes on, and for the one after it. */
static size_t ring_work(const struct shape *shape)
{
    return shape->size > 2 ? 2 * longest(shape) : 0;
}

static int ring_rounds(const struct shape *shape)
{
    return shape->size == 1 ? 1 : 2 * (shape->size - 1);
}

/* The block that arrives in a step. */
static struct span arriving(const struct shape *shape, int step)
{
    return send_block(shape, rank_beyond(shape, -2 - step));
}

/* The place of that block in WORK: behind those of the step before and after, or before them. */
static struct span slot(const struct shape *shape, int step)
{
    size_t at =
        step % 2 == 0 ? 0 : longer(arriving(shape, step - 1).len, arriving(shape, step + 1).len);
    return (struct span){BUFFER_WORK, at, arriving(shape, step).len};
}

static bool ring_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    if (k > 0)
        return false;
    if (i-- == 0)
        return copy_own(shape, out);
    int step = i / 2;
    bool last = step == shape->size - 2;
    if (i % 2)
        return exchange_both(out, shape->rank, arriving(shape, step), shape->rank,
                             slot(shape, step), true);
    return exchange_both(out, rank_beyond(shape, 1),
                         step ? slot(shape, step - 1) : send_block(shape, rank_beyond(shape, -1)),
                         rank_beyond(shape, -1), last ? own(shape) : slot(shape, step), last);
}

const struct algorithm algorithm_reduce_scatter_pairwise = {
    .name = "pairwise",
    .about = "(p-1) alpha + (p-1)/p n (beta + gamma) (Thakur et al. 2005)",
    .round = pairwise_round,
    .rounds = pairwise_rounds,
    .arrivals = own_arrives,
};

const struct algorithm algorithm_reduce_scatter_ring = {
    .name = "ring",
    .about = "(p-1) alpha + (p-1)/p n (beta + gamma), to neighbours only (Patarasuk, Yuan 2009)",
    .work = ring_work,
    .round = ring_round,
    .rounds = ring_rounds,
    .arrivals = own_arrives,
};
