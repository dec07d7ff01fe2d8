/* Building communicators over a transport, for those that create and split them. */
#ifndef ALNICO_COMM_API_CREATE_H
#define ALNICO_COMM_API_CREATE_H

#include "comm/communicator/comm.h"

/* Makes a communicator, with its backends (collective). Errors: comm_create's, a backend's,
 * UNSUPPORTED. */
alnico_status_t comm_build(const struct creation *made, alnico_comm_t *out);

#endif
