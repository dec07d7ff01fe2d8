/* Messages between two ranks in the host backend: a group of any number is one engine operation and one
 * round of the executor. Calls post them in their order, in which they match, and never wait for each
 * other. */
#ifndef ALNICO_COMM_BACKENDS_HOST_MESSAGES_H
#define ALNICO_COMM_BACKENDS_HOST_MESSAGES_H

#include "comm/backends/backend.h"

/* backend_ops->start of a sendrecv. */
alnico_status_t messages_start(alnico_comm_t comm, const struct call *call,
                               const struct choice *choice, alnico_request_t *request);

#endif
