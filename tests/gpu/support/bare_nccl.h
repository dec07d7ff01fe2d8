/* NCCL by itself, as the library uses it: what that leaves behind is not the library's. Without
 * NCCL in the build there is none of it. */
#ifndef ALNICO_TESTS_GPU_SUPPORT_BARE_NCCL_H
#define ALNICO_TESTS_GPU_SUPPORT_BARE_NCCL_H

#include "tests/gpu/support/world.h"

/* How many NCCL communicators this one has. */
int bare_nccl_count(alnico_comm_t comm);

/* One communicator of NCCL's over all ranks: made and connected by threads of its own, used, and
 * destroyed by the caller. */
void bare_nccl_come_and_go(struct gpu_rank *rank, cudaStream_t stream);

#endif
