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

static int rounds(const struct shape *shape)
{
    return 2 * log_above(shape->size);
}

static bool binomial_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    if (k > 0)
        return false;
    bool reducing = i < log_above(shape->size);
    int bit = 1 << (reducing ? i : rounds(shape) - 1 - i);
    bool child = shape->rank % (2 * bit) == bit;
    bool parent = shape->rank % (2 * bit) == 0 && shape->rank + bit < shape->size;
    if (!child && !parent)
        return false;
    int other = shape->rank ^ bit;
    struct span all = {BUFFER_RECV, 0, shape->count};
    return child == reducing ? exchange_send(out, other, all)
                             : exchange_receive(out, other, all, reducing);
}

const struct algorithm algorithm_binomial = {
    .name = "binomial",
    .about =
        "2 ceil(lg p) (alpha + n beta) + ceil(lg p) n gamma; reduce + broadcast (Chan et al. 2007)",
    .round = binomial_round,
    .rounds = rounds,
};
