/* NCCL's row in the registry, in every build. */
#include "comm/backends/nccl/algorithms.h"

#include <limits.h>

const struct algorithm algorithm_nccl = {
    .name = "nccl",
    .about = "NCCL's own choice among its rings and trees",
};

const struct algorithm algorithm_nccl_symmetric = {
    .name = "nccl_symmetric",
    .about = "NCCL's kernels for registered buffers in symmetric windows",
};

const struct algorithm algorithm_nccl_messages = {
    .name = "nccl_messages",
    .about = "NCCL's sends and receives, all in one group",
};

static const struct algorithm *const registered[] = {&algorithm_nccl, &algorithm_nccl_symmetric,
                                                     NULL};
static const struct algorithm *const plain[] = {&algorithm_nccl, NULL};
static const struct algorithm *const messages[] = {&algorithm_nccl_messages, NULL};

const struct backend backend_nccl = {
    .name = "nccl",
    .devices = 1u << ALNICO_DEVICE_CUDA,
    .ranks_least = 1,
    .ranks_most = INT_MAX,
    .hosts_most = INT_MAX,
    .algorithms =
        {
            [ALNICO_ALLREDUCE] = registered,
            [ALNICO_REDUCE] = plain,
            [ALNICO_BROADCAST] = plain,
            [ALNICO_ALLGATHER] = registered,
            [ALNICO_ALLGATHERV] = messages,
            [ALNICO_REDUCE_SCATTER] = registered,
            [ALNICO_REDUCE_SCATTERV] = plain,
            [ALNICO_GATHER] = messages,
            [ALNICO_GATHERV] = messages,
            [ALNICO_SCATTER] = messages,
            [ALNICO_SCATTERV] = messages,
            [ALNICO_ALLTOALL] = messages,
            [ALNICO_ALLTOALLV] = messages,
            [ALNICO_BARRIER] = plain,
            [ALNICO_SENDRECV] = messages,
        },
#ifdef ALNICO_HAVE_NCCL
    .ops = &nccl_ops,
#endif
};
