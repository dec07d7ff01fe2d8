/* A listening port: takes connections, runs their handshakes side by side, and gives out those of the
 * job's ranks. All others are refused, each with a line in the log, and harm nobody. One thread. */
#ifndef ALNICO_COMM_NET_LISTENER_H
#define ALNICO_COMM_NET_LISTENER_H

#include "comm/net/handshake.h"

#include <poll.h>

enum {
    NET_PENDING = 64,   /* handshakes at once; then the oldest is dropped for a newer one, */
    NET_YOUNG_MS = 100, /* unless it has just begun */
    NET_PATIENCE_S = 5, /* for one handshake */
    NET_WARNINGS = 8    /* refusals that are warned of; later ones are only for ALNICO_LOG=debug */
};

struct net_pending {
    struct net_handshake handshake;
    int64_t end_ns;
};

struct net_listener {
    int fd; /* -1: closed */
    struct net_address address;
    struct net_key key;
    struct net_identity identity;
    net_admit *admit; /* NULL: any rank that knows the key. Who is admitted may still be lost */
    void *context;
    struct net_pending *pending;
    int count, refused;
};

/* Listens at `at`, with port 0 at a free one; `address` then says where. Errors: MEMORY, SYSTEM. */
alnico_status_t net_listener_open(struct net_listener *l, const struct net_address *at,
                                  const struct net_key *key, const struct net_identity *identity);

/* A connection whose handshake has succeeded, which is the caller's then, and who is there; -1: none
 * now. Never blocks; to be called until it gives none. */
int net_listener_next(struct net_listener *l, struct net_identity *theirs,
                      struct net_address *address);

/* What the next call waits for; at most 1 + NET_PENDING entries. Returns how many. Time counts too: poll
 * for at most NET_YOUNG_MS. */
int net_listener_poll(const struct net_listener *l, struct pollfd *out);

/* The port too; a closed one may be closed again. */
void net_listener_close(struct net_listener *l);

#endif
