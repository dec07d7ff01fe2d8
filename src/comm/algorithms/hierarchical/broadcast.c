/*
 * Hierarchical broadcast: the root hands the owners on its host their parts, the owners of a part
 * broadcast it between hosts by another algorithm, and each owner hands it to the ranks of its host.
 * With one part only one rank of each host receives from another host.
 *
 * Cost: with alpha', beta' inside a host of m ranks 2 ceil((m-1)/4) alpha' + 2 (m-1)/m n beta', and
 * the other algorithm's for n/m; of one part ceil((m-1)/4) alpha' + (m-1) n beta', and its for n.
 * Source: Karonis et al., "Exploiting hierarchy in parallel computer networks to optimize collective
 * operation performance", IPDPS 2000.
 */
#include "comm/algorithms/algorithm.h"

struct form {
    const struct algorithm *between;
    bool leaders; /* one part */
};

static int parts_of(const struct shape *shape, const struct form *form)
{
    return form->leaders ? 1 : seat_fewest(shape);
}

static bool is_at_root(const struct shape *shape)
{
    return seat_host(shape, shape->rank) == seat_host(shape, shape->root);
}

static int scatter_rounds(int parts)
{
    return (parts + EXCHANGES - 2) / EXCHANGES;
}

/* The root's parts to their owners on its host. */
static bool scatter(const struct shape *shape, int parts, int i, int k, struct exchange *out)
{
    int seat = seat_of(shape, shape->rank), first = 1 + i * EXCHANGES, other = first + k;
    if (!is_at_root(shape) || k == EXCHANGES)
        return false;
    if (seat == 0)
        return other < parts &&
               exchange_send(out, seat_peer(shape, other), seat_part(shape, parts, other));
    return k == 0 && seat >= first && seat < first + EXCHANGES && seat < parts &&
           exchange_receive(out, shape->root, seat_part(shape, parts, seat), false);
}

/* Every owner's part to the others of its host, but not to the root. */
static bool spread(const struct shape *shape, int parts, int i, int k, struct exchange *out)
{
    int apart, to, from, seat = seat_of(shape, shape->rank);
    if (!seat_meet(shape, i, k, &apart, &to, &from))
        return false;
    bool ends = is_at_root(shape);
    return exchange_both(
        out, ends && to == 0 ? -1 : seat_peer(shape, to), seat_part(shape, parts, seat),
        ends && seat == 0 ? -1 : seat_peer(shape, from), seat_part(shape, parts, from), false);
}

static int between_rounds(const struct shape *shape, const struct form *form)
{
    int parts = parts_of(shape, form), seat = seat_of(shape, shape->rank);
    struct shape between = seat_between(shape, seat_part(shape, parts, seat).len);
    return seat < parts ? form->between->rounds(&between) : 0;
}

static bool between_round(const struct shape *shape, const struct form *form, int i, int k,
                          struct exchange *out)
{
    struct span part = seat_part(shape, parts_of(shape, form), seat_of(shape, shape->rank));
    const struct span at[BUFFERS] = {[BUFFER_RECV] = part};
    struct shape between = seat_between(shape, part.len);
    if (!form->between->round(&between, i, k, out))
        return false;
    seat_translate(shape, at, out);
    return true;
}

static int form_rounds(const struct shape *shape, const struct form *form)
{
    return scatter_rounds(parts_of(shape, form)) + between_rounds(shape, form) + seat_rounds(shape);
}

static bool form_round(const struct shape *shape, const struct form *form, int i, int k,
                       struct exchange *out)
{
    int parts = parts_of(shape, form), scattering = scatter_rounds(parts);
    int between = between_rounds(shape, form);
    if (i < scattering)
        return scatter(shape, parts, i, k, out);
    i -= scattering;
    return i < between ? between_round(shape, form, i, k, out)
                       : spread(shape, parts, i - between, k, out);
}

static const struct form leaders = {&algorithm_broadcast_binomial, true};
static const struct form owners = {&algorithm_broadcast_scatter_ring, false};

static int leaders_rounds(const struct shape *shape)
{
    return form_rounds(shape, &leaders);
}

static bool leaders_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    return form_round(shape, &leaders, i, k, out);
}

static int owners_rounds(const struct shape *shape)
{
    return form_rounds(shape, &owners);
}

static bool owners_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    return form_round(shape, &owners, i, k, out);
}

const struct algorithm algorithm_broadcast_hierarchical_leaders = {
    .name = "hierarchical_leaders",
    .about = "a binomial tree of n between one rank of each host (Karonis et al. 2000)",
    .round = leaders_round,
    .rounds = leaders_rounds,
    .arrivals = nothing_arrives,
};

const struct algorithm algorithm_broadcast_hierarchical_ring = {
    .name = "hierarchical_ring",
    .about = "scatter and ring of n/m between hosts of m ranks (Karonis et al. 2000)",
    .round = owners_round,
    .rounds = owners_rounds,
    .arrivals = nothing_arrives,
};
