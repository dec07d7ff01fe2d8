/* Each operation as NCCL carries it out. On the calling thread, between nccl_enter and
 * nccl_leave. */
#ifndef ALNICO_COMM_BACKENDS_NCCL_CALLS_H
#define ALNICO_COMM_BACKENDS_NCCL_CALLS_H

#include "comm/backends/nccl/library.h"
#include "comm/call.h"
#include "comm/communicator/comm.h"

/* Whether NCCL can carry out the call, by one of the algorithms of its list: a function of what is
 * equal on all ranks, but of messages, where it looks for those to this rank itself that have no
 * partner. */
bool nccl_can(const struct alnico_comm *comm, const struct call *call,
              const struct algorithm *algorithm);

/* Enqueues it. `scratch` is NCCL_SCRATCH_BYTES of the device's memory, which any number of calls in
 * flight may share. */
enum { NCCL_SCRATCH_BYTES = 64 };
alnico_status_t nccl_enqueue(const struct alnico_comm *comm, const struct call *call,
                             ncclComm_t nccl, void *scratch, void *stream);

/* The call where this rank is the only one: copies. */
alnico_status_t nccl_copy_alone(const struct alnico_comm *comm, const struct call *call,
                                void *stream);

#endif
