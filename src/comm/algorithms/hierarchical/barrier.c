/*
 * Hierarchical barrier: the ranks of a host send to its seat 0, these leaders run a dissemination
 * barrier between hosts, and each sends to the ranks of its host. A message is one element of WORK
 * without meaning.
 *
 * Cost: of h hosts of m ranks ceil(lg h) alpha + 2 ceil((m-1)/4) alpha', with alpha' inside a host.
 * Source: Karonis et al., "Exploiting hierarchy in parallel computer networks to optimize collective
 * operation performance", IPDPS 2000.
 */
#include "comm/algorithms/algorithm.h"

enum { TOKEN = 2 /* behind WORK of the dissemination: the first of those from other seats */ };

static size_t work(const struct shape *shape)
{
    return TOKEN + (size_t)seat_count(shape, seat_host(shape, shape->rank));
}

static int between_rounds(const struct shape *shape)
{
    struct shape between = seat_between(shape, 1);
    return seat_of(shape, shape->rank) ? 0 : algorithm_barrier_dissemination.rounds(&between);
}

static int rounds(const struct shape *shape)
{
    return 2 * seat_rounds(shape) + between_rounds(shape);
}

/* To seat 0, or from it. */
static bool inside(const struct shape *shape, bool in, int i, int k, struct exchange *out)
{
    int apart, to, from, seat = seat_of(shape, shape->rank);
    if (!seat_meet(shape, i, k, &apart, &to, &from))
        return false;
    bool sends = in ? to == 0 : seat == 0, receives = in ? seat == 0 : from == 0;
    return exchange_both(out, seat_peer(shape, to), (struct span){BUFFER_WORK, 0, sends},
                         seat_peer(shape, from),
                         (struct span){BUFFER_WORK, TOKEN + (size_t)apart, receives}, false);
}

static bool barrier_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    const struct span at[BUFFERS] = {[BUFFER_WORK] = {BUFFER_WORK, 0, 0}};
    struct shape between = seat_between(shape, 1);
    int inside_rounds = seat_rounds(shape), outside = between_rounds(shape);
    if (i < inside_rounds)
        return inside(shape, true, i, k, out);
    i -= inside_rounds;
    if (i >= outside)
        return inside(shape, false, i - outside, k, out);
    if (!algorithm_barrier_dissemination.round(&between, i, k, out))
        return false;
    seat_translate(shape, at, out);
    return true;
}

const struct algorithm algorithm_barrier_hierarchical = {
    .name = "hierarchical_dissemination",
    .about = "ceil(lg h) alpha between one rank of each of h hosts (Karonis et al. 2000)",
    .work = work,
    .round = barrier_round,
    .rounds = rounds,
    .arrivals = nothing_arrives,
};
