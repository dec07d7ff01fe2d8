/* Messages between two ranks, as the host backend carries them: a group of any number is one
 * operation of the engine, one round of the executor. They match in the order of the calls, which
 * post them in that order and never wait for each other. */
#ifndef ALNICO_COMM_BACKENDS_HOST_MESSAGES_H
#define ALNICO_COMM_BACKENDS_HOST_MESSAGES_H

#include "comm/backends/backend.h"

/* backend_ops->start of a sendrecv. */
alnico_status_t messages_start(alnico_comm_t comm, const struct call *call,
                               const struct choice *choice, alnico_request_t *request);

#endif
