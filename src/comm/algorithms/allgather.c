/*
 * Allgather by recursive doubling: places that differ in bit i exchange the 2^i neighbouring blocks
 * that they have; other rank counts are folded, and those who are out are handed everything in the
 * end. And Bruck's, for any rank count in ceil(lg p) rounds: in round i a rank gets from the one
 * 2^i above it as many blocks as it has, in an order that begins with its own, so that they have to
 * be put in their places in the end.
 *
 * Cost: lg p alpha + (p-1)/p n beta, and 2 alpha + (1 + 1/p) n beta more when folded; ceil(lg p)
 * alpha + (p-1)/p n beta and a copy of n. Source: Thakur, Rabenseifner, Gropp, "Optimization of
 * Collective Communication Operations in MPICH", IJHPCA 19(1), 2005; Bruck, Ho, Kipnis, Upfal,
 * Weathersby, "Efficient algorithms for all-to-all communications in multiport message-passing
 * systems", IEEE TPDS 8(11), 1997.
 */
#include "comm/algorithms/algorithm.h"

static struct span own(const struct shape *shape)
{
    return (struct span){BUFFER_SEND, 0, shape->count};
}

static int doubling_rounds(const struct shape *shape)
{
    return shape->size == 1 ? 1 : log_below(shape->size) + 2 * fold_needed(shape);
}

/* The blocks that came to places [first, first + places), whose ranks are neighbours. */
static struct span blocks_of(const struct shape *shape, int first, int places)
{
    return blocks_between(shape, BUFFER_RECV, fold_first(shape, first),
                          fold_first(shape, first + places));
}

/* The even rank of a pair hands its block to the odd one above it. */
static bool pair_up(const struct shape *shape, struct exchange *out)
{
    if (!fold_has_pair(shape))
        return false;
    int other = shape->rank ^ 1;
    return shape->rank % 2 ? exchange_receive(out, other, recv_block(shape, other), false)
                           : exchange_send(out, other, own(shape));
}

static bool hand_out(const struct shape *shape, struct exchange *out)
{
    if (!fold_has_pair(shape))
        return false;
    int other = shape->rank ^ 1;
    struct span all = blocks_between(shape, BUFFER_RECV, 0, shape->size);
    return shape->rank % 2 ? exchange_send(out, other, all)
                           : exchange_receive(out, other, all, false);
}

static bool doubling_exchange(const struct shape *shape, int i, struct exchange *out)
{
    bool first = i == 0;
    if (fold_needed(shape) && i-- == 0)
        return pair_up(shape, out);
    if (i == log_below(shape->size))
        return shape->size > 1 && hand_out(shape, out);
    int place = fold_place(shape), width = 1 << i;
    if (place < 0)
        return false;
    int begin = place & -width, other = fold_rank(shape, place ^ width);
    return exchange_both(out, other, first ? own(shape) : blocks_of(shape, begin, width), other,
                         blocks_of(shape, begin ^ width, width), false);
}

static bool doubling_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    if (i == 0 && k == 0)
        return exchange_copy(shape, out, own(shape), recv_block(shape, shape->rank));
    return k == (i == 0) && doubling_exchange(shape, i, out);
}

static size_t bruck_work(const struct shape *shape)
{
    return shape->size == 1 ? 0 : (size_t)shape->size * shape->count;
}

static int bruck_rounds(const struct shape *shape)
{
    return log_above(shape->size) + 1;
}

/* WORK begins with the own block, where RECV has those of the ranks below first. */
static bool put_in_place(const struct shape *shape, int k, struct exchange *out)
{
    int p = shape->size, r = shape->rank;
    if (p == 1)
        return k == 0 && exchange_copy(shape, out, own(shape), recv_block(shape, 0));
    if (k == 0)
        return exchange_copy(shape, out, blocks_between(shape, BUFFER_WORK, 0, p - r),
                             blocks_between(shape, BUFFER_RECV, r, p));
    return k == 1 && r > 0 &&
           exchange_copy(shape, out, blocks_between(shape, BUFFER_WORK, p - r, p),
                         blocks_between(shape, BUFFER_RECV, 0, r));
}

static bool bruck_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    if (i == log_above(shape->size))
        return put_in_place(shape, k, out);
    if (i == 0 && k == 1)
        return exchange_copy(shape, out, own(shape), blocks_between(shape, BUFFER_WORK, 0, 1));
    if (k > 0)
        return false;
    int has = 1 << i, missing = shape->size - has, more = has < missing ? has : missing;
    return exchange_both(
        out, rank_beyond(shape, -has), i ? blocks_between(shape, BUFFER_WORK, 0, more) : own(shape),
        rank_beyond(shape, has), blocks_between(shape, BUFFER_WORK, has, has + more), false);
}

const struct algorithm algorithm_allgather_recursive_doubling = {
    .name = "recursive_doubling",
    .about = "lg p alpha + (p-1)/p n beta; n beta more where p is no power of two "
             "(Thakur et al. 2005)",
    .round = doubling_round,
    .rounds = doubling_rounds,
    .arrivals = nothing_arrives,
    .whole = true,
};

const struct algorithm algorithm_allgather_bruck = {
    .name = "bruck",
    .about = "ceil(lg p) alpha + (p-1)/p n beta, and a copy (Bruck et al. 1997)",
    .work = bruck_work,
    .round = bruck_round,
    .rounds = bruck_rounds,
    .arrivals = nothing_arrives,
    .whole = true,
};
