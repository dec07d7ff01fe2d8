/* What a kernel that gave up left for the host. On the caller's thread. */
#ifndef ALNICO_SRC_PEER_FAULTS_H
#define ALNICO_SRC_PEER_FAULTS_H

#include "comm/comm.h"
#include "comm/peer_cuda.h"

/* SUCCESS, or why the first kernel that gave up did: TIMEOUT, ABORTED, ARGUMENT, with the kernel
 * and the rank. */
alnico_status_t peer_faults_look(const struct alnico_comm *comm, const struct peer_words *words);

#endif
