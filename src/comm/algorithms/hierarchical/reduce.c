/*
 * Hierarchical reduce: the ranks of a host send their vectors to its seat 0, these leaders add them up
 * in the order of the seats below theirs, and reduce the sums to the root over a binomial tree between
 * hosts. The root is the leader of its host.
 *
 * Cost: of h hosts of m ranks ceil((m-1)/4) alpha' + (m-1) n (beta' + gamma), with alpha', beta'
 * inside a host, and ceil(lg h) (alpha + n beta + n gamma). Source: Karonis et al., "Exploiting
 * hierarchy in parallel computer networks to optimize collective operation performance", IPDPS 2000.
 */
#include "comm/algorithms/algorithm.h"

static bool is_leader(const struct shape *shape)
{
    return seat_of(shape, shape->rank) == 0;
}

static int others(const struct shape *shape)
{
    return seat_count(shape, seat_host(shape, shape->rank)) - 1;
}

/* WORK: what comes from the others, the host's sum if this is not the root, and the tree's. */
static size_t sums_at(const struct shape *shape)
{
    return (size_t)others(shape) * shape->count;
}

static size_t work(const struct shape *shape)
{
    struct shape between = seat_between(shape, shape->count);
    if (!is_leader(shape))
        return 0;
    return sums_at(shape) + (shape->rank == shape->root ? 0 : shape->count) +
           algorithm_reduce_binomial.work(&between);
}

static struct span sum(const struct shape *shape)
{
    if (shape->rank == shape->root)
        return (struct span){BUFFER_RECV, 0, shape->count};
    return (struct span){BUFFER_WORK, sums_at(shape), shape->count};
}

static struct span arrival(const struct shape *shape, int apart, bool comes)
{
    return (struct span){BUFFER_WORK, comes ? (size_t)(apart - 1) * shape->count : 0,
                         comes ? shape->count : 0};
}

static int rounds(const struct shape *shape)
{
    struct shape between = seat_between(shape, shape->count);
    return seat_rounds(shape) +
           (is_leader(shape) ? 1 + others(shape) + algorithm_reduce_binomial.rounds(&between) : 0);
}

/* Everybody's vector to seat 0. */
static bool collect(const struct shape *shape, int i, int k, struct exchange *out)
{
    int apart, to, from;
    return seat_meet(shape, i, k, &apart, &to, &from) &&
           exchange_both(out, seat_peer(shape, to),
                         (struct span){BUFFER_SEND, 0, to == 0 ? shape->count : 0},
                         seat_peer(shape, from), arrival(shape, apart, is_leader(shape)), false);
}

static bool between_hosts(const struct shape *shape, int i, int k, struct exchange *out)
{
    size_t behind = sums_at(shape) + (shape->rank == shape->root ? 0 : shape->count);
    const struct span at[BUFFERS] = {[BUFFER_SEND] = sum(shape),
                                     [BUFFER_RECV] = {BUFFER_RECV, 0, 0},
                                     [BUFFER_WORK] = {BUFFER_WORK, behind, 0}};
    struct shape between = seat_between(shape, shape->count);
    if (!algorithm_reduce_binomial.round(&between, i, k, out))
        return false;
    seat_translate(shape, at, out);
    return true;
}

static bool reduce_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    int inside = seat_rounds(shape);
    if (i < inside)
        return collect(shape, i, k, out);
    i -= inside;
    if (i == 0)
        return k == 0 &&
               exchange_copy(shape, out, (struct span){BUFFER_SEND, 0, shape->count}, sum(shape));
    if (i <= others(shape))
        return k == 0 && exchange_both(out, shape->rank, arrival(shape, i, true), shape->rank,
                                       sum(shape), true);
    return between_hosts(shape, i - 1 - others(shape), k, out);
}

const struct algorithm algorithm_reduce_hierarchical = {
    .name = "hierarchical_leaders",
    .about = "a binomial tree of n between one rank of each host (Karonis et al. 2000)",
    .work = work,
    .round = reduce_round,
    .rounds = rounds,
};
