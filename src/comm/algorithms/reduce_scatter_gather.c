/*
 * Reduce by a reduce-scatter and a gather: recursive halving as in Rabenseifner's allreduce leaves
 * each of 2^k places with one finished block, and a binomial tree brings the blocks to the root.
 * Other rank counts are folded: of the first 2r ranks from the root on, r = p - 2^k, each odd one
 * hands its input to the one below it and is out.
 *
 * Cost: 2 lg p alpha + 2 (p-1)/p n beta + (p-1)/p n gamma, and alpha + n beta + n gamma more when
 * folded. Source: Rabenseifner, "Optimization of Collective Reduction Operations", ICCS 2004.
 */
#include "comm/algorithms/algorithm.h"

/* A rank's place among those who are in, -1 for the others; the root's is 0. Here the even ones of
 * the pairs stay. */
static int place_of(const struct shape *shape)
{
    int v = tree_place(shape), r = fold_pairs(shape);
    if (v >= 2 * r)
        return v - r;
    return v % 2 ? -1 : v / 2;
}

static int rank_of(const struct shape *shape, int place)
{
    return tree_rank(shape, fold_first(shape, place));
}

static bool in_pair(const struct shape *shape)
{
    return tree_place(shape) < 2 * fold_pairs(shape);
}

static int rounds(const struct shape *shape)
{
    return 1 + fold_needed(shape) + 2 * log_below(shape->size);
}

static size_t work(const struct shape *shape)
{
    return place_of(shape) > 0 ? shape->count : 0;
}

/* Blocks of the sum, which the root has in RECV. */
static struct span sum(const struct shape *shape, int first, int last)
{
    struct span span = block_span(shape->count, power_below(shape->size), first, last);
    span.in = shape->rank == shape->root ? BUFFER_RECV : BUFFER_WORK;
    return span;
}

/* The half that `place` keeps of the `width` blocks around it. */
static struct span kept(const struct shape *shape, int place, int width)
{
    int half = width / 2, first = half ? place / half * half : 0;
    return sum(shape, first, half ? first + half : width);
}

static struct span input(struct span where)
{
    where.in = BUFFER_SEND;
    return where;
}

/* A rank that is handed nothing sends half of its input as it is, and copies the other half only. */
static bool copy_input(const struct shape *shape, int place, struct exchange *out)
{
    int power = power_below(shape->size);
    if (place < 0)
        return false;
    struct span where = in_pair(shape) ? sum(shape, 0, power) : kept(shape, place, power);
    return exchange_copy(shape, out, input(where), where);
}

static bool fold(const struct shape *shape, int place, struct exchange *out)
{
    int v = tree_place(shape);
    if (!in_pair(shape))
        return false;
    if (place < 0)
        return exchange_send(out, tree_rank(shape, v - 1),
                             (struct span){BUFFER_SEND, 0, shape->count});
    return exchange_receive(out, tree_rank(shape, v + 1), sum(shape, 0, power_below(shape->size)),
                            true);
}

static bool halve(const struct shape *shape, int place, int i, struct exchange *out)
{
    int width = power_below(shape->size) >> i, partner = place ^ width / 2;
    int other = rank_of(shape, partner);
    struct span theirs = kept(shape, partner, width);
    return exchange_both(out, other, i || in_pair(shape) ? theirs : input(theirs), other,
                         kept(shape, place, width), true);
}

static bool gather(const struct shape *shape, int place, int i, struct exchange *out)
{
    int width = 1 << i;
    if (place % width)
        return false;
    if (place % (2 * width))
        return exchange_send(out, rank_of(shape, place - width), sum(shape, place, place + width));
    return exchange_receive(out, rank_of(shape, place + width),
                            sum(shape, place + width, place + 2 * width), false);
}

static bool scatter_gather_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    int place = place_of(shape), log = log_below(shape->size);
    if (k > 0)
        return false;
    if (i-- == 0)
        return copy_input(shape, place, out);
    if (fold_needed(shape) && i-- == 0)
        return fold(shape, place, out);
    if (place < 0)
        return false;
    return i < log ? halve(shape, place, i, out) : gather(shape, place, i - log, out);
}

const struct algorithm algorithm_reduce_scatter_gather = {
    .name = "reduce_scatter_gather",
    .about = "2 lg p alpha + 2 (p-1)/p n beta + (p-1)/p n gamma (Rabenseifner 2004)",
    .work = work,
    .round = scatter_gather_round,
    .rounds = rounds,
};
