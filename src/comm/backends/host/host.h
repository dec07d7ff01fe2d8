/* The backends host and aware, for the registry and their own files: their slots, and their state.
 * Both run rounds over the transport; the messages of aware are of the device's memory. */
#ifndef ALNICO_COMM_BACKENDS_HOST_HOST_H
#define ALNICO_COMM_BACKENDS_HOST_HOST_H

#include "comm/communicator/comm.h"

extern const struct backend_ops host_ops, aware_ops;

/* backend_ops->start of a sendrecv: messages between two ranks. A group of any number is one engine
 * operation and one round of the executor. Calls post them in their order, in which they match, and
 * never wait for each other. */
alnico_status_t messages_start(alnico_comm_t comm, const struct call *call,
                               const struct choice *choice, alnico_request_t *request);

/* Pinned memory that the communicator's operations of messages have, or keep for the next ones. */
size_t messages_pinned_bytes(const struct alnico_comm *comm);

/* The state of host: pinned memory, where the host does not reach the buffers; otherwise NULL. */
static inline struct staging *host_staging(const struct alnico_comm *comm)
{
    return comm->state[BACKEND_HOST];
}

/* That of aware: what combines elements on the device, where the transport is aware of it;
 * otherwise NULL. */
static inline struct arithmetic *aware_arithmetic(const struct alnico_comm *comm)
{
    return comm->state[BACKEND_AWARE];
}

/* The algorithm whose rounds one of aware's runs. */
const struct algorithm *aware_rounds(const struct algorithm *algorithm);

#endif
