/*
 * Hierarchical allreduce: each host's ranks hand the owner of each part of the vector their parts, the
 * owner adds them up in the order of the seats below it, the owners of a part on all hosts reduce it by
 * another algorithm between hosts, and each owner hands the result to the ranks of its host. So only
 * n/m bytes of a rank pass the network where m ranks are on a host. With one part only leaders send
 * between hosts: the fewest messages.
 *
 * Cost: with alpha', beta' inside a host 2 ceil((m-1)/4) alpha' + 2 (m-1)/m n beta' + (m-1)/m n gamma,
 * and the other algorithm's for n/m; of leaders 2 (m-1) n beta' + (m-1) n gamma, and its for n. Source:
 * Karonis, de Supinski, Foster, Gropp, Lusk, Bresnahan, "Exploiting hierarchy in parallel computer
 * networks to optimize collective operation performance", IPDPS 2000; parts as in Cho, Finkler,
 * Serrano, Kung, Hunter, "BlueConnect: decomposing all-reduce for deep learning on heterogeneous
 * network hierarchy", MLSys 2019.
 */
#include "comm/algorithms/algorithm.h"

/* One of the algorithms of this file. */
struct form {
    const struct algorithm *between;
    bool leaders; /* one part */
};

/* A rank's view of its call. */
struct view {
    int seat, parts, others; /* others: on its host */
    struct span part;        /* its own */
};

static struct view view_of(const struct shape *shape, bool leaders)
{
    int seat = seat_of(shape, shape->rank), parts = leaders ? 1 : seat_fewest(shape);
    return (struct view){seat, parts, seat_count(shape, seat_host(shape, shape->rank)) - 1,
                         seat_part(shape, parts, seat)};
}

static bool is_owner(const struct view *v)
{
    return v->seat < v->parts;
}

/* Place in WORK of the data from the rank `apart` seats below. */
static struct span arrival(const struct view *v, int apart)
{
    return (struct span){BUFFER_WORK, (size_t)(apart - 1) * v->part.len, v->part.len};
}

/* Inside the host: everybody's parts to their owners, or the finished part to everybody. */
static bool collect(const struct shape *shape, const struct view *v, int i, int k,
                    struct exchange *out)
{
    int apart, to, from;
    return seat_meet(shape, i, k, &apart, &to, &from) &&
           exchange_both(out, seat_peer(shape, to), seat_part(shape, v->parts, to),
                         seat_peer(shape, from), arrival(v, apart), false);
}

static bool spread(const struct shape *shape, const struct view *v, int i, int k,
                   struct exchange *out)
{
    int apart, to, from;
    return seat_meet(shape, i, k, &apart, &to, &from) &&
           exchange_both(out, seat_peer(shape, to), v->part, seat_peer(shape, from),
                         seat_part(shape, v->parts, from), false);
}

static bool between_hosts(const struct shape *shape, const struct form *form, const struct view *v,
                          int i, int k, struct exchange *out)
{
    const struct span at[BUFFERS] = {[BUFFER_RECV] = v->part};
    struct shape between = seat_between(shape, v->part.len);
    if (!form->between->round(&between, i, k, out))
        return false;
    seat_translate(shape, at, out);
    return true;
}

static int rounds_between(const struct shape *shape, const struct form *form, const struct view *v)
{
    struct shape between = seat_between(shape, v->part.len);
    return is_owner(v) ? form->between->rounds(&between) : 0;
}

static int form_rounds(const struct shape *shape, const struct form *form)
{
    struct view v = view_of(shape, form->leaders);
    return 2 * seat_rounds(shape) + (is_owner(&v) ? v.others : 0) + rounds_between(shape, form, &v);
}

static bool form_round(const struct shape *shape, const struct form *form, int i, int k,
                       struct exchange *out)
{
    struct view v = view_of(shape, form->leaders);
    int inside = seat_rounds(shape), sums = is_owner(&v) ? v.others : 0;
    int between = rounds_between(shape, form, &v);
    if (i < inside)
        return collect(shape, &v, i, k, out);
    i -= inside;
    if (i < sums)
        return k == 0 &&
               exchange_both(out, shape->rank, arrival(&v, i + 1), shape->rank, v.part, true);
    i -= sums;
    return i < between ? between_hosts(shape, form, &v, i, k, out)
                       : spread(shape, &v, i - between, k, out);
}

static size_t form_work(const struct shape *shape, bool leaders)
{
    struct view v = view_of(shape, leaders);
    return (size_t)v.others * v.part.len;
}

static size_t leaders_work(const struct shape *shape)
{
    return form_work(shape, true);
}

static size_t owners_work(const struct shape *shape)
{
    return form_work(shape, false);
}

static size_t leaders_arrivals(const struct shape *shape)
{
    return view_of(shape, true).part.len;
}

static size_t owners_arrivals(const struct shape *shape)
{
    return view_of(shape, false).part.len;
}

#define FORM(NAME, BETWEEN, LEADERS)                                                               \
    static const struct form NAME = {&(BETWEEN), LEADERS};                                         \
    static int NAME##_rounds(const struct shape *shape)                                            \
    {                                                                                              \
        return form_rounds(shape, &NAME);                                                          \
    }                                                                                              \
    static bool NAME##_round(const struct shape *shape, int i, int k, struct exchange *out)        \
    {                                                                                              \
        return form_round(shape, &NAME, i, k, out);                                                \
    }

FORM(leaders, algorithm_recursive_doubling, true)
FORM(doubling, algorithm_recursive_doubling, false)
FORM(rabenseifner, algorithm_rabenseifner, false)
FORM(ring, algorithm_ring, false)

const struct algorithm algorithm_hierarchical_leaders = {
    .name = "hierarchical_leaders",
    .about = "recursive doubling of n between one rank of each host (Karonis et al. 2000)",
    .work = leaders_work,
    .round = leaders_round,
    .rounds = leaders_rounds,
    .arrivals = leaders_arrivals,
};

const struct algorithm algorithm_hierarchical_doubling = {
    .name = "hierarchical_doubling",
    .about = "recursive doubling of n/m between hosts of m ranks (Cho et al. 2019)",
    .work = owners_work,
    .round = doubling_round,
    .rounds = doubling_rounds,
    .arrivals = owners_arrivals,
};

const struct algorithm algorithm_hierarchical_rabenseifner = {
    .name = "hierarchical_rabenseifner",
    .about = "rabenseifner of n/m between hosts of m ranks (Cho et al. 2019)",
    .work = owners_work,
    .round = rabenseifner_round,
    .rounds = rabenseifner_rounds,
    .arrivals = owners_arrivals,
};

const struct algorithm algorithm_hierarchical_ring = {
    .name = "hierarchical_ring",
    .about = "ring of n/m between hosts of m ranks (Cho et al. 2019)",
    .work = owners_work,
    .round = ring_round,
    .rounds = ring_rounds,
    .arrivals = owners_arrivals,
};
