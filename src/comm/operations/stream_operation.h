/* Operations that the device carries out by itself, for the backends that launch them: which stream
 * they go to, how blocking and nonblocking ones of a communicator follow each other, and requests.
 * All on the thread that calls on the communicator. */
#ifndef ALNICO_COMM_OPERATIONS_STREAM_OPERATION_H
#define ALNICO_COMM_OPERATIONS_STREAM_OPERATION_H

#include "comm/backends/backend.h"
#include "comm/communicator/comm.h"

/* A nonblocking one. */
struct stream_operation;

/* Makes what nonblocking operations need, where the communicator is made: later CUDA may wait for
 * all streams before it makes one, and they for what this rank's engine copies, which then waits
 * for CUDA. On the CPU a stream is a thread, and made by the first nonblocking operation. What
 * cannot be made is missed by that one. */
void stream_operation_attach(alnico_comm_t comm);

/* The backend's slot of the same name. A blocking operation is launched on the communicator's
 * stream, which first waits for nonblocking ones that it did not wait for yet; a nonblocking one on
 * a stream of the library's, behind all that the communicator's was given before. Errors of start:
 * the launch's, MEMORY, and the device's. */
alnico_status_t stream_operation_start(alnico_comm_t comm, const struct call *call,
                                       const struct choice *choice, alnico_request_t *request);

/* Later operations are ordered on this stream, behind those before. */
alnico_status_t stream_operation_move(alnico_comm_t comm, void *stream);

/* After each call: a stream that the communicator was given by a move may be destroyed before the
 * next one, which therefore follows a mark. */
alnico_status_t stream_operation_mark(alnico_comm_t comm);

/* Blocks the caller until the communicator's stream and the device have carried out everything; at
 * the deadline what waits for other ranks is aborted. */
alnico_status_t stream_operation_drain(alnico_comm_t comm);

/* Frees what the communicator has for them; nothing is in flight. */
void stream_operation_finish(alnico_comm_t comm);

#endif
