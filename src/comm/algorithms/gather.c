/*
 * Gather and scatter over a binomial tree: a place hands to its parent, or gets from it, its own
 * block and those of all places below it. Only the root has all blocks; the others keep those of
 * the places below them in WORK, their own first. The root has them in the order of ranks, so that
 * those of one child may be in two parts.
 *
 * Cost: ceil(lg p) alpha + (p-1)/p n beta. Source: Chan, Heimlich, Purkayastha, van de Geijn,
 * "Collective communication: theory, practice, and experience", CCPE 19(13), 2007.
 */
#include "comm/algorithms/algorithm.h"

static int rounds(const struct shape *shape)
{
    return shape->size == 1 ? 1 : log_above(shape->size);
}

static size_t work(const struct shape *shape)
{
    int place = tree_place(shape), extent = tree_extent(shape, place);
    return place && extent > 1 ? (size_t)extent * shape->count : 0;
}

/* An edge of the tree that this rank is at, and the k-th run of blocks that goes over it: from so
 * many places beyond the child on. */
struct edge {
    int parent, child;
    int at, count;
};

static bool edge_at(const struct shape *shape, int distance, int k, struct edge *out)
{
    int place = tree_place(shape), parent = place - place % (2 * distance);
    int child = parent + distance, p = shape->size;
    if (child >= p || (place != parent && place != child))
        return false;
    int extent = tree_extent(shape, child), to_end = p - tree_rank(shape, child);
    bool wraps = parent == 0 && extent > to_end;
    int at = k ? to_end : 0, end = wraps && k == 0 ? to_end : extent;
    *out = (struct edge){parent, child, at, end - at};
    return k <= wraps;
}

/* The blocks of an edge at the parent, where the root has them in `all`, and at the child, where a
 * leaf has its one in `own`. */
static struct span parents(const struct shape *shape, const struct edge *e, enum buffer all)
{
    int first = e->child + e->at;
    return e->parent ? blocks_from(shape, BUFFER_WORK, first - e->parent, e->count)
                     : blocks_from(shape, all, tree_rank(shape, first), e->count);
}

static struct span childs(const struct shape *shape, const struct edge *e, enum buffer own)
{
    bool leaf = tree_extent(shape, e->child) == 1;
    return blocks_from(shape, leaf ? own : BUFFER_WORK, e->at, e->count);
}

static bool gather_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    struct edge e;
    int place = tree_place(shape);
    bool inner = place && tree_extent(shape, place) > 1;
    struct span own = blocks_from(shape, BUFFER_SEND, 0, 1);
    if (i == 0 && place == 0 && k-- == 0)
        return exchange_copy(shape, out, own, recv_block(shape, shape->rank));
    if (i == 0 && inner && k-- == 0)
        return exchange_copy(shape, out, own, blocks_from(shape, BUFFER_WORK, 0, 1));
    if (!edge_at(shape, 1 << i, k, &e))
        return false;
    return place == e.child
               ? exchange_send(out, tree_rank(shape, e.parent), childs(shape, &e, BUFFER_SEND))
               : exchange_receive(out, tree_rank(shape, e.child), parents(shape, &e, BUFFER_RECV),
                                  false);
}

static bool scatter_round(const struct shape *shape, int i, int k, struct exchange *out)
{
    struct edge e;
    int place = tree_place(shape), distance = 1 << rounds(shape) >> (i + 1);
    bool inner = place && tree_extent(shape, place) > 1;
    struct span own = blocks_from(shape, BUFFER_RECV, 0, 1);
    if (i == 0 && place == 0 && k-- == 0)
        return exchange_copy(shape, out, send_block(shape, shape->rank), own);
    if (inner && (place & -place) == 2 * distance && k-- == 0) /* it came in the round before */
        return exchange_copy(shape, out, blocks_from(shape, BUFFER_WORK, 0, 1), own);
    if (!edge_at(shape, distance, k, &e))
        return false;
    return place == e.child
               ? exchange_receive(out, tree_rank(shape, e.parent), childs(shape, &e, BUFFER_RECV),
                                  false)
               : exchange_send(out, tree_rank(shape, e.child), parents(shape, &e, BUFFER_SEND));
}

const struct algorithm algorithm_gather_binomial = {
    .name = "binomial",
    .about = "ceil(lg p) alpha + (p-1)/p n beta (Chan et al. 2007)",
    .work = work,
    .round = gather_round,
    .rounds = rounds,
    .arrivals = nothing_arrives,
    .whole = true,
};

const struct algorithm algorithm_scatter_binomial = {
    .name = "binomial",
    .about = "ceil(lg p) alpha + (p-1)/p n beta (Chan et al. 2007)",
    .work = work,
    .round = scatter_round,
    .rounds = rounds,
    .arrivals = nothing_arrives,
    .whole = true,
};
