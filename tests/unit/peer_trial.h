/* One collective over the area of the peer backend: its inputs, its blocks and what must come out.
 * Ranks are threads. */
#ifndef ALNICO_TESTS_PEER_TRIAL_H
#define ALNICO_TESTS_PEER_TRIAL_H

#include "comm/peer.h"

#include "ranks.h"

extern uint64_t trial_seed; /* of everything random */

/* One call, as all ranks know it. Of a vector form the count is the most that a block has. */
struct trial {
    struct call call;
    enum peer_way way;
    bool in_place;
    uint64_t salt;
    int size;
};

/* To its end. */
alnico_status_t trial_run(struct peer *peer, const struct call *call, enum peer_way way);

/* Makes a rank's buffers, runs the call, and requires that it did what it should and wrote nothing
 * else. */
void trial_one(struct rank *rank, struct peer *peer, struct trial *t);

#endif
