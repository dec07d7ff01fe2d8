/* The aware backend's row in the registry: algorithms of host's by names of their own, so that
 * either can be asked for. Left out are those that need as much scratch as all vectors of a host,
 * and barriers, which have nothing in the device's memory. */
#include "comm/backends/host/host.h"

#include <limits.h>

struct aware_algorithm {
    struct algorithm named; /* first */
    const struct algorithm *rounds;
};

#define AWARE(VARIABLE, NAME, ROUNDS)                                                              \
    static const struct aware_algorithm VARIABLE = {                                               \
        {.name = "aware_" NAME, .about = NAME "'s rounds, on the device's memory"}, &(ROUNDS)}

AWARE(allreduce_doubling, "recursive_doubling", algorithm_recursive_doubling);
AWARE(allreduce_rabenseifner, "rabenseifner", algorithm_rabenseifner);
AWARE(allreduce_ring, "ring", algorithm_ring);
AWARE(allreduce_hosts_doubling, "hierarchical_doubling", algorithm_hierarchical_doubling);
AWARE(allreduce_hosts_rabenseifner, "hierarchical_rabenseifner",
      algorithm_hierarchical_rabenseifner);
AWARE(allreduce_hosts_ring, "hierarchical_ring", algorithm_hierarchical_ring);
AWARE(reduce_binomial, "binomial", algorithm_reduce_binomial);
AWARE(reduce_scatter_gather, "reduce_scatter_gather", algorithm_reduce_scatter_gather);
AWARE(broadcast_binomial, "binomial", algorithm_broadcast_binomial);
AWARE(broadcast_scatter_ring, "scatter_ring_allgather", algorithm_broadcast_scatter_ring);
AWARE(allgather_doubling, "recursive_doubling", algorithm_allgather_recursive_doubling);
AWARE(allgather_ring, "ring", algorithm_allgather_ring);
AWARE(scatter_halving, "recursive_halving", algorithm_reduce_scatter_recursive_halving);
AWARE(scatter_pairwise, "pairwise", algorithm_reduce_scatter_pairwise);
AWARE(gather_linear, "linear", algorithm_gather_linear);
AWARE(scatter_linear, "linear", algorithm_scatter_linear);
AWARE(alltoall_pairwise, "pairwise", algorithm_alltoall_pairwise);
AWARE(sendrecv_direct, "direct", algorithm_sendrecv_direct);

/* A list of algorithms. */
#define LIST(...)                                                                                  \
    (const struct algorithm *const[])                                                              \
    {                                                                                              \
        __VA_ARGS__, NULL                                                                          \
    }

const struct backend backend_aware = {
    .name = "aware",
    .devices = 1u << ALNICO_DEVICE_CUDA,
    .ranks_least = 1,
    .ranks_most = INT_MAX,
    .hosts_most = INT_MAX,
    .algorithms =
        {
            [ALNICO_ALLREDUCE] =
                LIST(&allreduce_doubling.named, &allreduce_rabenseifner.named,
                     &allreduce_ring.named, &allreduce_hosts_doubling.named,
                     &allreduce_hosts_rabenseifner.named, &allreduce_hosts_ring.named),
            [ALNICO_REDUCE] = LIST(&reduce_binomial.named, &reduce_scatter_gather.named),
            [ALNICO_BROADCAST] = LIST(&broadcast_binomial.named, &broadcast_scatter_ring.named),
            [ALNICO_ALLGATHER] = LIST(&allgather_doubling.named, &allgather_ring.named),
            [ALNICO_ALLGATHERV] = LIST(&allgather_ring.named),
            [ALNICO_REDUCE_SCATTER] = LIST(&scatter_halving.named, &scatter_pairwise.named),
            [ALNICO_REDUCE_SCATTERV] = LIST(&scatter_pairwise.named),
            [ALNICO_GATHER] = LIST(&gather_linear.named),
            [ALNICO_GATHERV] = LIST(&gather_linear.named),
            [ALNICO_SCATTER] = LIST(&scatter_linear.named),
            [ALNICO_SCATTERV] = LIST(&scatter_linear.named),
            [ALNICO_ALLTOALL] = LIST(&alltoall_pairwise.named),
            [ALNICO_ALLTOALLV] = LIST(&alltoall_pairwise.named),
            [ALNICO_SENDRECV] = LIST(&sendrecv_direct.named),
        },
    .ops = &aware_ops,
};

const struct algorithm *aware_rounds(const struct algorithm *algorithm)
{
    return ((const struct aware_algorithm *)algorithm)->rounds;
}
