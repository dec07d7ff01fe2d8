/* See calls.h. Types, reductions and operations are tables: what Alnico gets for each of NCCL's. */
#include "integrations/nccl/calls.h"

#include "integrations/nccl/entries.h"
#include "integrations/nccl/notes.h"
#include "integrations/nccl/scales.h"

#include <stdlib.h>

static const alnico_datatype_t types[ncclNumTypes] = {
    [ncclInt8] = ALNICO_INT8,
    [ncclUint8] = ALNICO_UINT8,
    [ncclInt32] = ALNICO_INT32,
    [ncclUint32] = ALNICO_UINT32,
    [ncclInt64] = ALNICO_INT64,
    [ncclUint64] = ALNICO_UINT64,
    [ncclFloat16] = ALNICO_FLOAT16,
    [ncclBfloat16] = ALNICO_BFLOAT16,
    [ncclFloat32] = ALNICO_FLOAT32,
    [ncclFloat64] = ALNICO_FLOAT64,
    [ncclFloat8e4m3] = ALNICO_FLOAT8_E4M3,
    [ncclFloat8e5m2] = ALNICO_FLOAT8_E5M2,
};

static const alnico_op_t ops[ncclNumOps] = {
    [ncclSum] = ALNICO_SUM,     [ncclProd] = ALNICO_PRODUCT, [ncclMax] = ALNICO_MAXIMUM,
    [ncclMin] = ALNICO_MINIMUM, [ncclAvg] = ALNICO_AVERAGE,
};

/* An operation's arguments in Alnico's words. */
#define BUFFERS o->send, o->recv, o->count, types[o->type]
#define OURS(name, ...)                                                                            \
    static alnico_status_t start_##name(const struct operation *o)                                 \
    {                                                                                              \
        return alnico_##name(__VA_ARGS__, o->comm->alnico);                                        \
    }
OURS(allreduce, BUFFERS, ops[o->op])
OURS(reduce, BUFFERS, ops[o->op], o->other)
OURS(broadcast_to, BUFFERS, o->other)
OURS(reduce_scatter, BUFFERS, ops[o->op])
OURS(allgather, BUFFERS)
OURS(alltoall, BUFFERS)
OURS(gather, BUFFERS, o->other)
OURS(scatter, BUFFERS, o->other)
OURS(send, o->send, o->count, types[o->type], o->other)
OURS(recv, o->recv, o->count, types[o->type], o->other)

/* The real NCCL's call for it. */
#define THEIRS(name, ...)                                                                          \
    static ncclResult_t start_real_##name(const struct entries *real, const struct operation *o,   \
                                          ncclRedOp_t op)                                          \
    {                                                                                              \
        return real->name(__VA_ARGS__, o->comm->real, o->stream);                                  \
    }
THEIRS(AllReduce, o->send, o->recv, o->count, o->type, op)
THEIRS(Reduce, o->send, o->recv, o->count, o->type, op, o->other)
THEIRS(ReduceScatter, o->send, o->recv, o->count, o->type, op)

static const struct {
    const char *name;
    alnico_status_t (*start)(const struct operation *operation);
    ncclResult_t (*start_real)(const struct entries *real, const struct operation *operation,
                               ncclRedOp_t op); /* NULL: it reduces nothing */
    const char *other;                          /* what `other` is called; NULL: it is not used */
} kinds[KINDS] = {
    [ALL_REDUCE] = {"ncclAllReduce", start_allreduce, start_real_AllReduce, NULL},
    [REDUCE] = {"ncclReduce", start_reduce, start_real_Reduce, "root"},
    [BROADCAST] = {"ncclBroadcast", start_broadcast_to, NULL, "root"},
    [REDUCE_SCATTER] = {"ncclReduceScatter", start_reduce_scatter, start_real_ReduceScatter, NULL},
    [ALL_GATHER] = {"ncclAllGather", start_allgather, NULL, NULL},
    [ALL_TO_ALL] = {"ncclAlltoAll", start_alltoall, NULL, NULL},
    [GATHER] = {"ncclGather", start_gather, NULL, "root"},
    [SCATTER] = {"ncclScatter", start_scatter, NULL, "root"},
    [SEND] = {"ncclSend", start_send, NULL, "peer"},
    [RECV] = {"ncclRecv", start_recv, NULL, "peer"},
};

const char *call_name(const struct operation *o)
{
    return kinds[o->kind].name;
}

bool call_is_message(const struct operation *o)
{
    return o->kind == SEND || o->kind == RECV;
}

bool call_is_foreign(const struct operation *o)
{
    return kinds[o->kind].start_real && (unsigned)o->op >= ncclNumOps;
}

ncclResult_t call_check(struct operation *o)
{
    const char *who = kinds[o->kind].name, *other = kinds[o->kind].other;
    if ((unsigned)o->type >= ncclNumTypes)
        return fail(ncclInvalidArgument, "%s: unknown type %d", who, (int)o->type);
    if (call_is_foreign(o) && scale_find(o->comm, o->op, o->type, &o->factor, who) != ncclSuccess)
        return ncclInvalidArgument;
    if (other && (o->other < 0 || o->other >= o->comm->size))
        return fail(ncclInvalidArgument, "%s: %s %d is not in 0 to %d", who, other, o->other,
                    o->comm->size - 1);
    if (o->comm->finalized)
        return fail(ncclInvalidUsage, "%s: the communicator was finalized", who);
    return ncclSuccess;
}

ncclResult_t call_start(const struct operation *o)
{
    alnico_status_t status = kinds[o->kind].start(o);
    return status == ALNICO_SUCCESS ? ncclSuccess
                                    : comm_failed(o->comm, result_of(status, kinds[o->kind].name));
}

/* ---- What goes to the real NCCL ---- */

ncclResult_t call_may_prepare(const struct operation *o)
{
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    ncclResult_t result = result_of_cuda(cudaStreamIsCapturing(o->stream, &capture), call_name(o));
    if (result == ncclSuccess && capture != cudaStreamCaptureStatusNone)
        result = fail(ncclInvalidUsage,
                      "%s: this reduction goes to the real NCCL, whose communicator cannot "
                      "be made while a graph is captured; one call before the capture makes it",
                      call_name(o));
    return result;
}

ncclResult_t call_prepare_foreign(ncclComm_t comm, const char *who)
{
    ncclUniqueId id;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    const struct entries *real = entries_real();
    int *members = calloc((size_t)comm->size, sizeof *members);
    if (!members)
        return fail(ncclSystemError, "%s: no memory", who);
    for (int i = 0; i < comm->size; i++)
        members[i] = i;
    ncclResult_t result = notes_share_id(comm, members, comm->size, real != NULL,
                                         real ? real->GetUniqueId : NULL, &id, who);
    free(members);
    if (result != ncclSuccess)
        return result;
    config.blocking = 1;
    result = real->CommInitRankConfig(&comm->real, comm->size, id, comm->rank, &config);
    return result == ncclSuccess
               ? result
               : fail(result, "%s: the real NCCL: %s", who, real->GetLastError(NULL));
}

/* The real NCCL keeps a reduction that is destroyed until the group of its calls has ended. */
static ncclResult_t start_scaled(const struct entries *real, const struct operation *o)
{
    ncclRedOp_t op;
    ncclComm_t comm = o->comm->real;
    struct factor factor = o->factor;
    void *scalar = factor.residence == ncclScalarDevice ? factor.scalar : factor.value;
    ncclResult_t result = real->RedOpCreatePreMulSum(&op, scalar, o->type, factor.residence, comm);
    if (result != ncclSuccess)
        return result;
    result = kinds[o->kind].start_real(real, o, op);
    ncclResult_t destroyed = real->RedOpDestroy(op, comm);
    return result == ncclSuccess ? destroyed : result;
}

ncclResult_t call_start_foreign(const struct operation *o)
{
    const struct entries *real = entries_real();
    ncclResult_t result = start_scaled(real, o);
    if (result == ncclSuccess)
        return result;
    result = fail(result, "%s: the real NCCL: %s", call_name(o), real->GetLastError(o->comm->real));
    return comm_failed(o->comm, result);
}
