/*
 * Allreduce over memory that all ranks of a host map, in C11 atomics and without locks: the protocol of the peer
 * backend on the CPU. Every rank writes to its own part of the area only; the others read it.
 *
 * One-shot: every rank publishes its whole vector and combines everybody's itself. Two-shot: each rank combines
 * one block and publishes the result. Both combine in the order of the ranks, so all get the same bits.
 */
#ifndef ALNICO_SRC_PEER_H
#define ALNICO_SRC_PEER_H

#include "comm/call.h"

#include <stdint.h>

enum { PEER_RANKS = 64, PEER_GPUS = 8 }; /* at most */

/* One rank's view of an area, and where it stands in the sequence of operations that all ranks share. */
struct peer;

/* Bytes of the area for so many ranks. It begins as zeros and is aligned to 64 bytes. */
size_t peer_bytes(int size);

/* Errors: MEMORY. */
alnico_status_t peer_create(void *area, int rank, int size, struct peer **out);

/* NULL is fine. Does not touch the area. */
void peer_destroy(struct peer *peer);

/* One allreduce. Only one is polled at a time, in the same order on all ranks. */
struct peer_run {
    struct peer *peer;
    struct call call;
    bool two_shot;
    enum peer_step { PEER_LINES, PEER_STAGE, PEER_REDUCE, PEER_COLLECT } step;
    bool written;     /* PEER_LINES: our own are out */
    int rank;         /* whom the step waits for next */
    size_t line;      /* PEER_LINES: and for which of its lines */
    size_t at, count; /* PEER_STAGE and later: the present piece, in elements */
    uint64_t turn;    /* number of this small operation, or of this piece */
    uint32_t signature;
};

/* Prepares; touches nothing shared. */
void peer_begin(struct peer_run *run, struct peer *peer, const struct call *call, bool two_shot);

/* One step without blocking: ALNICO_PENDING, SUCCESS, or MISMATCH if a rank calls something else. Sets *moved if
 * anything advanced. */
alnico_status_t peer_poll(struct peer_run *run, bool *moved);

#endif
