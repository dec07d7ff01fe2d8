/* See calls.h. Types, reductions and operations are tables: what Alnico gets for each of NCCL's. */
#include "integrations/nccl/calls.h"

#include "integrations/nccl/ours.h"

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

/* Alnico's for one that NCCL has, or that RedOpCreatePreMulSum has returned. */
static alnico_op_t op_of(ncclRedOp_t op)
{
    return (unsigned)op < ncclNumOps ? ops[op] : (alnico_op_t)op;
}

/* An operation's arguments in Alnico's words. */
#define BUFFERS o->send, o->recv, o->count, types[o->type]
#define OURS(name, ...)                                                                            \
    static alnico_status_t start_##name(const struct operation *o)                                 \
    {                                                                                              \
        return alnico_##name(__VA_ARGS__, o->comm->alnico);                                        \
    }
OURS(allreduce, BUFFERS, op_of(o->op))
OURS(reduce, BUFFERS, op_of(o->op), o->other)
OURS(broadcast_to, BUFFERS, o->other)
OURS(reduce_scatter, BUFFERS, op_of(o->op))
OURS(allgather, BUFFERS)
OURS(alltoall, BUFFERS)
OURS(gather, BUFFERS, o->other)
OURS(scatter, BUFFERS, o->other)
OURS(send, o->send, o->count, types[o->type], o->other)
OURS(recv, o->recv, o->count, types[o->type], o->other)

static alnico_status_t start_op_destroy(const struct operation *o)
{
    return alnico_op_destroy(o->comm->alnico, (alnico_op_t)o->op);
}

static const struct {
    alnico_status_t (*start)(const struct operation *operation);
    const char *other; /* what `other` is called; NULL: it is not used */
} kinds[KINDS] = {
    [ALL_REDUCE] = {start_allreduce, NULL},
    [REDUCE] = {start_reduce, "root"},
    [BROADCAST] = {start_broadcast_to, "root"},
    [REDUCE_SCATTER] = {start_reduce_scatter, NULL},
    [ALL_GATHER] = {start_allgather, NULL},
    [ALL_TO_ALL] = {start_alltoall, NULL},
    [GATHER] = {start_gather, "root"},
    [SCATTER] = {start_scatter, "root"},
    [SEND] = {start_send, "peer"},
    [RECV] = {start_recv, "peer"},
    [OP_DESTROY] = {start_op_destroy, NULL},
};

bool call_is_message(const struct operation *o)
{
    return o->kind == SEND || o->kind == RECV;
}

static ncclResult_t check_type(ncclDataType_t type)
{
    return (unsigned)type < ncclNumTypes ? ncclSuccess
                                         : fail(ncclInvalidArgument, "unknown type %d", (int)type);
}

/* Between NCCL's own and those that programs create are some of Alnico's, which NCCL does not have. */
static bool is_op(ncclRedOp_t op)
{
    return (unsigned)op < ncclNumOps || (int)op > ALNICO_BITWISE_XOR;
}

ncclResult_t call_check(const struct operation *o)
{
    const char *other = kinds[o->kind].other;
    if (check_type(o->type) != ncclSuccess)
        return ncclInvalidArgument;
    if (!is_op(o->op))
        return fail(ncclInvalidArgument, "unknown reduction %d", (int)o->op);
    if (other && (o->other < 0 || o->other >= o->comm->size))
        return fail(ncclInvalidArgument, "%s %d is not in 0 to %d", other, o->other,
                    o->comm->size - 1);
    if (o->comm->finalized || o->comm->revoked)
        return fail(ncclInvalidUsage, "the communicator was %s",
                    o->comm->revoked ? "revoked" : "finalized");
    return ncclSuccess;
}

ncclResult_t call_set_stream(const struct operation *o)
{
    return result_of(alnico_comm_set_stream(o->comm->alnico, o->stream));
}

ncclResult_t call_add(const struct operation *o)
{
    return result_of(kinds[o->kind].start(o));
}

ncclResult_t call_start(const struct operation *o)
{
    ncclResult_t result = o->kind == OP_DESTROY ? ncclSuccess : call_set_stream(o);
    return result == ncclSuccess ? call_add(o) : result;
}

ncclResult_t ours_RedOpCreatePreMulSum(ncclRedOp_t *out, void *scalar, ncclDataType_t type,
                                       ncclScalarResidence_t residence, ncclComm_t comm)
{
    alnico_op_t op;
    bool on_host = residence == ncclScalarHostImmediate;
    if (!out)
        return fail(ncclInvalidArgument, "op is NULL");
    if (check_type(type) != ncclSuccess)
        return ncclInvalidArgument;
    if (!on_host && residence != ncclScalarDevice)
        return fail(ncclInvalidArgument, "unknown residence %d", (int)residence);
    ncclResult_t result = result_of(alnico_op_create_premultiplied_sum(
        comm->alnico, scalar, types[type], on_host ? ALNICO_DEVICE_CPU : ALNICO_DEVICE_CUDA, &op));
    if (result == ncclSuccess)
        *out = (ncclRedOp_t)op;
    return result;
}
