/*
 * The area of a rank:
 *
 * lines   For vectors up to LINES * 56 bytes, in two sets used in turn. A line is one cache line: 56 bytes and
 *         a mark, written last. Who sees the mark of this turn sees the bytes. A set is written again two
 *         turns later; whoever gets that far has everybody's lines of the turn between, and those were
 *         written by ranks that had done with the earlier set.
 * stages  For larger vectors, in pieces, two buffers used in turn: `ready` says up to which piece the rank has
 *         published its part, `reduced` up to which its block of the result stands in `result`, and
 *         `finished` up to which it has read all that it needs. A buffer is written again when all have
 *         finished the piece that was in it.
 *
 * A mark is the turn (or piece) and 16 bits of signature: ranks that call different things see it at once.
 * Every wait is a poll of one rank's word; nothing here blocks. Whoever polls the operation calls.
 */
#include "comm/peer.h"

#include "datatype.h"
#include "device/math_cpu.h"
#include "status.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum {
    LINE_PAYLOAD = 56,
    LINES = 8,              /* above 448 bytes a stage is faster */
    STAGE_BYTES = 64 << 10, /* a piece of every rank, twice, fits the second-level cache */
    SIGNATURE_BITS = 16
};

struct line {
    _Alignas(64) char payload[LINE_PAYLOAD];
    _Atomic uint64_t mark;
};

struct word {
    _Alignas(64) _Atomic uint64_t value;
};

struct part {
    struct line lines[2][LINES];
    struct word ready, reduced, finished;
    _Alignas(64) char stage[2][STAGE_BYTES];
    _Alignas(64) char result[2][STAGE_BYTES];
};

struct peer {
    struct part *parts; /* by rank */
    int rank, size;
    uint64_t turns, pieces; /* small operations and pieces so far */
    char *gathered; /* LINES * LINE_PAYLOAD bytes for each rank: lines without their marks */
};

size_t peer_bytes(int size)
{
    return (size_t)size * sizeof(struct part);
}

alnico_status_t peer_create(void *area, int rank, int size, struct peer **out)
{
    struct peer *peer = calloc(1, sizeof *peer);
    char *gathered = aligned_alloc(64, (size_t)size * LINES * 64);
    *out = NULL;
    if (!peer || !gathered) {
        free(peer);
        free(gathered);
        return error_set(ALNICO_ERROR_MEMORY, "no memory for the peer backend");
    }
    *peer = (struct peer){.parts = area, .rank = rank, .size = size, .gathered = gathered};
    *out = peer;
    return ALNICO_SUCCESS;
}

void peer_destroy(struct peer *peer)
{
    if (!peer)
        return;
    free(peer->gathered);
    free(peer);
}

static struct part *own_part(const struct peer_run *run)
{
    return &run->peer->parts[run->peer->rank];
}

/* ---- Marks ---- */

static uint64_t mark_of(const struct peer_run *run)
{
    return run->turn << SIGNATURE_BITS | run->signature;
}

/* SUCCESS once the mark is of this turn or a later one; a mark of this turn must have our signature. */
static alnico_status_t check_mark(const struct peer_run *run, const _Atomic uint64_t *mark)
{
    uint64_t seen = atomic_load_explicit(mark, memory_order_acquire);
    if (seen >> SIGNATURE_BITS < run->turn)
        return ALNICO_PENDING;
    if (seen >> SIGNATURE_BITS == run->turn && seen != mark_of(run))
        return error_set(ALNICO_ERROR_MISMATCH, "rank %d calls another operation, type or count",
                         run->rank);
    return ALNICO_SUCCESS;
}

/* Waits, rank by rank, until everybody's word has come up to `value`. */
static alnico_status_t wait_words(struct peer_run *run, size_t offset, uint64_t value)
{
    for (; run->rank < run->peer->size; run->rank++) {
        const struct part *part = &run->peer->parts[run->rank];
        const struct word *word = (const struct word *)(const void *)((const char *)part + offset);
        if (atomic_load_explicit(&word->value, memory_order_acquire) < value)
            return ALNICO_PENDING;
    }
    run->rank = 0;
    return ALNICO_SUCCESS;
}

static void set_word(struct word *word, uint64_t value)
{
    atomic_store_explicit(&word->value, value, memory_order_release);
}

/* ---- Small: lines ---- */

static void write_lines(struct peer_run *run, size_t bytes)
{
    struct line *line = own_part(run)->lines[run->turn % 2];
    const char *send = run->call.send;
    for (size_t done = 0; done < bytes; done += LINE_PAYLOAD, line++) {
        memcpy(line->payload, send + done,
               bytes - done < LINE_PAYLOAD ? bytes - done : LINE_PAYLOAD);
        atomic_store_explicit(&line->mark, mark_of(run), memory_order_release);
    }
    run->written = true;
}

static char *gathered_from(const struct peer_run *run, int rank)
{
    return run->peer->gathered + (size_t)rank * LINES * 64;
}

/* Gathers the lines of one rank as they come. */
static alnico_status_t read_lines(struct peer_run *run, size_t bytes)
{
    const struct line *lines = run->peer->parts[run->rank].lines[run->turn % 2];
    for (; run->line * LINE_PAYLOAD < bytes; run->line++) {
        const struct line *line = &lines[run->line];
        size_t at = run->line * LINE_PAYLOAD;
        TRY(check_mark(run, &line->mark));
        memcpy(gathered_from(run, run->rank) + at, line->payload,
               bytes - at < LINE_PAYLOAD ? bytes - at : LINE_PAYLOAD);
    }
    run->line = 0;
    return ALNICO_SUCCESS;
}

static alnico_status_t poll_lines(struct peer_run *run, bool *moved)
{
    const struct call *call = &run->call;
    size_t bytes = call->count * datatype_bytes(call->type);
    const void *sources[PEER_RANKS];
    if (!run->written) {
        run->turn = ++run->peer->turns;
        write_lines(run, bytes);
        *moved = true;
    }
    for (; run->rank < run->peer->size; run->rank++)
        if (run->rank != run->peer->rank)
            TRY(read_lines(run, bytes));
    for (int r = 0; r < run->peer->size; r++)
        sources[r] = r == run->peer->rank ? call->send : gathered_from(run, r);
    math_combine(call->recv, sources, run->peer->size, call->count, call->type, call->op);
    *moved = true;
    return ALNICO_SUCCESS;
}

/* ---- Large: stages ---- */

/* Where rank r's block of the piece begins, in elements; with one shot there is one block, everybody's. */
static size_t block_begin(const struct peer_run *run, int r)
{
    size_t size = (size_t)run->peer->size, each = run->count / size, rest = run->count % size;
    size_t index = (size_t)r;
    return index * each + (index < rest ? index : rest);
}

static char *stage_of(const struct peer_run *run, int rank)
{
    return run->peer->parts[rank].stage[run->turn % 2];
}

static char *result_of(const struct peer_run *run, int rank)
{
    return run->peer->parts[rank].result[run->turn % 2];
}

/* Publishes our part of the piece: all of it, or with two shots what the others combine. */
static alnico_status_t poll_stage(struct peer_run *run)
{
    const struct call *call = &run->call;
    size_t bytes = datatype_bytes(call->type), limit = STAGE_BYTES / bytes;
    if (!run->written) {
        run->turn = ++run->peer->pieces;
        run->count = call->count - run->at < limit ? call->count - run->at : limit;
        run->written = true;
    }
    if (run->turn > 2)
        TRY(wait_words(run, offsetof(struct part, finished), run->turn - 2));
    const char *send = (const char *)call->send + run->at * bytes;
    char *stage = stage_of(run, run->peer->rank);
    size_t begin = 0, end = 0;
    if (run->two_shot) {
        begin = block_begin(run, run->peer->rank) * bytes;
        end = block_begin(run, run->peer->rank + 1) * bytes;
    }
    memcpy(stage, send, begin);
    memcpy(stage + end, send + end, run->count * bytes - end);
    atomic_store_explicit(&own_part(run)->ready.value, mark_of(run), memory_order_release);
    run->step = PEER_REDUCE;
    return ALNICO_SUCCESS;
}

/* Combines our block (or everything) from everybody's part. */
static alnico_status_t poll_reduce(struct peer_run *run)
{
    const struct call *call = &run->call;
    struct part *own = own_part(run);
    int self = run->peer->rank;
    size_t bytes = datatype_bytes(call->type);
    size_t first = run->two_shot ? block_begin(run, self) : 0;
    size_t last = run->two_shot ? block_begin(run, self + 1) : run->count;
    const void *sources[PEER_RANKS];
    for (; run->rank < run->peer->size; run->rank++)
        TRY(check_mark(run, &run->peer->parts[run->rank].ready.value));
    run->rank = 0;
    for (int r = 0; r < run->peer->size; r++)
        sources[r] = stage_of(run, r) + first * bytes;
    sources[self] = (const char *)call->send + (run->at + first) * bytes;
    char *recv = (char *)call->recv + run->at * bytes;
    math_combine(run->two_shot ? result_of(run, self) : recv, sources, run->peer->size,
                 last - first, call->type, call->op);
    set_word(&own->reduced, run->turn);
    run->step = PEER_COLLECT;
    return ALNICO_SUCCESS;
}

/* Takes everybody's block of the result; then the next piece. */
static alnico_status_t poll_collect(struct peer_run *run)
{
    const struct call *call = &run->call;
    size_t bytes = datatype_bytes(call->type);
    char *recv = (char *)call->recv + run->at * bytes;
    for (; run->two_shot && run->rank < run->peer->size; run->rank++) {
        const struct part *part = &run->peer->parts[run->rank];
        size_t begin = block_begin(run, run->rank), end = block_begin(run, run->rank + 1);
        if (atomic_load_explicit(&part->reduced.value, memory_order_acquire) < run->turn)
            return ALNICO_PENDING;
        memcpy(recv + begin * bytes, result_of(run, run->rank), (end - begin) * bytes);
    }
    run->rank = 0;
    set_word(&own_part(run)->finished, run->turn);
    run->at += run->count;
    run->written = false;
    run->step = PEER_STAGE;
    return ALNICO_SUCCESS;
}

/* ---- A run ---- */

void peer_begin(struct peer_run *run, struct peer *peer, const struct call *call, bool two_shot)
{
    size_t bytes = call->count * datatype_bytes(call->type);
    size_t kind = call->count + 7919 * (size_t)call->type + 30011 * (size_t)call->op + two_shot;
    bool small = !two_shot && bytes <= LINES * LINE_PAYLOAD;
    *run = (struct peer_run){.peer = peer,
                             .call = *call,
                             .two_shot = two_shot,
                             .step = small ? PEER_LINES : PEER_STAGE,
                             .signature = (uint32_t)(kind % 65521)};
}

alnico_status_t peer_poll(struct peer_run *run, bool *moved)
{
    while (run->step != PEER_LINES && run->at < run->call.count) {
        TRY(run->step == PEER_STAGE    ? poll_stage(run)
            : run->step == PEER_REDUCE ? poll_reduce(run)
                                       : poll_collect(run));
        *moved = true;
    }
    return run->step == PEER_LINES && run->call.count ? poll_lines(run, moved) : ALNICO_SUCCESS;
}
