/*
 * Notes: a few bytes that some of a communicator's ranks tell each other over it, before they make another
 * one. Collective over these ranks. They wait for each other.
 */
#ifndef ALNICO_INTEGRATIONS_NCCL_NOTES_H
#define ALNICO_INTEGRATIONS_NCCL_NOTES_H

#include "integrations/nccl/comm.h"

/* The first of `members` (ranks, `count` of them, this one among them) learns whether all are able, makes
 * an id by `make` then, and all get it. Errors, on all: that of `make`; ncclInvalidUsage if one is not able,
 * with its rank in the detail. */
ncclResult_t notes_share_id(ncclComm_t comm, const int *members, int count, bool able,
                            ncclResult_t (*make)(ncclUniqueId *), ncclUniqueId *id,
                            const char *who);

/* Gives back what it needed. */
void notes_free(ncclComm_t comm);

#endif
