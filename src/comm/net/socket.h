/* Nonblocking TCP sockets, and sending and receiving whole pieces until a deadline. Any thread. */
#ifndef ALNICO_COMM_NET_SOCKET_H
#define ALNICO_COMM_NET_SOCKET_H

#include "comm/net/address.h"

#include <stddef.h>

/* Listens at the address; with port 0 at a free one. `out` has the port. Errors: SYSTEM, with the
 * address and the reason. */
alnico_status_t net_listen(const struct net_address *at, struct net_address *out, int *fd);

/* The next connection that waits, and where it comes from; -1: none. */
int net_accept(int listener, struct net_address *from);

/* Begins to connect. Errors: SYSTEM. */
alnico_status_t net_connect(const struct net_address *to, int *fd);

/* How that went, once the socket can be written to: SUCCESS, PENDING, or SYSTEM, with errno the
 * reason. Never blocks. */
alnico_status_t net_connected(int fd, const struct net_address *to);

/* As many bytes as go now, moving *data and *bytes behind them: SUCCESS when none is left, PENDING,
 * or SYSTEM: the connection is closed or broken. Never block. */
alnico_status_t net_send_some(int fd, const char **data, size_t *bytes);
alnico_status_t net_receive_some(int fd, char **data, size_t *bytes);

/* The same bytes, which stay there: SUCCESS if so many have come. */
alnico_status_t net_peek(int fd, void *data, size_t bytes);

/* All bytes, until `end_ns` on backoff_now_ns's clock. Errors: TIMEOUT; SYSTEM. */
alnico_status_t net_send(int fd, const void *data, size_t bytes, int64_t end_ns);
alnico_status_t net_receive(int fd, void *data, size_t bytes, int64_t end_ns);

/* Makes sure that the process may open so many files more, some spare ones included: raises the soft
 * limit to the hard one where it does not suffice. Errors: SYSTEM, naming the limit. */
alnico_status_t net_allow_files(size_t count);

/* Milliseconds for poll until `end_ns`, rounded up, at most `most`; 0 if it has passed. */
int net_milliseconds(int64_t end_ns, int most);

#endif
