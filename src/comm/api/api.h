/* What the public entry points share: each describes its call, and api_start checks it, chooses how
 * it is carried out and starts that. On the thread that calls on the communicator. */
#ifndef ALNICO_COMM_API_API_H
#define ALNICO_COMM_API_API_H

#include "comm/communicator/comm.h"

/* comm_ready in a collective, where the others may hear of it. */
alnico_status_t api_collective(alnico_comm_t comm, const char *who);

/* What this rank has against its own arguments of a collective, `mine`: with ALNICO_CHECK it tells
 * the others, who wait for it, before it returns that. On a communicator that may be used. */
alnico_status_t api_refused(alnico_comm_t comm, alnico_status_t mine, const char *who);
#define TRY_TOLD(COMM, WHO, EXPR)                                                                  \
    do {                                                                                           \
        alnico_status_t told_ = (EXPR);                                                            \
        if (told_ != ALNICO_SUCCESS)                                                               \
            return api_refused((COMM), told_, (WHO));                                              \
    } while (0)

/* Of a nonblocking call: there is somewhere to put the request, which is NULL until then. Of a
 * collective the others may hear if not. */
alnico_status_t api_request(alnico_request_t *request, const char *who);
alnico_status_t api_request_told(alnico_comm_t comm, alnico_request_t *request, const char *who);

/* The collective's root is a rank. */
alnico_status_t api_root(alnico_comm_t comm, int root, const char *who);

/* ALNICO_IN_PLACE as `name` has no meaning on this rank, which is not the root. */
alnico_status_t api_nowhere(alnico_comm_t comm, const char *name, int root, const char *who);

/* An array with a count for each rank. */
alnico_status_t api_counts(const size_t *counts, const char *name, const char *who);

/* What a rank passes as its own block's count is what counts say. */
alnico_status_t api_own_count(alnico_comm_t comm, const char *name, size_t count,
                              const size_t *counts, const char *who);

/* In `buffer`, which has the blocks of all ranks, the rank's own: for ALNICO_IN_PLACE as the other
 * one. */
alnico_status_t api_own_place(alnico_comm_t comm, const struct side *blocks, const void *buffer,
                              alnico_datatype_t type, const char *who, void **out);

/* The arguments of one buffer by themselves. */
alnico_status_t api_buffer(alnico_comm_t comm, const void *buffer, const char *name, size_t count,
                           alnico_datatype_t type, const char *who);
alnico_status_t api_type(size_t count, alnico_datatype_t type, const char *who);

/* What a forced algorithm's backend makes when it is needed first, it makes now (collective). */
alnico_status_t api_prepare(alnico_comm_t comm, const struct choice *forced, const char *who);

/* Whether a forced algorithm can do the call; with `call` NULL, whether it works for the
 * communicator. */
alnico_status_t api_fits(alnico_comm_t comm, const struct call *call, unsigned modes,
                         const struct choice *forced, const char *who);

/* Checks all else that it says, and starts it; blocking with `request` NULL. */
alnico_status_t api_start(alnico_comm_t comm, const struct call *call, alnico_request_t *request,
                          const char *who);

#endif
