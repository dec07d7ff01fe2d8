/*
 * The handshake of every connection between ranks, before anything else is sent on it. Both sides
 * prove that they know the job's key without sending it, and tell rank, size and purpose:
 *
 *   opening  connector -> listener   magic, version, who I am, a random number
 *   answer   listener -> connector   the same of the listener, and a keyed hash of both openings
 *   proof    connector -> listener   another keyed hash of both
 *   verdict  listener -> connector   a status and why: the listener's owner may refuse a rank
 *
 * Nothing else that arrives at a port gets further than its first wrong byte. No call blocks. Any
 * thread.
 */
#ifndef ALNICO_COMM_NET_HANDSHAKE_H
#define ALNICO_COMM_NET_HANDSHAKE_H

#include "comm/net/siphash.h"
#include "comm/net/socket.h"

enum { NET_VERSION = 1, NET_OPENING = 88, NET_VERDICT = 128 };

/* What only the processes of one job know. */
struct net_key {
    uint8_t bytes[SIPHASH_BYTES];
};

/* A key of random bytes, and one made from any text. Errors: SYSTEM. */
alnico_status_t net_key_create(struct net_key *out);
void net_key_from_text(const char *text, size_t bytes, struct net_key *out);

/* The key of one purpose, told apart by its salt, which may be known: whoever lacks `key` lacks it. */
void net_key_derive(const struct net_key *key, const struct net_key *salt, struct net_key *out);

/* What a connection is for. */
enum net_purpose { NET_RENDEZVOUS = 1, NET_MESSAGES = 2 };

/* One side of a connection. */
struct net_identity {
    uint32_t purpose; /* enum net_purpose */
    int32_t rank, size;
    uint32_t number; /* as the purpose says: a communicator, a connection of several */
    uint64_t tag;
    struct net_address listens; /* where this side can be connected to, if the purpose needs that */
};

struct net_handshake {
    int fd;
    bool connects;
    const struct net_key *key;
    struct net_address address;       /* of the other side */
    struct net_identity mine, theirs; /* `theirs` is true once the handshake has succeeded */
    int phase;                        /* which of the four messages is on its way */
    bool moving;                      /* its bytes are counted in `left` */
    char buffer[NET_VERDICT];
    size_t left;
    char openings[2][NET_OPENING]; /* the connector's, the listener's */
    alnico_status_t verdict;
};

/* Begins on a connected socket, which stays the caller's. `key` is read until the end. Errors: SYSTEM
 * (no random numbers). */
alnico_status_t net_handshake_begin(struct net_handshake *h, int fd, bool connects,
                                    const struct net_key *key, const struct net_identity *mine,
                                    const struct net_address *address);

/* Whether the listener's owner takes this rank: SUCCESS, or a status with a detail, which the other
 * side gets too. */
typedef alnico_status_t net_admit(void *context, const struct net_identity *theirs);

/* As far as it goes now: SUCCESS, PENDING, or how it failed: MISMATCH (the other side is none of this
 * job: the detail says why), SYSTEM (the connection broke), or the verdict. A connector passes no
 * `admit`; a listener without one takes any rank that knows the key. */
alnico_status_t net_handshake_step(struct net_handshake *h, net_admit *admit, void *context);

/* POLLIN or POLLOUT: what the next step waits for. */
short net_handshake_events(const struct net_handshake *h);

#endif
