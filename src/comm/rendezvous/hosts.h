/* How ranks of several hosts exchange messages without MPI: through shared memory within a host, over
 * TCP between hosts. On the caller's thread. */
#ifndef ALNICO_COMM_RENDEZVOUS_HOSTS_H
#define ALNICO_COMM_RENDEZVOUS_HOSTS_H

#include "comm/transports/transport.h"

/* A transport for the ranks of `r` (collective); host[i] tells rank i's host from others. On a host
 * whose ranks cannot share memory TCP carries their messages too. A tag that is received from
 * TRANSPORT_ANY is received from nobody by name. All ranks get the same status, unless the allgather
 * fails. Errors: MEMORY, those of the transports. */
alnico_status_t transport_hosts_create(struct rendezvous *r, const uint64_t *host,
                                       const struct tcp_options *options, struct transport **out);

#endif
