/*
 * File descriptors from one process of a host to another, over unix sockets. One side listens at an
 * abstract address that the kernel chooses, and lets the others know it and a random token, which a
 * connection shows. Both sides check that the other runs as the same user. On the caller's thread,
 * with deadlines.
 */
#ifndef ALNICO_COMM_HOSTMEM_DESCRIPTOR_PASSING_H
#define ALNICO_COMM_HOSTMEM_DESCRIPTOR_PASSING_H

#include <alnico/alnico.h>

#include <stdint.h>
#include <sys/un.h>

/* Where a rank listens: plain bytes, to be sent to the others. */
struct descriptor_address {
    uint64_t token[2];
    struct sockaddr_un address;
    uint32_t address_bytes; /* 0: it does not listen */
};

/* Records errno as the detail of `call`: MEMORY or SYSTEM. */
alnico_status_t descriptor_error(const char *call);

/* Milliseconds until `end_ns` on backoff_now_ns's clock, for poll: 0 once it has passed. */
int descriptor_left_ms(int64_t end_ns);

/* Listens for up to `backlog` others; the caller closes *listener, which is -1 on failure. */
alnico_status_t descriptor_listen(int backlog, int *listener, struct descriptor_address *target);

/* A connection to `rank`, which listens there, with the token and this rank's number sent. The caller
 * closes it. */
alnico_status_t descriptor_connect(const struct descriptor_address *target, int rank, int own_rank,
                                   int64_t end_ns, int *connection);

/* The next connection that shows the token, and the rank that it named. Errors: TIMEOUT; SYSTEM or
 * MEMORY at once where the process can have no more descriptors. *connection is then -1. */
alnico_status_t descriptor_accept(int listener, const struct descriptor_address *target,
                                  int64_t end_ns, int *connection, int *rank);

/* Over a connection, in either direction. receive waits until the deadline; false: nothing came. */
bool descriptor_send(int connection, int descriptor);
bool descriptor_receive(int connection, int64_t end_ns, int *descriptor);

#endif
