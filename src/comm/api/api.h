/* Inside of the public calls: each describes its call as the user gave it, and api_start resolves
 * and checks it, chooses how it is carried out and starts that. On the thread that calls on the
 * communicator. */
#ifndef ALNICO_COMM_API_API_H
#define ALNICO_COMM_API_API_H

#include "comm/communicator/comm.h"

/* Starts a call whose buffers may be ALNICO_IN_PLACE or unused on this rank; blocking with `request`
 * NULL. A rank that refuses its own arguments of a collective reports so to the others first, with
 * ALNICO_CHECK. Of a sendrecv the caller has checked the communicator. */
alnico_status_t api_start(alnico_comm_t comm, struct call *call, alnico_request_t *request,
                          const char *who);

/* api_start of a nonblocking collective: `request` must not be NULL. */
alnico_status_t api_start_request(alnico_comm_t comm, struct call *call, alnico_request_t *request,
                                  const char *who);

/* Checks that a nonblocking call has room for its request, which is NULL until then. */
alnico_status_t api_request(alnico_request_t *request, const char *who);

/* Root, counts and ALNICO_IN_PLACE of a collective: checked, and resolved to what this rank reads
 * and writes. */
alnico_status_t api_resolve(alnico_comm_t comm, struct call *call, const char *who);

/* The arguments of one buffer by themselves. */
alnico_status_t api_buffer(alnico_comm_t comm, const void *buffer, const char *name, size_t count,
                           alnico_datatype_t type, const char *who);
alnico_status_t api_type(size_t count, alnico_datatype_t type, const char *who);

/* Makes what a forced algorithm's backend would make when it is needed first (collective). */
alnico_status_t api_prepare(alnico_comm_t comm, const struct choice *forced, const char *who);

/* Whether a forced algorithm can do the call; with `call` NULL, whether it works for the
 * communicator. */
alnico_status_t api_fits(alnico_comm_t comm, const struct call *call, unsigned modes,
                         const struct choice *forced, const char *who);

#endif
