/* The algorithms of each collective, in lists that end with NULL. */
#include "comm/algorithms/algorithm.h"

const struct algorithm *const algorithms_allreduce[] = {&algorithm_recursive_doubling,
                                                        &algorithm_rabenseifner,
                                                        &algorithm_ring,
                                                        &algorithm_binomial,
                                                        &algorithm_hierarchical_leaders,
                                                        &algorithm_hierarchical_doubling,
                                                        &algorithm_hierarchical_rabenseifner,
                                                        &algorithm_hierarchical_ring,
                                                        NULL};
const struct algorithm *const algorithms_reduce[] = {&algorithm_reduce_binomial,
                                                     &algorithm_reduce_scatter_gather,
                                                     &algorithm_reduce_hierarchical, NULL};
const struct algorithm *const algorithms_broadcast[] = {
    &algorithm_broadcast_binomial, &algorithm_broadcast_scatter_ring,
    &algorithm_broadcast_hierarchical_leaders, &algorithm_broadcast_hierarchical_ring, NULL};
const struct algorithm *const algorithms_allgather[] = {&algorithm_allgather_recursive_doubling,
                                                        &algorithm_allgather_bruck,
                                                        &algorithm_allgather_ring,
                                                        &algorithm_allgather_hierarchical_leaders,
                                                        &algorithm_allgather_hierarchical_ring,
                                                        NULL};
const struct algorithm *const algorithms_allgatherv[] = {
    &algorithm_allgather_ring, &algorithm_allgather_hierarchical_ring, NULL};
const struct algorithm *const algorithms_reduce_scatter[] = {
    &algorithm_reduce_scatter_recursive_halving,
    &algorithm_reduce_scatter_pairwise,
    &algorithm_reduce_scatter_ring,
    &algorithm_reduce_scatter_hierarchical_leaders,
    &algorithm_reduce_scatter_hierarchical_ring,
    NULL};
const struct algorithm *const algorithms_reduce_scatterv[] = {
    &algorithm_reduce_scatter_pairwise, &algorithm_reduce_scatter_ring,
    &algorithm_reduce_scatter_hierarchical_ring, NULL};
const struct algorithm *const algorithms_gather[] = {&algorithm_gather_binomial,
                                                     &algorithm_gather_linear, NULL};
const struct algorithm *const algorithms_gatherv[] = {&algorithm_gather_linear, NULL};
const struct algorithm *const algorithms_scatter[] = {&algorithm_scatter_binomial,
                                                      &algorithm_scatter_linear, NULL};
const struct algorithm *const algorithms_scatterv[] = {&algorithm_scatter_linear, NULL};
const struct algorithm *const algorithms_alltoall[] = {&algorithm_alltoall_bruck,
                                                       &algorithm_alltoall_pairwise, NULL};
const struct algorithm *const algorithms_alltoallv[] = {&algorithm_alltoall_pairwise, NULL};
const struct algorithm *const algorithms_barrier[] = {&algorithm_barrier_dissemination,
                                                      &algorithm_barrier_hierarchical, NULL};
const struct algorithm *const algorithms_sendrecv[] = {&algorithm_sendrecv_direct, NULL};
