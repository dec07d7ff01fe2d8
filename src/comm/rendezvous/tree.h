/* Ranks that meet over TCP: a binomial tree of connections, and the allgather over it, of depth
 * O(log size). On the caller's thread. */
#ifndef ALNICO_COMM_RENDEZVOUS_TREE_H
#define ALNICO_COMM_RENDEZVOUS_TREE_H

#include "comm/agree.h"
#include "comm/rendezvous/id.h"

struct tree_options {
    struct place place;
    int rank, size;
    bool patient; /* the root may not listen yet */
    double timeout;
    const char *interface; /* "": by the routes */
    const char *who;
};

struct tree;

/* Finds the root, then parent and children (collective). Errors: TIMEOUT, naming who did not come;
 * MISMATCH, ARGUMENT (refused by the root, or another job's), SYSTEM, MEMORY. */
alnico_status_t tree_create(const struct tree_options *options, struct tree **out);

/* For the steps of making a transport. An error of its allgather reaches all ranks. */
struct rendezvous *tree_rendezvous(struct tree *tree);

/* NULL is fine. */
void tree_destroy(struct tree *tree);

#endif
