/* See scales.h. */
#include "integrations/nccl/scales.h"

#include <stdlib.h>
#include <string.h>

static const size_t type_bytes[ncclNumTypes] = {
    [ncclInt8] = 1,    [ncclUint8] = 1,   [ncclInt32] = 4,      [ncclUint32] = 4,
    [ncclInt64] = 8,   [ncclUint64] = 8,  [ncclFloat16] = 2,    [ncclBfloat16] = 2,
    [ncclFloat32] = 4, [ncclFloat64] = 8, [ncclFloat8e4m3] = 1, [ncclFloat8e5m2] = 1,
};

static struct scale *find_any(ncclComm_t comm, ncclRedOp_t op, const char *who)
{
    long place = (long)op - ncclNumOps;
    if (place >= 0 && place < comm->scale_count && comm->scales[place].used)
        return &comm->scales[place];
    (void)fail(ncclInvalidArgument, "%s: unknown reduction %d", who, (int)op);
    return NULL;
}

ncclResult_t scale_find(ncclComm_t comm, ncclRedOp_t op, ncclDataType_t type, struct factor *out,
                        const char *who)
{
    const struct scale *scale = find_any(comm, op, who);
    if (!scale)
        return ncclInvalidArgument;
    if (scale->type != type)
        return fail(ncclInvalidArgument,
                    "%s: reduction %d was made for type %d and is used with %d", who, (int)op,
                    (int)scale->type, (int)type);
    *out = scale->factor;
    return ncclSuccess;
}

static ncclResult_t check(ncclRedOp_t *out, void *scalar, ncclDataType_t type,
                          ncclScalarResidence_t residence, const char *who)
{
    if (!out || !scalar)
        return fail(ncclInvalidArgument, "%s: %s is NULL", who, out ? "scalar" : "op");
    if ((unsigned)type >= ncclNumTypes)
        return fail(ncclInvalidArgument, "%s: unknown type %d", who, (int)type);
    if (residence != ncclScalarDevice && residence != ncclScalarHostImmediate)
        return fail(ncclInvalidArgument, "%s: unknown residence %d", who, (int)residence);
    return ncclSuccess;
}

/* A place that is free, or a new one at the end. */
static struct scale *take_place(ncclComm_t comm)
{
    for (int i = 0; i < comm->scale_count; i++)
        if (!comm->scales[i].used)
            return &comm->scales[i];
    size_t count = (size_t)comm->scale_count + 1;
    struct scale *grown = realloc(comm->scales, count * sizeof *grown);
    if (!grown)
        return NULL;
    comm->scales = grown;
    return &grown[comm->scale_count++];
}

ncclResult_t scale_create(ncclRedOp_t *out, void *scalar, ncclDataType_t type,
                          ncclScalarResidence_t residence, ncclComm_t comm)
{
    const char *who = "ncclRedOpCreatePreMulSum";
    ncclResult_t result = comm_hold(comm, who);
    if (result != ncclSuccess)
        return result;
    result = check(out, scalar, type, residence, who);
    struct scale *scale = result == ncclSuccess ? take_place(comm) : NULL;
    if (scale) {
        *scale = (struct scale){true, type, {.residence = residence, .scalar = scalar}};
        if (residence == ncclScalarHostImmediate)
            memcpy(scale->factor.value, scalar, type_bytes[type]);
        *out = (ncclRedOp_t)(ncclNumOps + (int)(scale - comm->scales));
    } else if (result == ncclSuccess) {
        result = fail(ncclSystemError, "%s: no memory", who);
    }
    comm_failed(comm, result);
    comm_release(comm);
    return result;
}

ncclResult_t scale_destroy(ncclRedOp_t op, ncclComm_t comm)
{
    const char *who = "ncclRedOpDestroy";
    ncclResult_t result = comm_hold(comm, who);
    if (result != ncclSuccess)
        return result;
    struct scale *scale = find_any(comm, op, who);
    if (scale)
        scale->used = false;
    else
        result = comm_failed(comm, ncclInvalidArgument);
    comm_release(comm);
    return result;
}
