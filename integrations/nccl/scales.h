/*
 * Reductions of ncclRedOpCreatePreMulSum: a communicator's list of factors. They go to the real NCCL, where
 * each call makes its own. On the thread that calls on the communicator.
 */
#ifndef ALNICO_INTEGRATIONS_NCCL_SCALES_H
#define ALNICO_INTEGRATIONS_NCCL_SCALES_H

#include "integrations/nccl/comm.h"

/* The factor of a reduction of this communicator and type; ncclInvalidArgument if it has none. A call keeps
 * it: the reduction may be destroyed before the group of the call ends. */
ncclResult_t scale_find(ncclComm_t comm, ncclRedOp_t op, ncclDataType_t type, struct factor *out,
                        const char *who);

/* ncclRedOpCreatePreMulSum and ncclRedOpDestroy. */
ncclResult_t scale_create(ncclRedOp_t *out, void *scalar, ncclDataType_t type,
                          ncclScalarResidence_t residence, ncclComm_t comm);
ncclResult_t scale_destroy(ncclRedOp_t op, ncclComm_t comm);

#endif
