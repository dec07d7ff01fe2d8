/*
 * Reduce over a binomial tree: a place adds to its input what comes from the places below it,
 * nearest first, and hands the sum to its parent. Only the root has RECV; the others that have
 * anything to add do so in WORK.
 *
 * Cost: ceil(lg p) (alpha + n beta + n gamma). Source: the minimum-spanning-tree algorithms in
 * Chan, Heimlich, Purkayastha, van de Geijn, "Collective communication: theory, practice, and
 * experience", CCPE 19(13), 2007.
 */
#include "comm/algorithms/algorithm.h"

/* The first round copies the input to where it is added to. */
static int rounds(const struct shape *shape)
{
    return 1 + log_above(shape->size);
}

static bool adds(const struct shape *shape)
{
    return shape->rank == shape->root || tree_extent(shape, tree_place(shape)) > 1;
}

static size_t work(const struct shape *shape)
{
    return adds(shape) && shape->rank != shape->root ? shape->count : 0;
}

static struct span sum(const struct shape *shape)
{
    return (struct span){shape->rank == shape->root ? BUFFER_RECV : BUFFER_WORK, 0, shape->count};
}

static bool binomial_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    struct span input = {BUFFER_SEND, 0, shape->count};
    if (k > 0)
        return false;
    if (i == 0)
        return adds(shape) && exchange_copy(shape, out, input, sum(shape));
    int distance = 1 << (i - 1), place = tree_place(shape);
    if (place % (2 * distance) == distance)
        return exchange_send(out, tree_rank(shape, place - distance),
                             adds(shape) ? sum(shape) : input);
    if (place % (2 * distance) || place + distance >= shape->size)
        return false;
    return exchange_receive(out, tree_rank(shape, place + distance), sum(shape), true);
}

const struct algorithm algorithm_reduce_binomial = {
    .name = "binomial",
    .about = "ceil(lg p) (alpha + n beta + n gamma) (Chan et al. 2007)",
    .work = work,
    .round = binomial_round,
    .rounds = rounds,
};
