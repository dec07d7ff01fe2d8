/* One collective over the area of the peer backend: its inputs, its blocks and what must come out.
 * Ranks are threads. */
#ifndef ALNICO_TESTS_UNIT_BACKENDS_PEER_TRIAL_H
#define ALNICO_TESTS_UNIT_BACKENDS_PEER_TRIAL_H

#include "comm/backends/peer/peer.h"

#include "tests/support/ranks.h"

extern uint64_t trial_seed; /* of everything random */

/* One call, as all ranks know it. Of a vector form the count is the most that a block has. */
struct trial {
    struct call call;
    enum peer_algorithm way;
    bool in_place;
    uint64_t salt;
    int size;
};

/* Whether the backend has the algorithm for the collective. */
bool peer_does(alnico_collective_t collective, enum peer_algorithm algorithm);

/* To its end. */
alnico_status_t trial_run(struct peer *peer, const struct call *call, enum peer_algorithm way);

/* Where a rank has its blocks of one side, in elements; only where there may be, with gaps between
 * them. */
struct layout {
    size_t counts[PEER_RANKS], at[PEER_RANKS], end;
};

/* Each has a byte behind. */
struct buffers {
    char *send, *recv;
    size_t send_end, recv_end;
};

/* A rank's part of a trial. */
struct trial_run {
    struct rank *rank;
    struct trial trial;
    struct layout sent, taken;
    struct buffers buffers;
    struct peer_run run;
};

/* Makes a rank's buffers and begins the call. */
struct trial_run *trial_begin(struct rank *rank, struct peer *peer, const struct trial *t);

/* One try. At the call's end it requires that it did what it should and wrote nothing else, frees
 * the run and is true. */
bool trial_poll(struct trial_run *run, bool *moved);

/* Both, until the end. */
void trial_one(struct rank *rank, struct peer *peer, const struct trial *t);

#endif
