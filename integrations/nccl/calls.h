/*
 * Operations as NCCL's callers give them: checked, and started in Alnico, or in the real NCCL if Alnico
 * does not have the reduction. On the caller's thread, which holds the communicators.
 */
#ifndef ALNICO_INTEGRATIONS_NCCL_CALLS_H
#define ALNICO_INTEGRATIONS_NCCL_CALLS_H

#include "integrations/nccl/group.h"

/* Checks it, and keeps the factor of its reduction. Errors: NCCL's own for wrong arguments;
 * ncclInvalidUsage of a finalized communicator. */
ncclResult_t call_check(struct operation *operation);

/* A reduction by ncclRedOpCreatePreMulSum is the real NCCL's. */
bool call_is_foreign(const struct operation *operation);
bool call_is_message(const struct operation *operation);

/* Starts one of Alnico's on its stream; in a group of Alnico's only the message is added. */
ncclResult_t call_start(const struct operation *operation);

/* Starts one of the real NCCL's, whose communicator call_prepare_foreign has made. */
ncclResult_t call_start_foreign(const struct operation *operation);

/* The name of the entry point. */
const char *call_name(const struct operation *operation);

/* The ranks may wait for each other now, or: ncclInvalidUsage while a graph is captured. */
ncclResult_t call_may_prepare(const struct operation *operation);

/* Makes the real communicator, if there is none. Collective; waits for the other ranks. Errors:
 * ncclInvalidUsage if a rank has no real NCCL. */
ncclResult_t call_prepare_foreign(ncclComm_t comm, const char *who);

#endif
