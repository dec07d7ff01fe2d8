/*
 * Cliques: the ranks of one communicator that are in this process. One thread may be all of them and destroy
 * them one after the other, while Alnico waits for all ranks in a destroy. So that is done when the last
 * of a clique leaves. Any thread.
 */
#ifndef ALNICO_INTEGRATIONS_NCCL_CLIQUES_H
#define ALNICO_INTEGRATIONS_NCCL_CLIQUES_H

#include "integrations/nccl/comm.h"

/* Equal in all ranks of a communicator and for no other one in this process. */
struct clique_key {
    ncclUniqueId id; /* of the first communicator */
    uint64_t parent; /* of a split or shrink: its clique */
    uint32_t split;  /* how many its parent had had */
    int color;
};

/* The communicator joins the clique of the key. Errors: ncclSystemError. */
ncclResult_t clique_join(ncclComm_t comm, const struct clique_key *key);

/* A number of the communicator's clique, for the key of its children. */
uint64_t clique_number(ncclComm_t comm);

/* The communicator, which is retired, leaves. Of the last one all that have left are returned, as a list by
 * next_leaving; of the others NULL. */
ncclComm_t clique_leave(ncclComm_t comm);

/* It leaves without the others: it was aborted. What then is left to be destroyed is returned. */
ncclComm_t clique_drop(ncclComm_t comm);

#endif
