/* Building communicators over a transport, for those that create and split them. */
#ifndef ALNICO_COMM_API_CREATE_H
#define ALNICO_COMM_API_CREATE_H

#include "comm/communicator/comm.h"

/* Makes a communicator over a transport, which it takes over even on failure (collective). `family`
 * is NULL for a new one. Errors: comm_create's, a backend's, UNSUPPORTED. */
alnico_status_t comm_build(struct transport *transport, struct family *family,
                           const struct device_ops *device, void *stream, const char *who,
                           alnico_comm_t *out);

#endif
