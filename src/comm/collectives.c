/* The table of collectives. */
#include "comm/collectives.h"

const struct collective collectives[] = {
    [ALNICO_ALLREDUCE] = {"allreduce", OWN_BLOCK, OWN_BLOCK, .reduces = true},
    [ALNICO_REDUCE] = {"reduce", OWN_BLOCK, OWN_BLOCK, .writes_at_root = true, .reduces = true,
                       .rooted = true},
    [ALNICO_BROADCAST] = {"broadcast", OWN_BLOCK, OWN_BLOCK, .reads_at_root = true, .rooted = true},
    [ALNICO_ALLGATHER] = {"allgather", OWN_BLOCK, ALL_BLOCKS},
    [ALNICO_ALLGATHERV] = {"allgatherv", OWN_BLOCK, ALL_BLOCKS, .vector = true},
    [ALNICO_REDUCE_SCATTER] = {"reduce_scatter", ALL_BLOCKS, OWN_BLOCK, .reduces = true},
    [ALNICO_REDUCE_SCATTERV] = {"reduce_scatterv", ALL_BLOCKS, OWN_BLOCK, .reduces = true,
                                .vector = true},
    [ALNICO_GATHER] = {"gather", OWN_BLOCK, ALL_BLOCKS, .writes_at_root = true, .rooted = true},
    [ALNICO_GATHERV] = {"gatherv", OWN_BLOCK, ALL_BLOCKS, .writes_at_root = true, .rooted = true,
                        .vector = true, .uneven = true},
    [ALNICO_SCATTER] = {"scatter", ALL_BLOCKS, OWN_BLOCK, .reads_at_root = true, .rooted = true},
    [ALNICO_SCATTERV] = {"scatterv", ALL_BLOCKS, OWN_BLOCK, .reads_at_root = true, .rooted = true,
                         .vector = true, .uneven = true},
    [ALNICO_ALLTOALL] = {"alltoall", ALL_BLOCKS, ALL_BLOCKS},
    [ALNICO_ALLTOALLV] = {"alltoallv", ALL_BLOCKS, ALL_BLOCKS, .vector = true, .uneven = true},
    [ALNICO_BARRIER] = {"barrier", NO_BLOCK, NO_BLOCK},
    [ALNICO_SENDRECV] = {"sendrecv", NO_BLOCK, NO_BLOCK, .uneven = true},
};
