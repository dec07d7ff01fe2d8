/* What a kernel that gave up left for the host. On the caller's thread. */
#ifndef ALNICO_COMM_BACKENDS_PEER_CUDA_FAULTS_H
#define ALNICO_COMM_BACKENDS_PEER_CUDA_FAULTS_H

#include "comm/backends/peer_cuda/peer_cuda.h"
#include "comm/communicator/comm.h"

/* SUCCESS, or why the first kernel that gave up did: TIMEOUT, ABORTED, ARGUMENT, with the kernel
 * and the rank. */
alnico_status_t peer_faults_look(const struct alnico_comm *comm, const struct peer_words *words);

#endif
