/*
 * File descriptors from one process of a host to another, over datagram sockets at abstract names
 * that the kernel chooses. Any user may send to such a name. So a receiver connects its socket to the
 * sender's before the sender sends: the kernel then refuses everybody else, and what came before is
 * discarded. On the caller's thread, with deadlines.
 */
#ifndef ALNICO_COMM_HOSTMEM_DESCRIPTOR_PASSING_H
#define ALNICO_COMM_HOSTMEM_DESCRIPTOR_PASSING_H

#include "comm/hostmem/process.h"

#include <alnico/alnico.h>

#include <stdint.h>

/* A socket's name, and a token that its messages carry: plain bytes, to be sent to the others. */
struct descriptor_address {
    uint64_t token[2];
    char name[15];
    uint8_t bytes; /* of the name; 0: there is no socket */
};

/* The other side. */
struct descriptor_peer {
    const struct descriptor_address *address;
    const struct process_id *process;
    int name; /* its rank, for errors */
};

/* Records errno as the detail of `call`: MEMORY or SYSTEM. */
alnico_status_t descriptor_error(const char *call);

/* A socket to send from or to receive at. The caller closes *socket, which is -1 on failure. */
alnico_status_t descriptor_open(int *socket, struct descriptor_address *own);

/* From now on only `from` can send to the socket. Before it sends. */
alnico_status_t descriptor_expect(int socket, const struct descriptor_peer *from);

/* To a socket that expects this one, whose address is `own`. Never blocks. TIMEOUT: the process of
 * the other side has ended. */
alnico_status_t descriptor_send(int socket, const struct descriptor_address *own,
                                const struct descriptor_peer *to, int descriptor);

/* The descriptor that `from` sends, which the caller closes. Errors: TIMEOUT at the deadline, a time
 * on backoff_now_ns's clock, or soon after `from` has closed the socket that its address names or its
 * process has ended; SYSTEM. */
alnico_status_t descriptor_receive(int socket, const struct descriptor_peer *from, int64_t end_ns,
                                   int *descriptor);

#endif
