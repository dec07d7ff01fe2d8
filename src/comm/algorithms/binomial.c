/*
 * Binomial-tree allreduce: reduce to rank 0 over a binomial tree, then broadcast over the same tree
 * from the root down. In reduce round i the ranks whose lowest set bit is i hand their vector to
 * the rank without that bit.
 *
 * Cost: 2 ceil(lg p) (alpha + n beta) + ceil(lg p) n gamma; half of the messages of recursive
 * doubling. Source: the minimum-spanning-tree algorithms in Chan, Heimlich, Purkayastha, van de
 * Geijn, "Collective communication: theory, practice, and experience", CCPE 19(13), 2007.
 */
#include "comm/algorithms/algorithm.h"

/* The depth of the tree: the logarithm of p, rounded up. */
static int depth(const struct shape *shape)
{
    return shape->size == 1 ? 0 : log_below(shape->size - 1) + 1;
}

static int rounds(const struct shape *shape)
{
    return 2 * depth(shape);
}

static bool binomial_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    if (k > 0)
        return false;
    bool reducing = i < depth(shape);
    int bit = 1 << (reducing ? i : 2 * depth(shape) - 1 - i);
    bool child = shape->rank % (2 * bit) == bit;
    bool parent = shape->rank % (2 * bit) == 0 && shape->rank + bit < shape->size;
    if (!child && !parent)
        return false;
    int other = shape->rank ^ bit;
    bool sends = child == reducing;
    struct span all = {BUFFER_RECV, 0, shape->count};
    *out = (struct exchange){.to = sends ? other : -1,
                             .from = sends ? -1 : other,
                             .send = all,
                             .recv = all,
                             .reduce = reducing};
    return true;
}

const struct algorithm algorithm_binomial = {
    .name = "binomial",
    .about =
        "2 ceil(lg p) (alpha + n beta) + ceil(lg p) n gamma; reduce + broadcast (Chan et al. 2007)",
    .round = binomial_round,
    .rounds = rounds,
};
