/*
 * Notes: a few bytes that some of a communicator's ranks tell each other over it, before they make another
 * one. Collective over these ranks. They wait for each other.
 */
#ifndef ALNICO_INTEGRATIONS_NCCL_NOTES_H
#define ALNICO_INTEGRATIONS_NCCL_NOTES_H

#include "integrations/nccl/comm.h"

/* The first of `members` (ranks, `count` of them, this one among them) makes an id, and all get it. */
ncclResult_t notes_share_id(ncclComm_t comm, const int *members, int count, ncclUniqueId *id);

#endif
