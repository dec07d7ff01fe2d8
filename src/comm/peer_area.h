/*
 * What the ranks share and how: the area, its words and marks. For peer_cpu.c, peer_lines.c and peer_stages.c.
 *
 * A mark is a turn, or the number of a piece, and 16 bits of signature: ranks that call different things see it at
 * once. Every wait is a look at one rank's word; nothing here blocks. Whoever polls the operation calls.
 */
#ifndef ALNICO_SRC_PEER_AREA_H
#define ALNICO_SRC_PEER_AREA_H

#include "comm/peer.h"
#include "datatype.h"
#include "status.h"

#include <stdatomic.h>

enum {
    LINE_PAYLOAD = 56,
    LINES = 32,  /* that a rank publishes at once: 1.75 KB */
    LEVELS = 2,  /* of recursive multiplying */
    ALONE = 128, /* bytes: processors fetch lines in pairs */
    SIGNATURE_BITS = 16
};

struct line {
    _Alignas(64) char payload[LINE_PAYLOAD];
    _Atomic uint64_t mark;
};

struct word {
    _Alignas(ALONE) _Atomic uint64_t value;
};

/* What a rank writes, and the others read; its stages and results follow. */
struct part {
    struct line lines[2][LEVELS][LINES];
    struct word ready, reduced;
};

struct peer {
    char *area;
    size_t part_bytes, stage_bytes, result_bytes;
    int rank, size, group;  /* ranks of a group: the least whose square is not below the size */
    uint64_t turns, pieces; /* of lines, and of stages, so far */
    char *gathered;         /* LINES * 64 bytes for each rank: lines without their marks */
    char *partial;          /* as much once: what we have combined ourselves */
};

static inline struct part *part_of(const struct peer *peer, int rank)
{
    return (struct part *)(void *)(peer->area + (size_t)rank * peer->part_bytes);
}

static inline struct part *own_part(const struct peer_run *run)
{
    return part_of(run->peer, run->peer->rank);
}

static inline uint64_t mark_of(const struct peer_run *run, uint64_t turn)
{
    return turn << SIGNATURE_BITS | run->signature;
}

/* SUCCESS once the rank's mark is of this turn or a later one; a mark of this turn must have our signature. Acquires
 * what the rank wrote before it. */
static inline alnico_status_t check_mark(const struct peer_run *run, const _Atomic uint64_t *mark,
                                         uint64_t turn, int rank)
{
    uint64_t seen = atomic_load_explicit(mark, memory_order_acquire);
    if (seen >> SIGNATURE_BITS < turn)
        return ALNICO_PENDING;
    if (seen >> SIGNATURE_BITS == turn && seen != mark_of(run, turn))
        return error_set(ALNICO_ERROR_MISMATCH, "rank %d calls another operation, type or count",
                         rank);
    return ALNICO_SUCCESS;
}

/* Whom we look at i-th: everybody begins with another rank, so that not all want the same line at once. */
static inline int rank_at(const struct peer *peer, int i)
{
    int rank = peer->rank + 1 + i;
    return rank < peer->size ? rank : rank - peer->size;
}

/* The steps: one try each. PENDING, SUCCESS (the run goes on with run->step, or has ended), or MISMATCH. */
alnico_status_t peer_poll_lines(struct peer_run *run, bool *moved);
alnico_status_t peer_poll_group(struct peer_run *run, bool *moved);
alnico_status_t peer_poll_groups(struct peer_run *run);
alnico_status_t peer_poll_reduce(struct peer_run *run, bool *moved);
alnico_status_t peer_poll_collect(struct peer_run *run);

/* Bytes of a stage and of a block's result; bytes up to which one-shot takes lines. */
size_t peer_stage_bytes(int size);
size_t peer_result_bytes(int size);
size_t peer_small_bytes(void);

#endif
