/*
 * Hierarchical reduce-scatter, the allgather of the same name backwards. Leaders: the ranks of a host
 * hand their vectors to one of them, these leaders add them up, reduce and scatter hosts' blocks
 * between hosts in Bruck's rounds in reverse, and hand each rank of their host its block. Ring: for the
 * blocks of one host after the other each owner adds up what the ranks of its host have of its seat's,
 * adds what comes from the host before, and passes the sum on; it collects the next meanwhile. Blocks
 * may have any length. Sums are in the order of the seats below.
 *
 * Cost: of h hosts of m ranks, with alpha', beta' inside a host, leaders ceil(lg h) alpha + (h-1)/h n
 * (beta + gamma) + 2 ceil((m-1)/4) alpha' + (m-1) n (beta' + gamma); ring (h-1) (alpha + n/p (beta +
 * gamma)), beside m/4 alpha' + (m-1) n/p (beta' + gamma) in each step. Source: Karonis et al.,
 * "Exploiting hierarchy in parallel computer networks to optimize collective operation performance",
 * IPDPS 2000; Traff, Hunold, "Decomposing MPI collectives for exploiting multi-lane communication",
 * CLUSTER 2020; Bruck et al., IEEE TPDS 8(11), 1997.
 */
#include "comm/algorithms/algorithm.h"

static struct span own(const struct shape *shape)
{
    return (struct span){BUFFER_RECV, 0, send_block(shape, shape->rank).len};
}

static struct span none(enum buffer in)
{
    return (struct span){in, 0, 0};
}

static int here(const struct shape *shape)
{
    return seat_count(shape, seat_host(shape, shape->rank));
}

/* ---- Leaders: WORK has the sums by hosts, from the leader's own on, and behind them each rank's
 * input as it came ---- */

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
    return is_leader(shape) ? (size_t)here(shape) * (size_t)shape->size * shape->count : 0;
}

static int adding_rounds(const struct shape *shape)
{
    return (rank_runs(shape) + EXCHANGES - 1) / EXCHANGES;
}

static int leaders_rounds(const struct shape *shape)
{
    int alone = here(shape) * adding_rounds(shape) + log_above(seat_hosts(shape)) + 1;
    return 2 * seat_rounds(shape) + (is_leader(shape) ? alone : 0);
}

static bool collect(const struct shape *shape, int i, int k, struct exchange *out)
{
    int apart, to, from, p = shape->size;
    return seat_meet(shape, i, k, &apart, &to, &from) &&
           exchange_both(out, seat_peer(shape, to),
                         to == 0 ? blocks_between(shape, BUFFER_SEND, 0, p) : none(BUFFER_SEND),
                         seat_peer(shape, from),
                         is_leader(shape) ? in_work(shape, apart * p, p) : none(BUFFER_WORK),
                         false);
}

/* The own input, then that of the rank so many seats below. */
static bool add(const struct shape *shape, int i, int k, struct exchange *out)
{
    int each = adding_rounds(shape), apart = i / each;
    struct rank_run run;
    if (k == EXCHANGES || !rank_run(shape, i % each * EXCHANGES + k, &run))
        return false;
    struct span from = apart ? in_work(shape, apart * shape->size + run.rank, run.count)
                             : blocks_from(shape, BUFFER_SEND, run.rank, run.count);
    return exchange_both(out, shape->rank, from, shape->rank, in_work(shape, run.at, run.count),
                         apart > 0);
}

/* So many hosts' sums arrive in round i. */
static int brought(const struct shape *shape, int i)
{
    int has = 1 << i, lacks = seat_hosts(shape) - has;
    return has < lacks ? has : lacks;
}

static size_t leaders_arrivals(const struct shape *shape)
{
    int host = seat_host(shape, shape->rank), most = 0;
    for (int i = 0; is_leader(shape) && i < log_above(seat_hosts(shape)); i++)
        most = brought(shape, i) > most ? brought(shape, i) : most;
    return (size_t)seat_ranks(shape, host, most) * shape->count;
}

static bool between_hosts(const struct shape *shape, int i, struct exchange *out)
{
    int host = seat_host(shape, shape->rank), has = 1 << i, more = brought(shape, i);
    int to = seat_host_beyond(shape, has);
    return exchange_both(out, seat_rank(shape, to, 0),
                         in_work(shape, seat_ranks(shape, host, has), seat_ranks(shape, to, more)),
                         seat_rank(shape, seat_host_beyond(shape, -has), 0),
                         in_work(shape, 0, seat_ranks(shape, host, more)), true);
}

static bool hand_out(const struct shape *shape, int i, int k, struct exchange *out)
{
    int apart, to, from;
    return seat_meet(shape, i, k, &apart, &to, &from) &&
           exchange_both(out, seat_peer(shape, to),
                         is_leader(shape) ? in_work(shape, to, 1) : none(BUFFER_WORK),
                         seat_peer(shape, from), from == 0 ? own(shape) : none(BUFFER_RECV), false);
}

/* Round i of the rounds in which only leaders take part. */
static bool leader_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    int adding = here(shape) * adding_rounds(shape), between = log_above(seat_hosts(shape));
    if (i < adding)
        return add(shape, i, k, out);
    i -= adding;
    return k == 0 && (i < between ? between_hosts(shape, between - 1 - i, out)
                                  : exchange_copy(shape, out, in_work(shape, 0, 1), own(shape)));
}

static bool leaders_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    int inside = seat_rounds(shape), handing = leaders_rounds(shape) - inside;
    if (i < inside)
        return collect(shape, i, k, out);
    return i < handing ? leader_round(shape, i - inside, k, out)
                       : hand_out(shape, i - handing, k, out);
}

/* ---- Ring: a step is the blocks of one host; a few rounds of exchanges, then the sums ---- */

/* The elements of the first `count` blocks of a host's that a seat brings. */
static size_t elements(const struct shape *shape, int host, int seat, int count)
{
    size_t sum = 0;
    for (int j = 0; j < count && seat_group_rank(shape, host, seat, j) >= 0; j++)
        sum += send_block(shape, seat_group_rank(shape, host, seat, j)).len;
    return sum;
}

/* Whose blocks a step is about, and where they are in WORK: the sum, which is on its way while the
 * next one's inputs arrive behind it, and behind those what came from the host before. */
struct step {
    int index, host, seat;
    size_t len, inputs, sent; /* sent: of the step before */
};

static struct step step_at(const struct shape *shape, int i)
{
    int host = seat_host_beyond(shape, -1 - i), seat = seat_of(shape, shape->rank);
    int most = seat_group_most(shape);
    size_t len = elements(shape, host, seat, most);
    size_t sent = i ? elements(shape, seat_host_beyond(shape, -i), seat, most) : 0;
    return (struct step){i, host, seat, len, len > sent ? len : sent, sent};
}

static size_t ring_work(const struct shape *shape)
{
    size_t most = 0;
    for (int i = 0; i < seat_hosts(shape); i++) {
        struct step s = step_at(shape, i);
        size_t all = s.inputs + (size_t)here(shape) * s.len;
        most = all > most ? all : most;
    }
    return most;
}

/* A part of WORK; of the inputs that of the rank so many seats below, the host before being the
 * last. */
static struct span sum(const struct step *s)
{
    return (struct span){BUFFER_WORK, 0, s->len};
}

static struct span input(const struct step *s, int apart)
{
    return (struct span){BUFFER_WORK, s->inputs + (size_t)(apart - 1) * s->len, s->len};
}

static int in_rounds(int exchanges)
{
    return (exchanges + EXCHANGES - 1) / EXCHANGES;
}

static int step_exchanges(const struct shape *shape)
{
    return 1 + (here(shape) - 1) * seat_group_most(shape);
}

static int step_rounds(const struct shape *shape)
{
    return in_rounds(step_exchanges(shape)) + in_rounds(seat_group_most(shape)) + here(shape);
}

static int ring_rounds(const struct shape *shape)
{
    return seat_hosts(shape) * step_rounds(shape) + in_rounds(seat_group_most(shape));
}

static bool pass(const struct shape *shape, const struct step *s, struct exchange *out)
{
    int owner = s->seat % seat_fewest(shape);
    if (s->index == 0)
        return exchange_copy(shape, out, none(BUFFER_WORK), none(BUFFER_WORK));
    return exchange_both(out, seat_rank(shape, seat_host_beyond(shape, 1), owner),
                         (struct span){BUFFER_WORK, 0, s->sent},
                         seat_rank(shape, seat_host_beyond(shape, -1), owner),
                         input(s, here(shape)), false);
}

/* The j-th block that a seat brings of a host's, in SEND; none if it has fewer. */
static struct span block(const struct shape *shape, int host, int seat, int j)
{
    int rank = seat_group_rank(shape, host, seat, j);
    return rank < 0 ? none(BUFFER_SEND) : send_block(shape, rank);
}

/* The j-th of the blocks that lie one behind the other in WORK from `first` on. */
static struct span packed(const struct shape *shape, const struct step *s, size_t first, int j)
{
    return (struct span){BUFFER_WORK, first + elements(shape, s->host, s->seat, j),
                         block(shape, s->host, s->seat, j).len};
}

static bool gather(const struct shape *shape, const struct step *s, int apart, int j,
                   struct exchange *out)
{
    int to, from;
    seat_apart(shape, apart, &to, &from);
    return exchange_both(out, seat_peer(shape, to), block(shape, s->host, to, j),
                         seat_peer(shape, from), packed(shape, s, input(s, apart).at, j), false);
}

/* The own input, then the others', and in the end what came from the host before. */
static bool add_up(const struct shape *shape, const struct step *s, int i, int k,
                   struct exchange *out)
{
    int copies = in_rounds(seat_group_most(shape)), j = i * EXCHANGES + k;
    int apart = i - copies + 1;
    if (i >= copies)
        return k == 0 && apart < here(shape) + (s->index > 0) &&
               exchange_both(out, shape->rank, input(s, apart), shape->rank, sum(s), true);
    return k < EXCHANGES && j < seat_group_most(shape) &&
           exchange_copy(shape, out, block(shape, s->host, s->seat, j), packed(shape, s, 0, j));
}

/* Sums to whom they belong. */
static bool deliver(const struct shape *shape, int i, int k, struct exchange *out)
{
    struct step last = step_at(shape, seat_hosts(shape) - 1);
    int owner = last.seat % seat_fewest(shape), j = i * EXCHANGES + k;
    if (owner != last.seat)
        return j == 0 && exchange_receive(out, seat_peer(shape, owner), own(shape), false);
    if (j == 0)
        return exchange_copy(shape, out, packed(shape, &last, 0, 0), own(shape));
    int other = seat_group_rank(shape, last.host, last.seat, j);
    return k < EXCHANGES && other >= 0 && exchange_send(out, other, packed(shape, &last, 0, j));
}

static bool ring_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    int each = step_rounds(shape), index = i / each, most = seat_group_most(shape);
    int exchanging = in_rounds(step_exchanges(shape)), x = i % each * EXCHANGES + k;
    if (index == seat_hosts(shape))
        return deliver(shape, i - index * each, k, out);
    struct step s = step_at(shape, index);
    if (i % each >= exchanging)
        return s.seat < seat_fewest(shape) && add_up(shape, &s, i % each - exchanging, k, out);
    if (k == EXCHANGES || x >= step_exchanges(shape))
        return false;
    return x == 0 ? pass(shape, &s, out)
                  : gather(shape, &s, 1 + (x - 1) / most, (x - 1) % most, out);
}

const struct algorithm algorithm_reduce_scatter_hierarchical_leaders = {
    .name = "hierarchical_leaders",
    .about =
        "Bruck's in reverse of hosts' sums between one rank of each host (Karonis et al. 2000)",
    .work = leaders_work,
    .round = leaders_round,
    .rounds = leaders_rounds,
    .arrivals = leaders_arrivals,
    .whole = true,
};

const struct algorithm algorithm_reduce_scatter_hierarchical_ring = {
    .name = "hierarchical_ring",
    .about = "a ring of hosts for each rank of a host (Traff, Hunold 2020)",
    .work = ring_work,
    .round = ring_round,
    .rounds = ring_rounds,
    .arrivals = nothing_arrives,
};
