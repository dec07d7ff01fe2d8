/* From ranks that meet, by a callback of the user's or otherwise, to a transport between them. On the
 * caller's thread. */
#ifndef ALNICO_COMM_RENDEZVOUS_CALLBACK_H
#define ALNICO_COMM_RENDEZVOUS_CALLBACK_H

#include "comm/transports/transport.h"

/* Threads of one process share memory, processes of one host map shared memory, and between hosts TCP
 * carries the messages, or MPI where rank 0 asks for it and it knows all ranks (collective). Errors: of
 * `r`'s allgather, MEMORY, the transport's. */
alnico_status_t transport_meet(struct rendezvous *r, struct transport **out);

/* The same by a callback; `timeout` is of making the transport. Errors: SYSTEM (the callback failed),
 * as transport_meet. */
alnico_status_t transport_from_callback(const alnico_bootstrap_t *bootstrap, double timeout,
                                        const char *who, struct transport **out);

#endif
