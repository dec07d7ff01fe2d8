/*
 * Two-shot, in pieces, through two stages of each rank, used alternately. `ready` says up to which
 * piece a rank has published its part, and `reduced` up to which its block of the result stands in
 * `result`. A rank goes
 *
 *     stage 1, combine 1, stage 2, collect 1, combine 2, stage 3, collect 2, ...
 *
 * so that between publishing and needing what others published there is always work. Of a reduce only
 * the root collects. Only the first piece of a call waits for its buffers (peer/reuse.c):
 *
 * stage i + 2   comes after our combine i + 1, for which all ranks had published piece i + 1, after they had combined
 *               piece i and so read our stage of it.
 * result i + 2  is written after all have published piece i + 2, after they had collected piece i.
 *
 * A block is whole cache lines. A small piece has fewer blocks than there are ranks, and a rank
 * without one waits only for those that have one. Then the call has one piece.
 */
#include "comm/backends/peer/area.h"

#include "comm/algorithms/algorithm.h"
#include "device/cpu/math.h"

#include <string.h>

char *peer_stage(const struct peer_run *run, int rank, uint64_t piece)
{
    const struct peer *peer = run->peer;
    return (char *)part_of(peer, rank) + peer->stages_at + piece % STAGES * peer->stage_bytes;
}

static char *result_of(const struct peer_run *run, int rank)
{
    const struct peer *peer = run->peer;
    return peer_stage(run, rank, 0) + STAGES * peer->stage_bytes +
           run->epoch % STAGES * peer->result_bytes;
}

char *peer_slot(const struct peer_run *run, int rank, uint64_t piece)
{
    const struct peer *peer = run->peer;
    return (char *)part_of(peer, rank) + peer->slots_at + piece % SLOTS * SLOT_BYTES;
}

char *peer_part(const struct peer_run *run, int rank, int reader, uint64_t piece, size_t room)
{
    int place = run->pattern.sends_blocks ? reader - (reader > rank) : 0;
    char *parts = piece_sequence(run) == SLOT_PIECES ? peer_slot(run, rank, piece)
                                                     : peer_stage(run, rank, piece);
    return parts + (size_t)place * room;
}

/* Bytes [begin, end) of a piece: a rank's block. */
struct range {
    size_t begin, end;
};

static struct range range_of(const struct peer_run *run, int rank, size_t bytes)
{
    size_t lines = (bytes + 63) / 64;
    struct range range = {block_at(lines, run->peer->size, rank) * 64,
                          block_at(lines, run->peer->size, rank + 1) * 64};
    if (range.begin > bytes)
        range.begin = bytes;
    if (range.end > bytes)
        range.end = bytes;
    return range;
}

size_t peer_piece_count(const struct peer_run *run, size_t left, size_t most)
{
    size_t each = 64 / run->width, lines = (left + each - 1) / each;
    size_t pieces = (lines + most / 64 - 1) / (most / 64);
    size_t count = (lines + pieces - 1) / pieces * each;
    return count < left ? count : left;
}

/* Publishes our part of the next piece, if there is one, but for our own block. */
static void stage_next(struct peer_run *run)
{
    if (run->staged == run->call.count)
        return;
    run->next = peer_piece_count(run, run->call.count - run->staged, run->peer->stage_bytes);
    uint64_t piece = peer_begin_next(run, STAGE_PIECES, true, EVERYBODY);
    size_t bytes = run->next * run->width;
    const char *send = (const char *)run->call.send + run->staged * run->width;
    char *stage = peer_stage(run, run->peer->rank, piece);
    struct range own = range_of(run, run->peer->rank, bytes);
    memcpy(stage, send, own.begin);
    memcpy(stage + own.end, send + own.end, bytes - own.end);
    run->staged += run->next;
    atomic_store_explicit(&own_part(run)->ready.value, mark_of(run, piece), memory_order_release);
}

/* The piece that was published last is the present one. */
static void enter_piece(struct peer_run *run)
{
    run->epoch = run->peer->sequences[STAGE_PIECES].now;
    run->count = run->next;
}

void peer_prefetch(const char *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += 64)
        __builtin_prefetch(from + at, 0, 2);
}

static alnico_status_t await_ready(struct peer_run *run, struct range own)
{
    const struct peer *peer = run->peer;
    for (; run->index < peer->size - 1; run->index++) {
        int rank = rank_at(peer, run->index);
        TRY(check_mark(&part_of(peer, rank)->ready.value, mark_of(run, run->epoch), rank));
        if (peer->size > FETCH_RANKS)
            peer_prefetch(peer_stage(run, rank, run->epoch) + own.begin, own.end - own.begin);
    }
    run->index = 0;
    peer_all_began(run, STAGE_PIECES, run->epoch);
    return ALNICO_SUCCESS;
}

static void combine(struct peer_run *run, struct range own)
{
    const struct call *call = &run->call;
    const struct peer *peer = run->peer;
    const char *send = (const char *)call->send + run->done * run->width;
    const void *sources[PEER_RANKS];
    for (int r = 0; r < peer->size; r++)
        sources[r] = (r == peer->rank ? send : peer_stage(run, r, run->epoch)) + own.begin;
    math_combine(result_of(run, peer->rank), sources, peer->size,
                 (own.end - own.begin) / run->width, call->type, call->op);
    atomic_store_explicit(&own_part(run)->reduced.value, mark_of(run, run->epoch),
                          memory_order_release);
}

static alnico_status_t begin_call(struct peer_run *run)
{
    TRY(peer_reuse(run, STAGE_PIECES));
    stage_next(run);
    enter_piece(run);
    return ALNICO_SUCCESS;
}

/* Combines our block, and publishes the next piece. */
static alnico_status_t poll_reduce(struct peer_run *run)
{
    struct range own = range_of(run, run->peer->rank, run->count * run->width);
    if (own.begin < own.end) {
        TRY(await_ready(run, own));
        combine(run, own);
    }
    stage_next(run);
    run->second = true;
    return ALNICO_SUCCESS;
}

static alnico_status_t collect(struct peer_run *run)
{
    const struct peer *peer = run->peer;
    char *recv = (char *)run->call.recv + run->done * run->width;
    for (; run->index < peer->size; run->index++) {
        int rank = rank_at(peer, run->index);
        struct range range = range_of(run, rank, run->count * run->width);
        if (range.begin == range.end)
            continue;
        TRY(check_mark(&part_of(peer, rank)->reduced.value, mark_of(run, run->epoch), rank));
        memcpy(recv + range.begin, result_of(run, rank), range.end - range.begin);
    }
    run->index = 0;
    peer_all_began(run, STAGE_PIECES, run->epoch);
    return ALNICO_SUCCESS;
}

/* Copies all blocks of the result, our own last; then begins the next piece. */
static alnico_status_t poll_collect(struct peer_run *run)
{
    if (reads(run))
        TRY(collect(run));
    peer_finish(run, STAGE_PIECES, run->epoch);
    run->done += run->count;
    run->ended = run->done == run->call.count;
    if (!run->ended)
        enter_piece(run);
    run->second = false;
    return ALNICO_SUCCESS;
}

static alnico_status_t poll_two_shot(struct peer_run *run)
{
    return run->second ? poll_collect(run) : poll_reduce(run);
}

const struct peer_steps peer_two_shot = {begin_call, poll_two_shot};
