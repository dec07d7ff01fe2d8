/* See call_model.h. Nothing here is the library's but the numbers of types and operations. */
#include "tests/fuzz/call_model.h"

#include "tests/fuzz/call_values.h"

#include <stdint.h>
#include <string.h>

/* ---- Sides ---- */

struct blocks {
    int number;
    size_t at[MODEL_RANKS], count[MODEL_RANKS];
    int base; /* as a place */
};

static bool has_root(int collective)
{
    return collective == ALNICO_REDUCE || collective == ALNICO_BROADCAST ||
           (collective >= ALNICO_GATHER && collective <= ALNICO_SCATTERV);
}

static bool reduces(int collective)
{
    return collective == ALNICO_ALLREDUCE || collective == ALNICO_REDUCE ||
           collective == ALNICO_REDUCE_SCATTER || collective == ALNICO_REDUCE_SCATTERV;
}

bool model_is_vector(const struct model_call *c)
{
    return c->collective == ALNICO_ALLGATHERV || c->collective == ALNICO_REDUCE_SCATTERV ||
           c->collective == ALNICO_GATHERV || c->collective == ALNICO_SCATTERV ||
           c->collective == ALNICO_ALLTOALLV;
}

/* Whose array says how long the blocks are. */
static int side_of_counts(const struct model_call *c)
{
    return c->collective == ALNICO_REDUCE_SCATTERV || c->collective == ALNICO_SCATTERV ? SENT
                                                                                       : RECEIVED;
}

void model_counts(const struct model_call *c, int side, int rank, int size, size_t *counts)
{
    int shift = c->collective == ALNICO_ALLTOALLV ? rank : 0;
    for (int b = 0; b < size; b++)
        counts[b] = c->counts[side][(b + shift) % size];
}

static size_t block_count(const struct model_call *c, int rank, int size)
{
    size_t counts[MODEL_RANKS];
    if (!model_is_vector(c))
        return c->count;
    model_counts(c, side_of_counts(c), rank, size, counts);
    return counts[rank];
}

size_t model_own_count(const struct model_call *c, int rank, int size)
{
    return block_count(c, rank, size) + c->extra;
}

static bool is_alltoall(int collective)
{
    return collective == ALNICO_ALLTOALL || collective == ALNICO_ALLTOALLV;
}

static bool is_in_place_alltoall(const struct model_call *c)
{
    return c->send == PLACE_IN_PLACE || (c->send >= 0 && c->send == c->recv);
}

static struct blocks one(const struct model_call *c, int rank, int size, int base)
{
    size_t count = block_count(c, rank, size);
    bool own = c->collective == ALNICO_ALLGATHERV || c->collective == ALNICO_GATHERV ||
               c->collective == ALNICO_SCATTERV;
    return (struct blocks){1, {0}, {own ? count + c->extra : count}, base};
}

/* Whether blocks may be elsewhere than one behind the other. */
static bool has_places(const struct model_call *c)
{
    return model_is_vector(c) && c->collective != ALNICO_REDUCE_SCATTERV;
}

static struct blocks all(const struct model_call *c, int side, int rank, int size, int base)
{
    struct blocks blocks = {.number = size, .base = base};
    size_t next = 0;
    if (model_is_vector(c))
        model_counts(c, side, rank, size, blocks.count);
    for (int b = 0; b < size; b++) {
        if (!model_is_vector(c))
            blocks.count[b] = c->count;
        blocks.at[b] = next;
        if (has_places(c) && c->has_at[side])
            blocks.at[b] = c->at[side][b];
        next += blocks.count[b];
    }
    return blocks;
}

static struct blocks none(void)
{
    return (struct blocks){.base = PLACE_NULL};
}

/* The place of the rank's own block in the other buffer. */
static int own_place(const struct model_call *c, const struct blocks *blocks, int rank)
{
    size_t place = (size_t)blocks->base + blocks->at[rank] * values_bytes(c->type);
    return blocks->base < 0 ? blocks->base : (int)place;
}

static struct blocks reads(const struct model_call *c, int rank, int size)
{
    bool in_place = c->send == PLACE_IN_PLACE;
    struct blocks whole;
    switch (c->collective) {
    case ALNICO_ALLREDUCE:
    case ALNICO_REDUCE:
        return one(c, rank, size, in_place ? c->recv : c->send);
    case ALNICO_BROADCAST:
        return rank == c->root ? one(c, rank, size, c->recv) : none();
    case ALNICO_ALLGATHER:
    case ALNICO_ALLGATHERV:
    case ALNICO_GATHER:
    case ALNICO_GATHERV:
        whole = all(c, RECEIVED, rank, size, c->recv);
        return one(c, rank, size, in_place ? own_place(c, &whole, rank) : c->send);
    case ALNICO_REDUCE_SCATTER:
    case ALNICO_REDUCE_SCATTERV:
        return all(c, SENT, rank, size, in_place ? c->recv : c->send);
    case ALNICO_SCATTER:
    case ALNICO_SCATTERV:
        return rank == c->root ? all(c, SENT, rank, size, c->send) : none();
    case ALNICO_ALLTOALL:
    case ALNICO_ALLTOALLV:
        return is_in_place_alltoall(c) ? all(c, RECEIVED, rank, size, c->recv)
                                       : all(c, SENT, rank, size, c->send);
    default:
        return none();
    }
}

static struct blocks writes(const struct model_call *c, int rank, int size)
{
    struct blocks whole;
    switch (c->collective) {
    case ALNICO_ALLREDUCE:
        return one(c, rank, size, c->recv);
    case ALNICO_REDUCE:
        return rank == c->root ? one(c, rank, size, c->recv) : none();
    case ALNICO_BROADCAST:
        return rank == c->root ? none() : one(c, rank, size, c->recv);
    case ALNICO_ALLGATHER:
    case ALNICO_ALLGATHERV:
    case ALNICO_ALLTOALL:
    case ALNICO_ALLTOALLV:
        return all(c, RECEIVED, rank, size, c->recv);
    case ALNICO_GATHER:
    case ALNICO_GATHERV:
        return rank == c->root ? all(c, RECEIVED, rank, size, c->recv) : none();
    case ALNICO_REDUCE_SCATTER:
    case ALNICO_REDUCE_SCATTERV:
        whole = all(c, SENT, rank, size, c->recv);
        return one(c, rank, size, c->send == PLACE_IN_PLACE ? own_place(c, &whole, rank) : c->recv);
    case ALNICO_SCATTER:
    case ALNICO_SCATTERV:
        whole = all(c, SENT, rank, size, c->send);
        return one(c, rank, size, c->recv == PLACE_IN_PLACE ? own_place(c, &whole, rank) : c->recv);
    default:
        return none();
    }
}

/* ---- What is allowed ---- */

/* Elements from the base to the end of the last block that has any; SIZE_MAX if that is beyond all
 * addresses. */
static size_t extent(const struct blocks *blocks, size_t element)
{
    size_t most = (size_t)PTRDIFF_MAX / element, last = 0;
    for (int b = 0; b < blocks->number; b++) {
        size_t at = blocks->at[b], count = blocks->count[b];
        if (count == 0)
            continue;
        if (count > most || at > most || at + count > most)
            return SIZE_MAX;
        last = at + count > last ? at + count : last;
    }
    return last;
}

static bool is_good_side(const struct blocks *blocks, size_t element)
{
    size_t elements = extent(blocks, element);
    if (elements == 0)
        return true;
    return elements < SIZE_MAX && blocks->base >= 0 && (size_t)blocks->base % element == 0;
}

static bool meet(size_t a, size_t a_bytes, size_t b, size_t b_bytes)
{
    return a_bytes && b_bytes && a < b + b_bytes && b < a + a_bytes;
}

static bool sides_meet(const struct blocks *r, const struct blocks *w, size_t element)
{
    for (int i = 0; i < r->number; i++)
        for (int k = 0; k < w->number; k++)
            if (meet((size_t)r->base + r->at[i] * element, r->count[i] * element,
                     (size_t)w->base + w->at[k] * element, w->count[k] * element))
                return true;
    return false;
}

static bool is_in_place(const struct model_call *c, const struct blocks *r, const struct blocks *w,
                        int rank)
{
    if (is_alltoall(c->collective))
        return is_in_place_alltoall(c);
    return own_place(c, r, r->number > 1 ? rank : 0) == own_place(c, w, w->number > 1 ? rank : 0);
}

static bool is_nowhere(const struct model_call *c, int rank)
{
    bool scatters = c->collective == ALNICO_SCATTER || c->collective == ALNICO_SCATTERV;
    bool gathers = c->collective == ALNICO_GATHER || c->collective == ALNICO_GATHERV ||
                   c->collective == ALNICO_REDUCE;
    return rank != c->root &&
           ((scatters && c->recv == PLACE_IN_PLACE) || (gathers && c->send == PLACE_IN_PLACE));
}

/* The arrays that are looked at, and the counts that a rank knows to be equal. */
static bool has_good_counts(const struct model_call *c, int rank, int size)
{
    size_t sent[MODEL_RANKS], received[MODEL_RANKS];
    if (!model_is_vector(c) || (has_root(c->collective) && rank != c->root))
        return true;
    if (c->collective != ALNICO_ALLTOALLV)
        return c->has_counts[side_of_counts(c)] &&
               (c->extra == 0 || c->collective == ALNICO_REDUCE_SCATTERV);
    if (is_in_place_alltoall(c))
        return c->has_counts[RECEIVED];
    model_counts(c, SENT, rank, size, sent);
    model_counts(c, RECEIVED, rank, size, received);
    return c->has_counts[SENT] && c->has_counts[RECEIVED] && sent[rank] == received[rank];
}

bool model_allows(const struct model_call *c, int rank, int size)
{
    size_t element = values_bytes(c->type);
    if (c->collective == ALNICO_BARRIER)
        return true;
    if (!element || (reduces(c->collective) && !values_have(c->type, c->op)))
        return false;
    if (has_root(c->collective) && (c->root < 0 || c->root >= size || is_nowhere(c, rank)))
        return false;
    if (!has_good_counts(c, rank, size))
        return false;
    if (!model_is_vector(c) && c->count > (size_t)PTRDIFF_MAX / element)
        return false;
    struct blocks r = reads(c, rank, size), w = writes(c, rank, size);
    if (!is_good_side(&r, element) || !is_good_side(&w, element))
        return false;
    return extent(&r, element) == 0 || extent(&w, element) == 0 || is_in_place(c, &r, &w, rank) ||
           !sides_meet(&r, &w, element);
}

static bool is_inside(const struct blocks *blocks, size_t element)
{
    size_t elements = extent(blocks, element);
    return elements == 0 ||
           (elements < MODEL_ARENA && (size_t)blocks->base + elements * element <= MODEL_ARENA);
}

static bool is_apart(const struct blocks *w)
{
    for (int i = 0; i < w->number; i++)
        for (int k = 0; k < i; k++)
            if (meet(w->at[i], w->count[i], w->at[k], w->count[k]))
                return false;
    return true;
}

static bool counts_fit(const struct model_call *c, int size)
{
    if (c->extra && model_is_vector(c) && c->collective != ALNICO_REDUCE_SCATTERV &&
        c->collective != ALNICO_ALLTOALLV)
        return false;
    return c->collective != ALNICO_ALLTOALLV || is_in_place_alltoall(c) ||
           memcmp(c->counts[SENT], c->counts[RECEIVED], (size_t)size * sizeof(size_t)) == 0;
}

bool model_runs(const struct model_call *c, int size)
{
    size_t element = values_bytes(c->type);
    for (int rank = 0; rank < size; rank++) {
        if (!model_allows(c, rank, size))
            return false;
        struct blocks r = reads(c, rank, size), w = writes(c, rank, size);
        if (c->collective != ALNICO_BARRIER &&
            (!is_inside(&r, element) || !is_inside(&w, element) || !is_apart(&w)))
            return false;
    }
    return counts_fit(c, size);
}

/* ---- What comes out ---- */

struct run {
    const struct model_call *c;
    int size;
    unsigned char (*before)[MODEL_ARENA], (*found)[MODEL_ARENA];
};

static const unsigned char *block_of(const struct run *run, int rank, int b)
{
    struct blocks r = reads(run->c, rank, run->size);
    return run->before[rank] + (size_t)r.base + r.at[b] * values_bytes(run->c->type);
}

static void write_reduced(const struct run *run, int rank, int b, size_t at, size_t count,
                          unsigned char *to)
{
    size_t element = values_bytes(run->c->type);
    bool known = run->c->type <= ALNICO_UINT64;
    for (size_t i = 0; i < count; i++) {
        const unsigned char *from[MODEL_RANKS];
        for (int r = 0; r < run->size; r++)
            from[r] = block_of(run, r, b) + i * element;
        if (run->size == 1)
            memcpy(to + i * element, from[0], element);
        else if (known)
            values_reduce(run->c->type, run->c->op, run->size, from, to + i * element);
        else
            memcpy(to + i * element, run->found[rank] + at + i * element, element);
    }
}

static void write_block(const struct run *run, int rank, int b, size_t at, size_t count,
                        unsigned char *to)
{
    int collective = run->c->collective;
    bool scatters = collective == ALNICO_SCATTER || collective == ALNICO_SCATTERV;
    if (count == 0)
        return;
    if (collective == ALNICO_ALLREDUCE || collective == ALNICO_REDUCE) {
        write_reduced(run, rank, 0, at, count, to);
    } else if (reduces(collective)) {
        write_reduced(run, rank, rank, at, count, to);
    } else {
        bool rooted = scatters || collective == ALNICO_BROADCAST;
        int from = rooted ? run->c->root : b;
        int block = scatters || is_alltoall(collective) ? rank : 0;
        memcpy(to, block_of(run, from, block), count * values_bytes(run->c->type));
    }
}

void model_apply(const struct model_call *c, int size, unsigned char (*arenas)[MODEL_ARENA],
                 unsigned char (*found)[MODEL_ARENA])
{
    static unsigned char before[MODEL_RANKS][MODEL_ARENA];
    struct run run = {c, size, before, found};
    if (c->collective == ALNICO_BARRIER)
        return;
    memcpy(before, arenas, (size_t)size * MODEL_ARENA);
    for (int rank = 0; rank < size; rank++) {
        struct blocks w = writes(c, rank, size);
        for (int b = 0; b < w.number; b++) {
            size_t at = (size_t)w.base + w.at[b] * values_bytes(c->type);
            if (w.count[b])
                write_block(&run, rank, b, at, w.count[b], arenas[rank] + at);
        }
    }
}
