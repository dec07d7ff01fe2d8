/*
 * One-shot of larger vectors, in pieces. Where all ranks wait for all, pieces go through two stages of
 * each rank, used alternately, and `ready` says up to which piece a rank has published its part. The
 * root of a broadcast or scatter, and the other ranks of a reduce or gather, write and do not read:
 * they have slots, more of them and smaller, and `slots_ready`. They go on until they come to a slot
 * that is still being read (peer/reuse.c), so that copies in and out overlap.
 *
 * A piece of blocks for each rank has the same part of every block but our own, one behind the other.
 */
#include "comm/backends/peer/area.h"

#include "device/cpu/math.h"

enum {
    FLOW_LEAST = 8 << 10, /* of the bytes in a slot: a reader waits for the first piece */
    FLOW_PIECES = 4,      /* and there are to be some */
    FETCH_BYTES = 1 << 10 /* of a vector: it does that itself behind them */
};

static _Atomic uint64_t *mark_in(const struct peer_run *run, int rank)
{
    struct part *part = part_of(run->peer, rank);
    return piece_sequence(run) == SLOT_PIECES ? &part->slots_ready.value : &part->ready.value;
}

/* Bytes of a block, or vector, in one piece. */
static size_t piece_most(const struct peer_run *run)
{
    const struct peer *peer = run->peer;
    size_t blocks = run->pattern.sends_blocks ? (size_t)peer->size - 1 : 1;
    size_t bytes = run->longest * run->width * blocks / FLOW_PIECES;
    if (piece_sequence(run) == STAGE_PIECES)
        return peer->stage_bytes / blocks;
    return (bytes < FLOW_LEAST ? FLOW_LEAST : bytes > SLOT_BYTES ? SLOT_BYTES : bytes) / blocks;
}

/* Bytes of a rank's part for `reader`. */
static size_t part_bytes(const struct peer_run *run, int rank, int reader)
{
    return bytes_of(run, run->pattern.sends_blocks ? reader : rank);
}

/* A rank's part for `reader`; shorter blocks leave gaps. */
static char *part_for(const struct peer_run *run, int rank, int reader)
{
    return peer_part(run, rank, reader, run->epoch, run->count * run->width);
}

static void publish(const struct peer_run *run)
{
    const struct peer *peer = run->peer;
    int readers = run->pattern.sends_blocks ? peer->size - 1 : 1;
    for (int i = 0; i < readers; i++) {
        int reader = rank_at(peer, i);
        copy_part(part_for(run, peer->rank, reader), own_send(run, reader),
                  part_bytes(run, peer->rank, reader));
    }
    atomic_store_explicit(mark_in(run, peer->rank), mark_of(run, run->epoch), memory_order_release);
}

static alnico_status_t begin_piece(struct peer_run *run)
{
    bool written = writes(run, run->peer->rank);
    int reader = run->pattern.readers == PEER_ROOT ? run->call.root : EVERYBODY;
    if (written)
        TRY(peer_reuse(run, piece_sequence(run)));
    run->epoch = peer_begin_next(run, piece_sequence(run), written, reader);
    run->count = peer_piece_count(run, run->longest - run->done, piece_most(run));
    if (written)
        publish(run);
    peer_keep_own(run);
    return ALNICO_SUCCESS;
}

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

/* SUCCESS once a rank's part is there. A writer to slots may be pieces ahead: then one look lasts for
 * all of them, and its word stays in its cache. */
static alnico_status_t await_part(const struct peer_run *run, int rank)
{
    const _Atomic uint64_t *mark = mark_in(run, rank);
    uint64_t *slots_seen = &run->peer->slots_seen[rank];
    if (piece_sequence(run) != SLOT_PIECES)
        return check_mark(mark, mark_of(run, run->epoch), rank);
    if (*slots_seen >> SIGNATURE_BITS < run->epoch)
        *slots_seen = atomic_load_explicit(mark, memory_order_acquire);
    return check_seen(*slots_seen, mark_of(run, run->epoch), rank);
}

/* Prefetches this part, and the next slot: all are combined when the last part is there. */
static void fetch(const struct peer_run *run, int rank, const char *part, size_t bytes)
{
    const struct peer *peer = run->peer;
    size_t most = run->pattern.sends_blocks || bytes < FETCH_BYTES ? bytes : FETCH_BYTES;
    if (peer->size > FETCH_RANKS)
        peer_prefetch(part, most);
    if (piece_sequence(run) == SLOT_PIECES && peer->slots_seen[rank] >> SIGNATURE_BITS > run->epoch)
        peer_prefetch(peer_slot(run, rank, run->epoch + 1), most);
}

/* Copies one rank's part, or prefetches it. */
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
    if (run->pattern.writers != PEER_ROOT)
        peer_all_began(run, piece_sequence(run), run->epoch);
    if (reduces)
        combine(run);
    return ALNICO_SUCCESS;
}

static alnico_status_t poll_pieces(struct peer_run *run)
{
    if (reads(run))
        TRY(read_piece(run));
    peer_finish(run, piece_sequence(run), run->epoch);
    run->done += run->count;
    run->ended = run->done == run->longest;
    run->begun = false;
    return ALNICO_SUCCESS;
}

const struct peer_steps peer_pieces = {begin_piece, poll_pieces};
