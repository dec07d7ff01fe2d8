/*
 * Operations as NCCL's callers give them: checked, and started in Alnico. On the caller's thread, which
 * holds the communicators.
 */
#ifndef ALNICO_INTEGRATIONS_NCCL_CALLS_H
#define ALNICO_INTEGRATIONS_NCCL_CALLS_H

#include "integrations/nccl/group.h"

/* Errors: NCCL's own for wrong arguments; ncclInvalidUsage of a finalized or revoked communicator. */
ncclResult_t call_check(const struct operation *operation);

bool call_is_message(const struct operation *operation);

/* Starts it on its stream. */
ncclResult_t call_start(const struct operation *operation);

/* The two parts of that: messages are added to a group of Alnico's, which is on one stream. */
ncclResult_t call_set_stream(const struct operation *operation);
ncclResult_t call_add(const struct operation *operation);

#endif
