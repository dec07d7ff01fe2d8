/* A collective as the public call described it, and which blocks it reads and writes on a rank. */
#ifndef ALNICO_COMM_CALL_H
#define ALNICO_COMM_CALL_H

#include "comm/algorithms/algorithm.h"
#include "comm/collectives.h"

#include <stdint.h>

/* Checked: the arguments are valid, and where it is in place, send and recv say so by their
 * addresses. What a rank does not have is NULL. */
struct call {
    alnico_collective_t collective;
    const void *send;
    void *recv;
    /* Elements: of the vector, or of a block; in vector forms of the rank's own block. */
    size_t count;
    alnico_datatype_t type;
    alnico_op_t op; /* of reductions */
    int root;       /* of those that have one */

    /* Of a broadcast to another buffer: at the root `input` is copied to it first. Of a premultiplied
     * sum: `send` gets the products of `input` and `factor` first; `op` is SUM. */
    const void *input;
    bool copies;
    const struct device_scalar *factor;

    /* Vector forms, for the sides that have all blocks: see struct shape. `at` NULL: one behind the
     * other. */
    const size_t *send_counts, *send_at, *recv_counts, *recv_at;

    /* A sendrecv's: its type is uint8, so that they begin so many bytes behind send and recv. */
    const struct exchange *messages;
    int messages_count;
};

/* A rank's blocks on one side of a call, which it reads or writes: blocks of `count` elements, `stride` apart; or where there
 * are counts, of so many elements each, at `at` or one behind the other. */
struct side {
    int blocks;
    size_t count, stride;
    const size_t *counts, *at;
};

static inline bool call_reduces(const struct call *call)
{
    return collectives[call->collective].reduces;
}

static inline bool call_has_root(const struct call *call)
{
    return collectives[call->collective].rooted;
}

static inline bool call_is_vector(const struct call *call)
{
    return collectives[call->collective].vector;
}

/* Whether every rank knows how long all blocks are. Where not, ranks cut the call into different
 * numbers of chunks. */
static inline bool call_is_even(const struct call *call)
{
    return !collectives[call->collective].uneven;
}

static inline struct side side_of(const struct call *call, enum blocks_held blocks, int size,
                                  const size_t *counts, const size_t *at)
{
    if (blocks == NO_BLOCK)
        return (struct side){0};
    if (blocks == OWN_BLOCK)
        return (struct side){.blocks = 1, .count = call->count, .stride = call->count};
    return (struct side){size, call->count, call->count, counts, at};
}

/* The blocks that a rank reads, and those that it writes. In a broadcast the root reads and the
 * others write. */
static inline struct side call_reads(const struct call *call, int rank, int size)
{
    const struct collective *kind = &collectives[call->collective];
    bool has = !kind->reads_at_root || rank == call->root;
    return side_of(call, has ? kind->reads : NO_BLOCK, size, call->send_counts, call->send_at);
}

static inline struct side call_writes(const struct call *call, int rank, int size)
{
    const struct collective *kind = &collectives[call->collective];
    bool has = !kind->writes_at_root || rank == call->root;
    if (call->collective == ALNICO_BROADCAST)
        has = rank != call->root;
    return side_of(call, has ? kind->writes : NO_BLOCK, size, call->recv_counts, call->recv_at);
}

/* Elements from the side's begin to the end of its last block; SIZE_MAX if there are more. */
size_t side_extent_uneven(const struct side *side);
static inline size_t side_extent(const struct side *side)
{
    size_t extent;
    if (side->counts || side->at)
        return side_extent_uneven(side);
    return __builtin_mul_overflow((size_t)side->blocks, side->count, &extent) ? SIZE_MAX : extent;
}

/* A side has no gaps: each block begins where the one before it ends. */
bool side_is_dense(const struct side *side);

/* Walks over the blocks of a side: where each begins, and its elements. */
struct walk {
    size_t at, count, next;
};
#define SIDE_EACH(WALK, SIDE)                                                                      \
    struct walk WALK = {0};                                                                        \
    for (int b_ = 0; side_block((SIDE), b_, &WALK); b_++)
bool side_block(const struct side *side, int b, struct walk *walk);

/* Whether each message to this rank itself has its partner in the same call. Those that a stream
 * carries in the order of the calls would otherwise wait for what comes behind them. */
bool call_own_messages_meet(const struct call *call, int rank);

/* The elements of its longest block that this rank knows of. */
size_t call_longest(const struct call *call, int size);

/* The size by which the tuning table chooses, equal on all ranks: the bytes of the vector or of a block, of an
 * allgatherv and reduce_scatterv those of a block on average; 0 where ranks do not know each
 * other's counts. */
size_t call_bytes(const struct call *call, int size);

/* The user's arrays of counts are his again when a call returns: copies them to `lists`, of
 * CALL_LISTS * size, and fills in where blocks begin that stand one behind the other. */
enum { CALL_LISTS = 4 };
void call_keep_lists(struct call *call, size_t *lists, int size);

/* Signature of a call, equal on all ranks: ranks tell by it, modulo the prime
 * CALL_SIGNATURES or fewer, that others call something else. `count` is what all know of its
 * counts. */
enum { CALL_SIGNATURES = 65521 };
static inline uint64_t call_signature(const struct call *call, uint64_t count)
{
    return count + 7919 * (uint64_t)call->type + 104729 * (uint64_t)call->op +
           1299709 * (uint64_t)call->collective + 15485863 * (uint64_t)call->root;
}

/* "reduce of 10 elements of float32, sum, root 3"; returns `text`. */
const char *call_describe(const struct call *call, char *text, size_t bytes);

#endif
