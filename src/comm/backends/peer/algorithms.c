/* The peer backend's row in the registry: every rank reads what the others published in memory that
 * all of them map. Here alpha is the time for a cache line to get from one core to another. */
#include "comm/backends/backend.h"
#include "comm/backends/peer/peer.h"

const struct algorithm algorithm_one_shot = {
    .name = "one_shot",
    .about = "alpha + (p-1) n (beta + gamma); each rank combines all vectors itself",
};

const struct algorithm algorithm_two_shot = {
    .name = "two_shot",
    .about = "2 alpha + 2 (p-1)/p n beta + (p-1)/p n gamma; each rank combines one block for all",
};

const struct algorithm algorithm_recursive_multiplying = {
    .name = "recursive_multiplying",
    .about = "2 alpha + 2 sqrt(p) n (beta + gamma); groups of sqrt(p), then one of each "
             "(Ruefenacht, Bull, Booth 2017)",
};

static const struct algorithm *const reductions[] = {&algorithm_one_shot, &algorithm_two_shot,
                                                     &algorithm_recursive_multiplying, NULL};

/* Collectives whose ranks read what they need, and those that go by groups too. */
static const struct algorithm *const copies[] = {&algorithm_one_shot, NULL};
static const struct algorithm *const groups[] = {&algorithm_one_shot,
                                                 &algorithm_recursive_multiplying, NULL};

const struct backend backend_peer = {
    .name = "peer",
    .devices = 1u << ALNICO_DEVICE_CPU,
    .ranks_least = 2,
    .ranks_most = PEER_RANKS,
    .hosts_most = 1,
    .algorithms =
        {
            [ALNICO_ALLREDUCE] = reductions,
            [ALNICO_REDUCE] = reductions,
            [ALNICO_BROADCAST] = copies,
            [ALNICO_ALLGATHER] = copies,
            [ALNICO_ALLGATHERV] = copies,
            [ALNICO_REDUCE_SCATTER] = copies,
            [ALNICO_REDUCE_SCATTERV] = copies,
            [ALNICO_GATHER] = groups,
            [ALNICO_GATHERV] = copies,
            [ALNICO_SCATTER] = copies,
            [ALNICO_SCATTERV] = copies,
            [ALNICO_ALLTOALL] = copies,
            [ALNICO_ALLTOALLV] = copies,
            [ALNICO_BARRIER] = groups,
        },
    .ops = &peer_ops,
};
