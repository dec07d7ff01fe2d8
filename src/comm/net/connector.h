/* A connection to another rank: connects and carries out the handshake, until a deadline, and again
 * where nobody listens there yet. One thread. */
#ifndef ALNICO_COMM_NET_CONNECTOR_H
#define ALNICO_COMM_NET_CONNECTOR_H

#include "comm/net/handshake.h"

#include <poll.h>

struct net_connector {
    struct net_handshake handshake;
    struct net_address to;
    struct net_key key;
    struct net_identity mine;
    bool patient;     /* the other side may not listen yet: tries again */
    bool connected;   /* the handshake is under way */
    int fd;           /* -1: none */
    int64_t again_ns; /* when to try again */
    int tries;
    int64_t end_ns;
};

/* `end_ns` is on backoff_now_ns's clock. Never blocks. */
void net_connector_begin(struct net_connector *c, const struct net_address *to,
                         const struct net_key *key, const struct net_identity *mine, bool patient,
                         int64_t end_ns);

/* As far as it goes now: SUCCESS, and *fd is the caller's; PENDING; or how it failed: TIMEOUT, SYSTEM,
 * MISMATCH or the other side's verdict, whose detail names the address. Never blocks. */
alnico_status_t net_connector_step(struct net_connector *c, int *fd);

/* What the next step waits for: *out, whose fd may be -1, for at most so many milliseconds. */
int net_connector_poll(const struct net_connector *c, struct pollfd *out);

/* Steps until the end. */
alnico_status_t net_connector_run(struct net_connector *c, int *fd);

/* Gives up; after the end of the steps it does nothing. */
void net_connector_close(struct net_connector *c);

#endif
