/*
 * Hierarchical allgather. Leaders: the ranks of a host hand their blocks to one of them, these leaders
 * run Bruck's allgather of their hosts' blocks between hosts, and hand all to the ranks of their host.
 * Ring: the owners of a seat pass the blocks of their seat around a ring of hosts, and hand what came
 * in the step before to the ranks of their host meanwhile; blocks of any length.
 *
 * Cost: of h hosts of m ranks, with alpha', beta' inside a host, leaders ceil(lg h) alpha + (h-1)/h n
 * beta + 2 ceil((m-1)/4) alpha' + m n beta'; ring (h-1) (alpha + n/p beta), beside m/4 alpha' + m n/p
 * beta' in each step. Source: Karonis et al., "Exploiting hierarchy in parallel computer networks to
 * optimize collective operation performance", IPDPS 2000; Traff, Hunold, "Decomposing MPI collectives
 * for exploiting multi-lane communication", CLUSTER 2020; Bruck et al., IEEE TPDS 8(11), 1997.
 */
#include "comm/algorithms/algorithm.h"

static struct span own(const struct shape *shape)
{
    return (struct span){BUFFER_SEND, 0, recv_block(shape, shape->rank).len};
}

static struct span none(enum buffer in)
{
    return (struct span){in, 0, 0};
}

/* ---- Leaders: WORK has the blocks by hosts, from the leader's own on ---- */

static bool is_leader(const struct shape *shape)
{
    return seat_of(shape, shape->rank) == 0;
}

static struct span in_work(const struct shape *shape, int first, int count)
{
    return blocks_from(shape, BUFFER_WORK, first, count);
}

static size_t leaders_work(const struct shape *shape)
{
    return is_leader(shape) ? (size_t)shape->size * shape->count : 0;
}

static int placing_rounds(const struct shape *shape)
{
    return (rank_runs(shape) + EXCHANGES - 1) / EXCHANGES;
}

static int leaders_rounds(const struct shape *shape)
{
    int alone = 1 + log_above(seat_hosts(shape)) + placing_rounds(shape);
    return 2 * seat_rounds(shape) + (is_leader(shape) ? alone : 0);
}

static bool collect(const struct shape *shape, int i, int k, struct exchange *out)
{
    int apart, to, from;
    return seat_meet(shape, i, k, &apart, &to, &from) &&
           exchange_both(out, seat_peer(shape, to), to == 0 ? own(shape) : none(BUFFER_SEND),
                         seat_peer(shape, from),
                         is_leader(shape) ? in_work(shape, from, 1) : none(BUFFER_WORK), false);
}

/* Round i of Bruck between leaders: sends the blocks that the host 2^i below lacks. */
static bool between_hosts(const struct shape *shape, int i, struct exchange *out)
{
    int host = seat_host(shape, shape->rank), hosts = seat_hosts(shape), has = 1 << i;
    int more = has < hosts - has ? has : hosts - has, next = seat_host_beyond(shape, has);
    return exchange_both(
        out, seat_rank(shape, seat_host_beyond(shape, -has), 0),
        in_work(shape, 0, seat_ranks(shape, host, more)), seat_rank(shape, next, 0),
        in_work(shape, seat_ranks(shape, host, has), seat_ranks(shape, next, more)), false);
}

static bool put_in_place(const struct shape *shape, int i, int k, struct exchange *out)
{
    struct rank_run run;
    return k < EXCHANGES && rank_run(shape, i * EXCHANGES + k, &run) &&
           exchange_copy(shape, out, in_work(shape, run.at, run.count),
                         blocks_from(shape, BUFFER_RECV, run.rank, run.count));
}

static bool spread(const struct shape *shape, int i, int k, struct exchange *out)
{
    struct span all = blocks_between(shape, BUFFER_RECV, 0, shape->size);
    int apart, to, from;
    return seat_meet(shape, i, k, &apart, &to, &from) &&
           exchange_both(out, seat_peer(shape, to), is_leader(shape) ? all : none(BUFFER_RECV),
                         seat_peer(shape, from), from == 0 ? all : none(BUFFER_RECV), false);
}

/* Round i of the rounds in which only leaders take part. */
static bool leader_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    int between = log_above(seat_hosts(shape));
    if (i == 0)
        return k == 0 && exchange_copy(shape, out, own(shape), in_work(shape, 0, 1));
    return i <= between ? k == 0 && between_hosts(shape, i - 1, out)
                        : put_in_place(shape, i - 1 - between, k, out);
}

static bool leaders_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    int inside = seat_rounds(shape), spreads = leaders_rounds(shape) - inside;
    if (i < inside)
        return collect(shape, i, k, out);
    return i < spreads ? leader_round(shape, i - inside, k, out)
                       : spread(shape, i - spreads, k, out);
}

/* ---- Ring: a step is the blocks of one host, a few rounds ---- */

static int step_exchanges(const struct shape *shape)
{
    return seat_count(shape, seat_host(shape, shape->rank)) * seat_group_most(shape);
}

static int step_rounds(const struct shape *shape)
{
    return (step_exchanges(shape) + EXCHANGES - 1) / EXCHANGES;
}

static int handing_rounds(const struct shape *shape)
{
    return (seat_group_most(shape) + EXCHANGES - 1) / EXCHANGES;
}

static int ring_rounds(const struct shape *shape)
{
    return handing_rounds(shape) + seat_hosts(shape) * step_rounds(shape);
}

/* The j-th block that a seat brings of a host's; none if it has fewer. */
static struct span block(const struct shape *shape, int host, int seat, int j)
{
    int rank = seat_group_rank(shape, host, seat, j);
    return rank < 0 ? none(BUFFER_RECV) : recv_block(shape, rank);
}

/* The own block to RECV, and to its owner. */
static bool hand_over(const struct shape *shape, int i, int k, struct exchange *out)
{
    int host = seat_host(shape, shape->rank), seat = seat_of(shape, shape->rank);
    int owner = seat % seat_fewest(shape), j = i * EXCHANGES + k;
    if (j == 0)
        return exchange_copy(shape, out, own(shape), recv_block(shape, shape->rank));
    if (owner != seat)
        return j == 1 && exchange_send(out, seat_peer(shape, owner), own(shape));
    int other = seat_group_rank(shape, host, seat, j);
    return k < EXCHANGES && other >= 0 &&
           exchange_receive(out, other, recv_block(shape, other), false);
}

/* To the next host what came in the step before, and from the one before its. */
static bool pass(const struct shape *shape, int step, int j, struct exchange *out)
{
    int seat = seat_of(shape, shape->rank), has = seat_host_beyond(shape, -step);
    int lacks = seat_host_beyond(shape, -step - 1), owner = seat % seat_fewest(shape);
    if (step == seat_hosts(shape) - 1)
        return exchange_copy(shape, out, none(BUFFER_RECV), none(BUFFER_RECV));
    return exchange_both(
        out, seat_rank(shape, seat_host_beyond(shape, 1), owner), block(shape, has, seat, j),
        seat_rank(shape, seat_host_beyond(shape, -1), owner), block(shape, lacks, seat, j), false);
}

/* Block that a seat of this host hands to another: in step 0 its own, which its owner has. */
static struct span handed(const struct shape *shape, int step, int seat, int to, int j)
{
    int host = seat_host(shape, shape->rank);
    if (step)
        return block(shape, seat_host_beyond(shape, -step), seat, j);
    return j || (to != seat && to == seat % seat_fewest(shape))
               ? none(BUFFER_RECV)
               : recv_block(shape, seat_rank(shape, host, seat));
}

static bool share(const struct shape *shape, int step, int apart, int j, struct exchange *out)
{
    int seat = seat_of(shape, shape->rank), to, from;
    seat_apart(shape, apart, &to, &from);
    return exchange_both(out, seat_peer(shape, to), handed(shape, step, seat, to, j),
                         seat_peer(shape, from), handed(shape, step, from, seat, j), false);
}

static bool ring_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    int handing = handing_rounds(shape), each = step_rounds(shape), most = seat_group_most(shape);
    if (i < handing)
        return hand_over(shape, i, k, out);
    i -= handing;
    int step = i / each, x = i % each * EXCHANGES + k;
    if (k == EXCHANGES || x >= step_exchanges(shape))
        return false;
    return x < most ? pass(shape, step, x, out) : share(shape, step, x / most, x % most, out);
}

const struct algorithm algorithm_allgather_hierarchical_leaders = {
    .name = "hierarchical_leaders",
    .about = "Bruck's of hosts' blocks between one rank of each host (Karonis et al. 2000)",
    .work = leaders_work,
    .round = leaders_round,
    .rounds = leaders_rounds,
    .arrivals = nothing_arrives,
    .whole = true,
};

const struct algorithm algorithm_allgather_hierarchical_ring = {
    .name = "hierarchical_ring",
    .about = "a ring of hosts for each rank of a host (Traff, Hunold 2020)",
    .round = ring_round,
    .rounds = ring_rounds,
    .arrivals = nothing_arrives,
};
