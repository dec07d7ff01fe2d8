/* The table of collectives. */
#include "comm/collectives.h"

#include <string.h>

const struct collective collectives[] = {
    [ALNICO_ALLREDUCE] = {"allreduce", OWN_BLOCK, OWN_BLOCK, .reduces = true,
                          .in_place = IN_PLACE_SEND},
    [ALNICO_REDUCE] = {"reduce", OWN_BLOCK, OWN_BLOCK, .writes_at_root = true, .reduces = true,
                       .rooted = true, .in_place = IN_PLACE_SEND},
    [ALNICO_BROADCAST] = {"broadcast", OWN_BLOCK, OWN_BLOCK, .reads_at_root = true, .rooted = true},
    [ALNICO_ALLGATHER] = {"allgather", OWN_BLOCK, ALL_BLOCKS, .in_place = IN_PLACE_SEND},
    [ALNICO_ALLGATHERV] = {"allgatherv", OWN_BLOCK, ALL_BLOCKS, .vector = true,
                           .in_place = IN_PLACE_SEND},
    [ALNICO_REDUCE_SCATTER] = {"reduce_scatter", ALL_BLOCKS, OWN_BLOCK, .reduces = true,
                               .in_place = IN_PLACE_SEND},
    [ALNICO_REDUCE_SCATTERV] = {"reduce_scatterv", ALL_BLOCKS, OWN_BLOCK, .reduces = true,
                                .vector = true, .in_place = IN_PLACE_SEND},
    [ALNICO_GATHER] = {"gather", OWN_BLOCK, ALL_BLOCKS, .writes_at_root = true, .rooted = true,
                       .in_place = IN_PLACE_SEND},
    [ALNICO_GATHERV] = {"gatherv", OWN_BLOCK, ALL_BLOCKS, .writes_at_root = true, .rooted = true,
                        .vector = true, .uneven = true, .in_place = IN_PLACE_SEND},
    [ALNICO_SCATTER] = {"scatter", ALL_BLOCKS, OWN_BLOCK, .reads_at_root = true, .rooted = true,
                        .in_place = IN_PLACE_RECV},
    [ALNICO_SCATTERV] = {"scatterv", ALL_BLOCKS, OWN_BLOCK, .reads_at_root = true, .rooted = true,
                         .vector = true, .uneven = true, .in_place = IN_PLACE_RECV},
    [ALNICO_ALLTOALL] = {"alltoall", ALL_BLOCKS, ALL_BLOCKS, .in_place = IN_PLACE_SEND},
    [ALNICO_ALLTOALLV] = {"alltoallv", ALL_BLOCKS, ALL_BLOCKS, .vector = true, .uneven = true,
                          .in_place = IN_PLACE_SEND},
    [ALNICO_BARRIER] = {"barrier", NO_BLOCK, NO_BLOCK, .in_place = IN_PLACE_NEVER},
    [ALNICO_SENDRECV] = {"sendrecv", NO_BLOCK, NO_BLOCK, .uneven = true},
};

const struct collective *collective_find(const char *name)
{
    for (int i = 0; i < COLLECTIVES; i++)
        if (strcmp(collectives[i].name, name) == 0)
            return &collectives[i];
    return NULL;
}
