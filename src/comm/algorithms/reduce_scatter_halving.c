/*
 * Reduce-scatter by recursive halving: in each round two places that hold sums of the same range of
 * blocks exchange halves of it. Other rank counts are folded; a place then stands for the blocks of
 * both ranks of its pair, and the one that is out is handed its block in the end.
 *
 * Cost: lg p alpha + (p-1)/p n (beta + gamma), and 2 alpha + (1 + 1/p) n beta + n gamma more when
 * folded. Source: Thakur, Rabenseifner, Gropp, "Optimization of Collective Communication Operations
 * in MPICH", IJHPCA 19(1), 2005.
 */
#include "comm/algorithms/algorithm.h"

static size_t work(const struct shape *shape)
{
    bool out = fold_place(shape) < 0;
    return shape->size == 1 || out ? 0 : (size_t)shape->size * shape->count;
}

static size_t arrivals(const struct shape *shape)
{
    int blocks = fold_has_pair(shape) ? shape->size : (shape->size + fold_pairs(shape) + 1) / 2;
    return (size_t)blocks * shape->count;
}

/* One copies; the others copy, halve, and copy what is theirs. */
static int rounds(const struct shape *shape)
{
    return shape->size == 1 ? 1 : 2 + fold_needed(shape) + log_below(shape->size);
}

/* The half that `place` keeps of what the `width` places around it stand for. */
static struct span kept(const struct shape *shape, enum buffer in, int place, int width)
{
    int half = width / 2, first = place & -half;
    return blocks_between(shape, in, fold_first(shape, first), fold_first(shape, first + half));
}

/* A rank that is handed nothing sends half of its input as it is, and copies the other half only. */
static bool copy_input(const struct shape *shape, int place, struct exchange *out)
{
    int p = shape->size, power = power_below(p);
    if (p == 1)
        return exchange_copy(shape, out, send_block(shape, 0),
                             blocks_between(shape, BUFFER_RECV, 0, 1));
    if (place < 0)
        return false;
    if (fold_has_pair(shape))
        return exchange_copy(shape, out, blocks_between(shape, BUFFER_SEND, 0, p),
                             blocks_between(shape, BUFFER_WORK, 0, p));
    return exchange_copy(shape, out, kept(shape, BUFFER_SEND, place, power),
                         kept(shape, BUFFER_WORK, place, power));
}

static bool fold(const struct shape *shape, int place, struct exchange *out)
{
    int other = shape->rank ^ 1, p = shape->size;
    if (!fold_has_pair(shape))
        return false;
    return place < 0 ? exchange_send(out, other, blocks_between(shape, BUFFER_SEND, 0, p))
                     : exchange_receive(out, other, blocks_between(shape, BUFFER_WORK, 0, p), true);
}

static bool halve(const struct shape *shape, int place, int i, struct exchange *out)
{
    if (place < 0)
        return false;
    int width = power_below(shape->size) >> i, partner = place ^ width / 2;
    enum buffer from = i || fold_has_pair(shape) ? BUFFER_WORK : BUFFER_SEND;
    int other = fold_rank(shape, partner);
    return exchange_both(out, other, kept(shape, from, partner, width), other,
                         kept(shape, BUFFER_WORK, place, width), true);
}

/* Each rank gets its block. */
static bool finish(const struct shape *shape, int place, int k, struct exchange *out)
{
    int r = shape->rank;
    struct span own = blocks_between(shape, BUFFER_RECV, 0, 1);
    if (place < 0)
        return k == 0 && exchange_receive(out, r + 1, own, false);
    if (fold_has_pair(shape) && k-- == 0)
        return exchange_send(out, r - 1, blocks_between(shape, BUFFER_WORK, r - 1, r));
    return k == 0 && exchange_copy(shape, out, blocks_between(shape, BUFFER_WORK, r, r + 1), own);
}

static bool halving_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    int place = fold_place(shape);
    if (i == rounds(shape) - 1 && shape->size > 1)
        return finish(shape, place, k, out);
    if (k > 0)
        return false;
    if (i-- == 0)
        return copy_input(shape, place, out);
    if (fold_needed(shape) && i-- == 0)
        return fold(shape, place, out);
    return halve(shape, place, i, out);
}

const struct algorithm algorithm_reduce_scatter_recursive_halving = {
    .name = "recursive_halving",
    .about = "lg p alpha + (p-1)/p n (beta + gamma); twice that where p is no power of two "
             "(Thakur et al. 2005)",
    .work = work,
    .round = halving_round,
    .rounds = rounds,
    .arrivals = arrivals,
    .whole = true,
};
