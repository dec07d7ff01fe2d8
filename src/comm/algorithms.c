/* The algorithms of each collective but allreduce, in lists that end with NULL. */
#include "comm/algorithm.h"

const struct algorithm *const algorithms_reduce[] = {NULL};
const struct algorithm *const algorithms_broadcast[] = {NULL};
const struct algorithm *const algorithms_allgather[] = {NULL};
const struct algorithm *const algorithms_allgatherv[] = {NULL};
const struct algorithm *const algorithms_reduce_scatter[] = {NULL};
const struct algorithm *const algorithms_reduce_scatterv[] = {NULL};
const struct algorithm *const algorithms_gather[] = {NULL};
const struct algorithm *const algorithms_gatherv[] = {NULL};
const struct algorithm *const algorithms_scatter[] = {NULL};
const struct algorithm *const algorithms_scatterv[] = {NULL};
const struct algorithm *const algorithms_alltoall[] = {NULL};
const struct algorithm *const algorithms_alltoallv[] = {NULL};
const struct algorithm *const algorithms_barrier[] = {NULL};
const struct algorithm *const algorithms_sendrecv[] = {NULL};
