/* Premultiplied sums: operations that a program creates, and calls with them as sums of products. On the
 * thread that calls on the communicator. */
#ifndef ALNICO_COMM_API_PREMULTIPLIED_H
#define ALNICO_COMM_API_PREMULTIPLIED_H

#include "comm/communicator/comm.h"

/* The values of created operations begin here, and there are as many. */
enum { CREATED_OP = 1 << 16 };

/* Turns the operation into a sum, with its factor; other operations stay as they are. */
alnico_status_t premultiplied_resolve(alnico_comm_t comm, struct call *call, const char *who);

/* A checked call's products: gives it a `send` that they fit in, its `recv` where that is possible. *scratch
 * is memory for them, or NULL; to be given back by one of those below. */
alnico_status_t premultiplied_place(alnico_comm_t comm, struct call *call, void **scratch);

/* Multiplies, on the communicator's stream. */
alnico_status_t premultiplied_multiply(alnico_comm_t comm, const struct call *call);

/* Gives the scratch back, when the communicator's stream gets here; or keeps it until *request is over,
 * which becomes another one. */
void premultiplied_release(alnico_comm_t comm, void *scratch);
alnico_status_t premultiplied_keep(alnico_comm_t comm, void *scratch, alnico_request_t *request);

/* With nothing in flight, before the communicator is freed. */
void premultiplied_finish(alnico_comm_t comm);

#endif
