/* Pieces are in flight in their order. A younger one begins its rounds when all chunks of the older
 * one have begun, so that few chunks are under way and stay in the cache; ranks agree on what comes
 * first. */
#include "comm/backends/host/pieces.h"

#include "base/datatype.h"
#include "base/status.h"

#include <stdlib.h>
#include <string.h>

enum piece_phase { PIECE_FREE, PIECE_COPYING_OUT, PIECE_RUNNING, PIECE_COPYING_IN };

struct piece {
    size_t at, count; /* elements */
    enum piece_phase phase;
    struct pipeline pipeline;
};

struct pieces {
    struct staging *staging;
    const struct pipeline *whole;
    size_t piece_count; /* elements of a whole piece, some chunks */
    size_t number, begun, finished;
    struct piece piece[STAGING_CHUNKS];
};

alnico_status_t pieces_create(struct staging *staging, struct pieces **out)
{
    size_t bytes = (sizeof **out + 63) / 64 * 64;
    *out = aligned_alloc(64, bytes);
    if (!*out)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for the pieces of messages");
    memset(*out, 0, bytes);
    (*out)->staging = staging;
    return ALNICO_SUCCESS;
}

void pieces_destroy(struct pieces *pieces)
{
    free(pieces);
}

bool pieces_suit(const struct pipeline *whole)
{
    size_t bytes = whole->chunk_count * datatype_bytes(whole->call.type);
    return whole->call.collective == ALNICO_ALLREDUCE && whole->staging && whole->chunks > 1 &&
           bytes <= STAGING_CHUNK_BYTES / 2;
}

void pieces_begin(struct pieces *p, const struct pipeline *whole)
{
    size_t room = STAGING_CHUNK_BYTES / datatype_bytes(whole->call.type);
    p->whole = whole;
    p->piece_count = room / whole->chunk_count * whole->chunk_count;
    p->number = (whole->call.count + p->piece_count - 1) / p->piece_count;
    p->begun = p->finished = 0;
}

/* Those in flight are finished <= i < begun. */
static struct piece *piece_at(struct pieces *p, size_t i)
{
    return &p->piece[i % STAGING_CHUNKS];
}

static struct stage *stage_of(struct pieces *p, const struct piece *piece)
{
    return &p->staging->stages[piece - p->piece];
}

/* ---- One piece ---- */

static size_t bytes_of(const struct pieces *p, size_t count)
{
    return count * datatype_bytes(p->whole->call.type);
}

static alnico_status_t begin_piece(struct pieces *p)
{
    const struct call *call = &p->whole->call;
    struct piece *piece = piece_at(p, p->begun);
    struct stage *stage = stage_of(p, piece);
    piece->at = p->begun * p->piece_count;
    piece->count = call->count - piece->at;
    if (piece->count > p->piece_count)
        piece->count = p->piece_count;
    TRY(stage_copy(p->staging, stage, stage->memory,
                   (const char *)call->send + bytes_of(p, piece->at), bytes_of(p, piece->count),
                   p->staging->out));
    piece->phase = PIECE_COPYING_OUT;
    p->begun++;
    return ALNICO_SUCCESS;
}

/* The pipeline's messages are those of the chunks of the whole: the same tags. */
static void begin_rounds(struct pieces *p, struct piece *piece)
{
    const struct pipeline *whole = p->whole;
    struct pipeline *part = &piece->pipeline;
    part->call = whole->call;
    part->call.send = part->call.recv = stage_of(p, piece)->memory;
    part->call.count = piece->count;
    part->algorithm = whole->algorithm;
    part->chunk_bytes = bytes_of(p, whole->chunk_count);
    part->transport = whole->transport;
    part->staging = NULL;
    part->pool = whole->pool;
    part->turn = whole->turn + (uint32_t)(piece->at / whole->chunk_count);
    pipeline_begin(part);
    part->signature = whole->signature;
    piece->phase = PIECE_RUNNING;
}

static alnico_status_t begin_copy_in(struct pieces *p, struct piece *piece)
{
    struct stage *stage = stage_of(p, piece);
    TRY(stage_copy(p->staging, stage, (char *)p->whole->call.recv + bytes_of(p, piece->at),
                   stage->memory, bytes_of(p, piece->count), p->staging->in));
    piece->phase = PIECE_COPYING_IN;
    return ALNICO_SUCCESS;
}

/* As far as it can go now; `may_run`: the older ones have begun all their chunks. */
static alnico_status_t poll_piece(struct pieces *p, struct piece *piece, bool may_run, bool *moved)
{
    bool copied = gate_is_open(&stage_of(p, piece)->copied);
    if (piece->phase == PIECE_COPYING_OUT && copied && may_run) {
        begin_rounds(p, piece);
        *moved = true;
    }
    if (piece->phase == PIECE_RUNNING) {
        TRY(pipeline_poll(&piece->pipeline, moved));
        TRY(begin_copy_in(p, piece));
        *moved = true;
        return ALNICO_PENDING;
    }
    return piece->phase == PIECE_COPYING_IN && copied ? ALNICO_SUCCESS : ALNICO_PENDING;
}

static bool has_begun_all(const struct piece *piece)
{
    const struct pipeline *part = &piece->pipeline;
    return piece->phase == PIECE_COPYING_IN ||
           (piece->phase == PIECE_RUNNING && part->begun == part->chunks);
}

/* ---- All of them ---- */

alnico_status_t pieces_poll(struct pieces *p, bool *moved)
{
    bool may_run = true;
    for (size_t i = p->finished; i < p->begun; i++) {
        struct piece *piece = piece_at(p, i);
        alnico_status_t status = poll_piece(p, piece, may_run, moved);
        if (status != ALNICO_PENDING && status != ALNICO_SUCCESS)
            return status;
        if (status == ALNICO_SUCCESS && i == p->finished) {
            piece->phase = PIECE_FREE;
            p->finished++;
            *moved = true;
            continue;
        }
        may_run &= has_begun_all(piece);
    }
    while (p->begun < p->number && p->begun - p->finished < STAGING_CHUNKS) {
        TRY(begin_piece(p));
        *moved = true;
    }
    return p->finished == p->number ? ALNICO_SUCCESS : ALNICO_PENDING;
}

void pieces_cancel(struct pieces *p)
{
    for (int i = 0; i < STAGING_CHUNKS; i++) {
        struct piece *piece = &p->piece[i];
        if (piece->phase == PIECE_RUNNING)
            pipeline_cancel(&piece->pipeline);
        if (piece->phase != PIECE_FREE)
            stage_settle(stage_of(p, piece));
        piece->phase = PIECE_FREE;
    }
}
