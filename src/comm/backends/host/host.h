/* The host backend for the registry and its own files: its slots, and its state. */
#ifndef ALNICO_COMM_BACKENDS_HOST_HOST_H
#define ALNICO_COMM_BACKENDS_HOST_HOST_H

#include "comm/communicator/comm.h"

extern const struct backend_ops host_ops;

/* The state: pinned memory, where the host does not reach the buffers; otherwise NULL. */
static inline struct staging *host_staging(const struct alnico_comm *comm)
{
    return comm->state[BACKEND_HOST];
}

#endif
