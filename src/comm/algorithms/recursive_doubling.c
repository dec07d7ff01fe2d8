/*
 * Recursive doubling allreduce: lg p rounds; in round i each rank exchanges the whole vector with
 * the one whose place differs in bit i. Other rank counts are folded to a power of two, which adds
 * a round at either end.
 *
 * Cost: lg p (alpha + n beta + n gamma), and 2 alpha + 2 n beta + n gamma more when folded. Source:
 * Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations in MPICH",
 * IJHPCA 19(1), 2005.
 */
#include "comm/algorithms/algorithm.h"

static int rounds(const struct shape *shape)
{
    return log_below(shape->size) + 2 * fold_needed(shape);
}

static bool doubling_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    if (k > 0)
        return false;
    if (fold_needed(shape) && i-- == 0)
        return fold_in(shape, out);
    if (i == log_below(shape->size))
        return fold_out(shape, out);
    int place = fold_place(shape);
    if (place < 0)
        return false;
    int other = fold_rank(shape, place ^ 1 << i);
    struct span all = {BUFFER_RECV, 0, shape->count};
    return exchange_both(out, other, all, other, all, true);
}

const struct algorithm algorithm_recursive_doubling = {
    .name = "recursive_doubling",
    .about = "lg p (alpha + n beta + n gamma); latency-optimal (Thakur et al. 2005)",
    .round = doubling_round,
    .rounds = rounds,
};
