/* The arithmetic that several algorithms share. Pure functions. */
#include "comm/algorithms/algorithm.h"

int log_below(int p)
{
    int log = 0;
    while (p >> (log + 1))
        log++;
    return log;
}

int power_below(int p)
{
    return 1 << log_below(p);
}

int log_above(int p)
{
    return p == 1 ? 0 : log_below(p - 1) + 1;
}

int rank_beyond(const struct shape *shape, int distance)
{
    return (shape->rank + shape->size + distance) % shape->size;
}

size_t block_at(size_t count, int blocks, int b)
{
    size_t each = count / (size_t)blocks, rest = count % (size_t)blocks, index = (size_t)b;
    return index * each + (index < rest ? index : rest);
}

struct span block_span(size_t count, int blocks, int first, int last)
{
    size_t at = block_at(count, blocks, first);
    return (struct span){BUFFER_RECV, at, block_at(count, blocks, last) - at};
}

static struct span rank_block(const struct shape *shape, enum buffer in, const size_t *counts,
                              const size_t *at, int b)
{
    if (counts)
        return (struct span){in, at[b], counts[b]};
    return (struct span){in, (size_t)b * shape->stride, shape->count};
}

struct span send_block(const struct shape *shape, int b)
{
    return rank_block(shape, BUFFER_SEND, shape->send_counts, shape->send_at, b);
}

struct span recv_block(const struct shape *shape, int b)
{
    return rank_block(shape, BUFFER_RECV, shape->recv_counts, shape->recv_at, b);
}

struct span blocks_from(const struct shape *shape, enum buffer in, int first, int count)
{
    return (struct span){in, (size_t)first * shape->count, (size_t)count * shape->count};
}

struct span blocks_between(const struct shape *shape, enum buffer in, int first, int last)
{
    return blocks_from(shape, in, first, last - first);
}

size_t nothing_arrives(const struct shape *shape)
{
    (void)shape;
    return 0;
}

bool exchange_both(struct exchange *out, int to, struct span send, int from, struct span recv,
                   bool reduce)
{
    *out = (struct exchange){.to = to, .from = from, .send = send, .recv = recv, .reduce = reduce};
    return true;
}

bool exchange_send(struct exchange *out, int to, struct span send)
{
    return exchange_both(out, to, send, -1, send, false);
}

bool exchange_receive(struct exchange *out, int from, struct span recv, bool reduce)
{
    return exchange_both(out, -1, recv, from, recv, reduce);
}

bool exchange_copy(const struct shape *shape, struct exchange *out, struct span from,
                   struct span to)
{
    return exchange_both(out, shape->rank, from, shape->rank, to, false);
}

int tree_place(const struct shape *shape)
{
    return rank_beyond(shape, -shape->root);
}

int tree_rank(const struct shape *shape, int place)
{
    return (place + shape->root) % shape->size;
}

int tree_extent(const struct shape *shape, int place)
{
    int below = place & -place, left = shape->size - place;
    return place && below < left ? below : left;
}

int fold_pairs(const struct shape *shape)
{
    return shape->size - power_below(shape->size);
}

bool fold_needed(const struct shape *shape)
{
    return fold_pairs(shape) > 0;
}

bool fold_has_pair(const struct shape *shape)
{
    return shape->rank < 2 * fold_pairs(shape);
}

int fold_first(const struct shape *shape, int place)
{
    int r = fold_pairs(shape);
    return place < r ? 2 * place : place + r;
}

int fold_place(const struct shape *shape)
{
    if (!fold_has_pair(shape))
        return shape->rank - fold_pairs(shape);
    return shape->rank % 2 ? shape->rank / 2 : -1;
}

int fold_rank(const struct shape *shape, int place)
{
    return fold_first(shape, place) + (place < fold_pairs(shape));
}

/* A rank of a folded pair sends to the other, or receives from it. */
static bool fold_exchange(const struct shape *shape, bool sends, bool reduce, struct exchange *out)
{
    struct span all = {BUFFER_RECV, 0, shape->count};
    if (!fold_has_pair(shape))
        return false;
    return sends ? exchange_send(out, shape->rank ^ 1, all)
                 : exchange_receive(out, shape->rank ^ 1, all, reduce);
}

bool fold_in(const struct shape *shape, struct exchange *out)
{
    return fold_exchange(shape, shape->rank % 2 == 0, true, out);
}

bool fold_out(const struct shape *shape, struct exchange *out)
{
    return fold_exchange(shape, shape->rank % 2 == 1, false, out);
}
