/* The host backend's row in the registry: all algorithms that work in rounds. */
#include "comm/backends/host/host.h"

#include <limits.h>

const struct backend backend_host = {
    .name = "host",
    .devices = 1u << ALNICO_DEVICE_CPU | 1u << ALNICO_DEVICE_CUDA,
    .ranks_least = 1,
    .ranks_most = INT_MAX,
    .hosts_most = INT_MAX,
    .algorithms =
        {
            [ALNICO_ALLREDUCE] = algorithms_allreduce,
            [ALNICO_REDUCE] = algorithms_reduce,
            [ALNICO_BROADCAST] = algorithms_broadcast,
            [ALNICO_ALLGATHER] = algorithms_allgather,
            [ALNICO_ALLGATHERV] = algorithms_allgatherv,
            [ALNICO_REDUCE_SCATTER] = algorithms_reduce_scatter,
            [ALNICO_REDUCE_SCATTERV] = algorithms_reduce_scatterv,
            [ALNICO_GATHER] = algorithms_gather,
            [ALNICO_GATHERV] = algorithms_gatherv,
            [ALNICO_SCATTER] = algorithms_scatter,
            [ALNICO_SCATTERV] = algorithms_scatterv,
            [ALNICO_ALLTOALL] = algorithms_alltoall,
            [ALNICO_ALLTOALLV] = algorithms_alltoallv,
            [ALNICO_BARRIER] = algorithms_barrier,
            [ALNICO_SENDRECV] = algorithms_sendrecv,
        },
    .ops = &host_ops,
};
