/* The report of a kernel that gave up, for the host. On the caller's thread. */
#ifndef ALNICO_COMM_GPUMEM_FAULTS_H
#define ALNICO_COMM_GPUMEM_FAULTS_H

#include "comm/communicator/comm.h"
#include "comm/gpumem/kernel.h"

/* SUCCESS, or why the first kernel of the backend's table that gave up did: TIMEOUT, ABORTED,
 * ARGUMENT, with the kernel and the rank. */
alnico_status_t peer_faults_look(const struct alnico_comm *comm, const struct peer_words *words,
                                 const struct peer_kernel *kernels, unsigned count);

#endif
