/*
 * The protocol of the peer backend on the CPU: collectives over memory that all ranks of a host map,
 * in C11 atomics and without locks. A rank writes to its own part of the area only; the others read
 * it. All collectives but sendrecv.
 *
 * One-shot: a rank that has something publishes it; every rank reads what it needs and combines it
 * itself. Recursive multiplying, of allreduce, reduce, barrier and gather: groups do so, and then
 * one rank of each group. Two-shot, of allreduce and reduce: each rank combines one block and
 * publishes the result. The order of combining is the same for all ranks, so all get the same bits;
 * in one-shot and two-shot it is that of the ranks.
 */
#ifndef ALNICO_COMM_BACKENDS_PEER_PEER_H
#define ALNICO_COMM_BACKENDS_PEER_PEER_H

#include "comm/call.h"

#include <stdint.h>

/* The algorithms, which are names and costs only, and the backend's slots. */
extern const struct algorithm algorithm_one_shot, algorithm_two_shot,
    algorithm_recursive_multiplying;
extern const struct backend_ops peer_ops;

enum { PEER_RANKS = 64 }; /* at most */

/* One rank's view of an area, and where it stands in the sequence of operations that all ranks
 * share. */
struct peer;

/* Bytes of the area for so many ranks. It begins as zeros and is aligned to a page. */
size_t peer_bytes(int size);

/* Bytes of a rank's own besides. */
size_t peer_own_bytes(int size);

/* Errors: MEMORY. */
alnico_status_t peer_create(void *area, int rank, int size, struct peer **out);

/* NULL is fine. Does not touch the area. */
void peer_destroy(struct peer *peer);

enum peer_algorithm { PEER_CPU_ONE_SHOT, PEER_CPU_TWO_SHOT, PEER_CPU_MULTIPLYING };

/* A communication pattern: which ranks publish and which read, and whether they publish or take a
 * vector or a block for each rank. */
enum peer_who { PEER_ALL, PEER_ROOT, PEER_OTHERS };
struct peer_pattern {
    enum peer_who writers, readers;
    bool sends_blocks, takes_blocks; /* SEND, RECV has one for each rank */
};

/* One collective. Only one is polled at a time, in the same order on all ranks. */
struct peer_run {
    struct peer *peer;
    struct call call;
    struct peer_pattern pattern;
    const struct peer_steps *steps;
    uint32_t signature;
    size_t width; /* bytes of an element; of a barrier 0 */
    /* Elements of all blocks of a vector form; where only pairs know them, of those that we take.
     * NULL: all are equal. */
    const size_t *counts;
    size_t longest; /* elements of the longest block, or of the vector */

    bool ended;
    bool begun;          /* our own part of this epoch or piece is out */
    bool second;         /* of two steps */
    bool waited;         /* for a rank, of pairs and groups */
    int index;           /* how many ranks the step is done with */
    uint64_t least;      /* that those ranks have finished */
    size_t line;         /* of the next one, in steps with lines */
    size_t done, count;  /* elements behind us, and of the present epoch or piece */
    size_t staged, next; /* elements published so far, and of the piece published last */
    uint64_t epoch;      /* number of the present epoch of lines, or piece */
    uint64_t place;      /* of pairs: number of the slot or stage */
};

/* Prepares; touches nothing shared. The call's lists are there until its end, and say where blocks
 * begin. */
void peer_begin(struct peer_run *run, struct peer *peer, const struct call *call,
                enum peer_algorithm algorithm);

/* The blocks of a gatherv, scatterv or alltoallv that go as messages, as the same collective: *rest,
 * with `lists`, of 2 * size. False if this rank has none. */
bool peer_rest(const struct peer_run *run, struct call *rest, size_t *lists);

/* One step without blocking: ALNICO_PENDING, SUCCESS, or MISMATCH if a rank calls something else.
 * Sets *moved if anything advanced. */
alnico_status_t peer_poll(struct peer_run *run, bool *moved);

#endif
