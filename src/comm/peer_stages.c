/*
 * Larger vectors, in pieces, through two stages of every rank used in turn. `ready` says up to which piece a rank has
 * published its part, and `reduced` up to which its block of the result stands in `result`. A rank goes
 *
 *     stage 1, combine 1, stage 2, collect 1, combine 2, stage 3, collect 2, ...
 *
 * so that between what a rank publishes and what it needs from the others there is always work, in which they come up.
 * (One-shot has nothing to collect.) Nobody waits for a buffer:
 *
 * stage i + 2   comes after our combine i + 1, or if that was the call's last piece our collect i + 1; either
 *               had all ranks publish piece i + 1, after they had combined piece i and so read our stage of it.
 * result i + 2  is written after all have published piece i + 2, after they had collected piece i.
 *
 * A block is whole cache lines; a small piece has fewer blocks than there are ranks, and who has none waits only for
 * those who have one.
 */
#include "comm/peer_area.h"

#include "comm/algorithm.h"
#include "device/math_cpu.h"

#include <string.h>

enum {
    STAGE_LEAST = 64 << 10, /* two of them fit the second-level cache beside the user's buffers */
    STAGE_MOST = 256 << 10, /* so they do with 2 MB of it; 64 ranks have 34 MB of stages */
    BLOCK_BYTES =
        8 << 10,    /* between: what one rank combines, so that waiting costs less than work */
    FETCH_RANKS = 8 /* above: blocks are too short for the processor's own prefetching */
};

size_t peer_stage_bytes(int size)
{
    size_t bytes = (size_t)size * BLOCK_BYTES;
    return bytes < STAGE_LEAST ? STAGE_LEAST : bytes > STAGE_MOST ? STAGE_MOST : bytes;
}

size_t peer_result_bytes(int size)
{
    return (peer_stage_bytes(size) / (size_t)size + 64 + ALONE) / ALONE * ALONE;
}

static char *stage_of(const struct peer_run *run, int rank, uint64_t turn)
{
    const struct peer *peer = run->peer;
    return (char *)part_of(peer, rank) + sizeof(struct part) + turn % 2 * peer->stage_bytes;
}

static char *result_of(const struct peer_run *run, int rank)
{
    const struct peer *peer = run->peer;
    return stage_of(run, rank, 0) + 2 * peer->stage_bytes + run->turn % 2 * peer->result_bytes;
}

/* ---- Blocks ---- */

/* Bytes [begin, end) of a piece of `bytes`. */
struct block {
    size_t begin, end;
};

static struct block block_of(const struct peer_run *run, int rank, size_t bytes)
{
    size_t lines = (bytes + 63) / 64;
    struct block block = {block_at(lines, run->peer->size, rank) * 64,
                          block_at(lines, run->peer->size, rank + 1) * 64};
    if (block.begin > bytes)
        block.begin = bytes;
    if (block.end > bytes)
        block.end = bytes;
    return block;
}

/* What this rank combines: its block, or with one shot everything. */
static struct block own_block(const struct peer_run *run, size_t bytes)
{
    return run->way == PEER_TWO_SHOT ? block_of(run, run->peer->rank, bytes)
                                     : (struct block){0, bytes};
}

/* ---- Publishing ---- */

/* Elements of the next piece: nearly equal ones, of whole lines but for the last. */
static size_t next_count(const struct peer_run *run)
{
    size_t each = 64 / datatype_bytes(run->call.type), most = run->peer->stage_bytes / 64;
    size_t left = run->call.count - run->staged, lines = (left + each - 1) / each;
    size_t pieces = (lines + most - 1) / most, count = (lines + pieces - 1) / pieces * each;
    return count < left ? count : left;
}

/* Publishes our part of the next piece, if there is one: what the others combine. */
static void stage_next(struct peer_run *run)
{
    const struct call *call = &run->call;
    size_t width = datatype_bytes(call->type);
    if (run->staged == call->count)
        return;
    run->next = next_count(run);
    uint64_t piece = ++run->peer->pieces;
    size_t bytes = run->next * width;
    const char *send = (const char *)call->send + run->staged * width;
    char *stage = stage_of(run, run->peer->rank, piece);
    struct block own = own_block(run, bytes);
    if (run->way != PEER_TWO_SHOT)
        own.end = 0;
    memcpy(stage, send, own.begin);
    memcpy(stage + own.end, send + own.end, bytes - own.end);
    run->staged += run->next;
    atomic_store_explicit(&own_part(run)->ready.value, mark_of(run, piece), memory_order_release);
}

/* The piece that was published last is the present one. */
static void enter_piece(struct peer_run *run)
{
    run->turn = run->peer->pieces;
    run->count = run->next;
    run->begun = true;
}

/* ---- Combining ---- */

/* Asks for lines that are combined as soon as all ranks have come. Only their order differs between ranks. */
static void fetch(const char *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 64)
        __builtin_prefetch(from + at, 0, 2);
}

static alnico_status_t await_ready(struct peer_run *run, struct block own)
{
    const struct peer *peer = run->peer;
    bool fetching = run->way == PEER_TWO_SHOT && peer->size > FETCH_RANKS;
    for (; own.begin < own.end && run->index < peer->size - 1; run->index++) {
        int rank = rank_at(peer, run->index);
        TRY(check_mark(run, &part_of(peer, rank)->ready.value, run->turn, rank));
        if (fetching)
            fetch(stage_of(run, rank, run->turn) + own.begin, own.end - own.begin);
    }
    run->index = 0;
    return ALNICO_SUCCESS;
}

static void combine(struct peer_run *run, struct block own, size_t width)
{
    const struct call *call = &run->call;
    const struct peer *peer = run->peer;
    const char *send = (const char *)call->send + run->done * width;
    char *recv = (char *)call->recv + run->done * width;
    const void *sources[PEER_RANKS];
    for (int r = 0; r < peer->size; r++)
        sources[r] = (r == peer->rank ? send : stage_of(run, r, run->turn)) + own.begin;
    math_combine(run->way == PEER_TWO_SHOT ? result_of(run, peer->rank) : recv, sources, peer->size,
                 (own.end - own.begin) / width, call->type, call->op);
}

/* Combines our block, or everything, and publishes the next piece. */
alnico_status_t peer_poll_reduce(struct peer_run *run, bool *moved)
{
    size_t width = datatype_bytes(run->call.type);
    if (!run->begun) {
        stage_next(run);
        enter_piece(run);
        *moved = true;
    }
    struct block own = own_block(run, run->count * width);
    TRY(await_ready(run, own));
    if (own.begin < own.end) {
        combine(run, own, width);
        atomic_store_explicit(&own_part(run)->reduced.value, mark_of(run, run->turn),
                              memory_order_release);
    }
    stage_next(run);
    run->step = PEER_COLLECT;
    return ALNICO_SUCCESS;
}

/* ---- Collecting ---- */

/* Takes everybody's block of the result, our own last; then the next piece. */
alnico_status_t peer_poll_collect(struct peer_run *run)
{
    const struct peer *peer = run->peer;
    size_t width = datatype_bytes(run->call.type), bytes = run->count * width;
    char *recv = (char *)run->call.recv + run->done * width;
    for (; run->way == PEER_TWO_SHOT && run->index < peer->size; run->index++) {
        int rank = rank_at(peer, run->index);
        struct block block = block_of(run, rank, bytes);
        if (block.begin == block.end)
            continue;
        TRY(check_mark(run, &part_of(peer, rank)->reduced.value, run->turn, rank));
        memcpy(recv + block.begin, result_of(run, rank), block.end - block.begin);
    }
    run->index = 0;
    run->done += run->count;
    if (run->done < run->call.count)
        enter_piece(run);
    run->step = PEER_REDUCE;
    return ALNICO_SUCCESS;
}
