/*
 * Consensus of the ranks that live: each proposes a status, and all that live to the end learn the
 * same ranks' same proposals, whichever ranks die meanwhile. It is flooding consensus (R. Guerraoui
 * and L. Rodrigues, Introduction to Reliable Distributed Programming, 2006, section 5.2): in a round
 * every rank sends all that it knows to all, and a rank that hears in two rounds from the same ones
 * has decided, and says so to all. Rounds: 1 if all live, otherwise 2 and one for each further one in
 * which a rank dies; each alpha + beta * size. A rank counts as dead when its transport says so, when
 * it has left, or when it has not come within the deadline. One that comes later hears the others'
 * decision, and that it was given up. On the caller's thread.
 */
#ifndef ALNICO_COMM_RENDEZVOUS_CONSENSUS_H
#define ALNICO_COMM_RENDEZVOUS_CONSENSUS_H

#include "comm/transports/transport.h"

#include <stdbool.h>

struct engine;

/* One rank's end, for any number of consensuses, one after the other. */
struct consensus;

/* Errors: MEMORY. */
alnico_status_t consensus_create(struct transport *transport, struct consensus **out);

/* Before the transport's destroy. NULL is fine. */
void consensus_destroy(struct consensus *consensus);

/* What a rank brings to a consensus. */
struct consensus_setup {
    bool *members;          /* by rank: who is to take part; then who has. This rank is one. */
    struct engine *engine;  /* NULL; or pumped meanwhile, if it has no thread */
    double timeout;         /* of a round, times its number */
    alnico_status_t status; /* proposed, with the thread's detail */
    int name;               /* the number that a detail gives to this rank */
    const char *who;        /* the public call */
};

/* The error that the lowest of the ranks that took part proposed, or SUCCESS; its detail begins with
 * `who` and names the rank. If the others went on without this rank, members[rank] is false, and the
 * error is ABORTED. */
alnico_status_t consensus_reach(struct consensus *consensus, const struct consensus_setup *setup);

#endif
