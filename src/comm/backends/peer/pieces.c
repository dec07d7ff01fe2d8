/*
 * One-shot of larger vectors, in pieces. Where everybody waits for everybody they go through two
 * stages of every rank used in turn, and `ready` says up to which piece a rank has published its
 * part. Who writes and does not read, a broadcast's or scatter's root or the other ranks of a
 * reduce or gather, has slots, more of them and smaller, and `flowing`: it goes on until it comes
 * to a slot that is still being read (peer/turns.c), so that copies in and out overlap.
 *
 * Of blocks for each rank a piece has the same part of every block, one behind the other; our own
 * is not there.
 */
#include "comm/backends/peer/area.h"

#include "device/cpu/math.h"

#include <string.h>

enum {
    FLOW_LEAST = 8 << 10, /* of the bytes in a slot: a reader waits for the first piece */
    FLOW_PIECES = 4,      /* and there are to be some */
    FETCH_RANKS = 8,      /* above: blocks are too short for the processor's own prefetching */
    FETCH_BYTES = 1 << 10 /* of a vector: it does that itself behind them */
};

static enum peer_count numbers(const struct peer_run *run)
{
    return run->pattern->readers == ALL ? PIECES : FLOWS;
}

static _Atomic uint64_t *mark_in(const struct peer_run *run, int rank)
{
    struct part *part = part_of(run->peer, rank);
    return numbers(run) == FLOWS ? &part->flowing.value : &part->ready.value;
}

/* ---- Publishing ---- */

/* Bytes of a block, or vector, in one piece. */
static size_t piece_most(const struct peer_run *run)
{
    const struct peer *peer = run->peer;
    size_t blocks = run->pattern->sends_blocks ? (size_t)peer->size - 1 : 1;
    size_t bytes = run->longest * run->width * blocks / FLOW_PIECES;
    if (numbers(run) == PIECES)
        return peer->stage_bytes / blocks;
    return (bytes < FLOW_LEAST ? FLOW_LEAST : bytes > SLOT_BYTES ? SLOT_BYTES : bytes) / blocks;
}

/* Elements of the next piece: nearly equal ones, of whole lines but for the last. */
static size_t piece_count(const struct peer_run *run)
{
    size_t each = 64 / run->width, most = piece_most(run) / 64;
    size_t left = run->longest - run->done, lines = (left + each - 1) / each;
    size_t pieces = (lines + most - 1) / most, count = (lines + pieces - 1) / pieces * each;
    return count < left ? count : left;
}

/* Of what a rank has for `reader`. */
static size_t part_bytes(const struct peer_run *run, int rank, int reader)
{
    return bytes_of(run, run->pattern->sends_blocks ? reader : rank);
}

/* What a rank has for `reader` in its stage: blocks that are shorter leave room. */
static char *part_for(const struct peer_run *run, int rank, int reader)
{
    int place = run->pattern->sends_blocks ? reader - (reader > rank) : 0;
    char *parts =
        numbers(run) == FLOWS ? peer_slot(run, rank, run->turn) : peer_stage(run, rank, run->turn);
    return parts + (size_t)place * run->count * run->width;
}

static void publish(const struct peer_run *run)
{
    const struct peer *peer = run->peer;
    int readers = run->pattern->sends_blocks ? peer->size - 1 : 1;
    for (int i = 0; i < readers; i++) {
        int reader = rank_at(peer, i);
        copy_part(part_for(run, peer->rank, reader), own_send(run, reader),
                  part_bytes(run, peer->rank, reader));
    }
    atomic_store_explicit(mark_in(run, peer->rank), mark_of(run, run->turn), memory_order_release);
}

static alnico_status_t begin_piece(struct peer_run *run)
{
    bool written = writes(run, run->peer->rank);
    int reader = run->pattern->readers == ROOT ? run->call.root : EVERYBODY;
    if (written)
        TRY(peer_reuse(run, numbers(run)));
    run->turn = peer_begin_next(run, numbers(run), written, reader);
    run->count = piece_count(run);
    if (written)
        publish(run);
    peer_keep_own(run);
    run->begun = true;
    return ALNICO_SUCCESS;
}

/* ---- Reading ---- */

static void combine(const struct peer_run *run)
{
    const struct call *call = &run->call;
    const struct peer *peer = run->peer;
    const void *sources[PEER_RANKS];
    for (int r = 0; r < peer->size; r++)
        sources[r] = r == peer->rank ? own_send(run, r) : part_for(run, r, peer->rank);
    size_t count = bytes_of(run, peer->rank) / run->width;
    if (count)
        math_combine(own_recv(run, peer->rank), sources, peer->size, count, call->type, call->op);
}

/* SUCCESS once a rank's part is there. Who flows may be pieces ahead: then one look lasts for all of
 * them, and does not take its word away for each. */
static alnico_status_t await_part(const struct peer_run *run, int rank)
{
    const _Atomic uint64_t *mark = mark_in(run, rank);
    uint64_t *flowed = &run->peer->flowed[rank];
    if (numbers(run) != FLOWS)
        return check_mark(run, mark, run->turn, rank);
    if (*flowed >> SIGNATURE_BITS < run->turn)
        *flowed = atomic_load_explicit(mark, memory_order_acquire);
    return check_seen(*flowed, mark_of(run, run->turn), rank);
}

/* What is combined when all parts are there: this one, and what stands in the next slot. */
static void fetch(const struct peer_run *run, int rank, const char *part, size_t bytes)
{
    const struct peer *peer = run->peer;
    size_t most = run->pattern->sends_blocks || bytes < FETCH_BYTES ? bytes : FETCH_BYTES;
    if (peer->size > FETCH_RANKS)
        peer_fetch(part, most);
    if (numbers(run) == FLOWS && peer->flowed[rank] >> SIGNATURE_BITS > run->turn)
        peer_fetch(peer_slot(run, rank, run->turn + 1), most);
}

/* One rank's part, which is there: copies it, or asks for it. */
static void take(const struct peer_run *run, int rank, bool reduces)
{
    int own = run->peer->rank;
    const char *part = part_for(run, rank, own);
    size_t bytes = part_bytes(run, rank, own);
    if (reduces)
        fetch(run, rank, part, bytes);
    else
        copy_part(own_recv(run, rank), part, bytes);
}

static alnico_status_t read_piece(struct peer_run *run)
{
    const struct peer *peer = run->peer;
    bool reduces = call_reduces(&run->call);
    for (; run->index < peer->size - 1; run->index++) {
        int rank = rank_at(peer, run->index);
        if (!writes(run, rank))
            continue;
        TRY(await_part(run, rank));
        take(run, rank, reduces);
    }
    run->index = 0;
    if (run->pattern->writers != ROOT)
        peer_all_began(run, numbers(run), run->turn);
    if (reduces)
        combine(run);
    return ALNICO_SUCCESS;
}

alnico_status_t peer_poll_pieces(struct peer_run *run, bool *moved)
{
    if (!run->begun) {
        TRY(begin_piece(run));
        *moved = true;
    }
    if (reads(run))
        TRY(read_piece(run));
    peer_finish(run, numbers(run), run->turn);
    run->done += run->count;
    run->ended = run->done == run->longest;
    run->begun = false;
    return ALNICO_SUCCESS;
}
