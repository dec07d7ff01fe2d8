/* The composed backend's row in the registry, in every build. The tuning table has no rows of it: it
 * takes what is captured and nothing else can do (api/dispatch.c). */
#include "comm/backends/composed/composed.h"

#include <limits.h>

const struct algorithm composed_allreduce = {
    .name = "composed_allreduce",
    .about = "a captured allreduce of the whole vector, of which a rank keeps its part",
};

const struct algorithm composed_messages = {
    .name = "composed_messages",
    .about = "captured messages, all in one group; in place from a copy",
};

static const struct algorithm *const reductions[] = {&composed_allreduce, NULL};
static const struct algorithm *const moves[] = {&composed_messages, NULL};

const struct backend backend_composed = {
    .name = "composed",
    .devices = 1u << ALNICO_DEVICE_CUDA,
    .ranks_least = 2,
    .ranks_most = INT_MAX,
    .hosts_most = INT_MAX,
    .algorithms =
        {
            [ALNICO_REDUCE] = reductions,
            [ALNICO_BROADCAST] = moves,
            [ALNICO_ALLGATHER] = moves,
            [ALNICO_ALLGATHERV] = moves,
            [ALNICO_REDUCE_SCATTER] = reductions,
            [ALNICO_REDUCE_SCATTERV] = reductions,
            [ALNICO_GATHER] = moves,
            [ALNICO_GATHERV] = moves,
            [ALNICO_SCATTER] = moves,
            [ALNICO_SCATTERV] = moves,
            [ALNICO_ALLTOALL] = moves,
            [ALNICO_ALLTOALLV] = moves,
        },
#ifdef ALNICO_HAVE_CUDA
    .ops = &composed_ops,
#endif
};
