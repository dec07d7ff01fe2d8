/* The hierarchical backend's row in the registry, in every build. */
#include "comm/backends/hierarchical/hierarchical.h"

#include <limits.h>

const struct algorithm algorithm_hierarchical = {
    .name = "hierarchical",
    .about = "inside each host by its table, between hosts each seat its part, chunks overlapping",
};

static const struct algorithm *const list[] = {&algorithm_hierarchical, NULL};

const struct backend backend_hierarchical = {
    .name = "hierarchical",
    .devices = 1u << ALNICO_DEVICE_CUDA,
    .ranks_least = 3,
    .ranks_most = INT_MAX,
    .hosts_most = INT_MAX,
    .algorithms =
        {
            [ALNICO_ALLREDUCE] = list,
            [ALNICO_REDUCE] = list,
            [ALNICO_BROADCAST] = list,
            [ALNICO_ALLGATHER] = list,
            [ALNICO_REDUCE_SCATTER] = list,
            [ALNICO_BARRIER] = list,
        },
    .ops = &hierarchical_ops,
};
