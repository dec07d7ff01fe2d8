/* The root of a rendezvous over TCP: a thread that listens until all ranks have come, tells each of
 * them where its parent in their tree listens, and ends. */
#ifndef ALNICO_COMM_RENDEZVOUS_ROOT_H
#define ALNICO_COMM_RENDEZVOUS_ROOT_H

#include "comm/rendezvous/id.h"

/* At most. */
enum { RENDEZVOUS_RANKS = 1 << 20 };

/* What a connection of a rendezvous is for: net_identity's number. */
enum { CONNECTION_TO_ROOT, CONNECTION_TO_PARENT };

/* What the root tells each rank. */
struct root_reply {
    int32_t status;
    struct net_address parent;
    char detail[228];
};

/* Listens at the place's address; with port 0 at a free port, and with several `ports` at the first
 * that is free; the address then says where. The thread ends when the ranks have their replies, or
 * `timeout` seconds after the first rank came, or from now if none comes. Errors: MEMORY, SYSTEM. */
alnico_status_t root_start(struct place *place, double timeout);

/* In a binomial tree the ranks below `rank` are those from it to rank + span - 1, and its children
 * are rank + 1, rank + 2, rank + 4, ... below that. */
int tree_span(int rank, int size);
int tree_parent(int rank);

#endif
