/*
 * Rabenseifner's allreduce: a reduce-scatter by recursive halving, then an allgather by recursive
 * doubling. The vector is cut into as many blocks as there are places. In halving round i a rank
 * and its partner, which differ in the i-th bit from the top, hold the same range of blocks: each
 * sends the half that is not its own. The doubling rounds run the same ranges backwards. Other rank
 * counts are folded.
 *
 * Cost: 2 lg p alpha + 2 (p-1)/p n beta + (p-1)/p n gamma, and 2 alpha + 2 n beta + n gamma more
 * when folded. Source: Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004.
 */
#include "comm/algorithms/algorithm.h"

static int rounds(const struct shape *shape)
{
    return 2 * log_below(shape->size) + 2 * fold_needed(shape);
}

/* The blocks of the half that `place` keeps when the range of `width` blocks around it is
 * halved. */
static struct span kept(const struct shape *shape, int place, int width)
{
    int half = width / 2, first = place / half * half;
    return block_span(shape->count, power_below(shape->size), first, first + half);
}

static bool rabenseifner_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    if (k > 0)
        return false;
    int log = log_below(shape->size);
    if (fold_needed(shape) && i-- == 0)
        return fold_in(shape, out);
    if (i == 2 * log)
        return fold_out(shape, out);
    int place = fold_place(shape);
    if (place < 0)
        return false;
    bool halving = i < log;
    int width = halving ? 1 << (log - i) : 2 << (i - log);
    int partner = place ^ width / 2, other = fold_rank(shape, partner);
    struct span mine = kept(shape, place, width), theirs = kept(shape, partner, width);
    return exchange_both(out, other, halving ? theirs : mine, other, halving ? mine : theirs,
                         halving);
}

const struct algorithm algorithm_rabenseifner = {
    .name = "rabenseifner",
    .about = "2 lg p alpha + 2 (p-1)/p n beta + (p-1)/p n gamma (Rabenseifner 2004)",
    .round = rabenseifner_round,
    .rounds = rounds,
};
