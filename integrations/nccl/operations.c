/* Collectives and messages: from NCCL's arguments to an operation, which starts at once or is kept for the
 * end of its group. */
#include "integrations/nccl/calls.h"
#include "integrations/nccl/ours.h"
#include "integrations/nccl/scales.h"

static ncclResult_t start_foreign(const struct operation *o)
{
    ncclResult_t result = o->comm->real ? ncclSuccess : group_prepare_foreign(o, 1);
    return result == ncclSuccess ? call_start_foreign(o) : comm_failed(o->comm, result);
}

static ncclResult_t start(const struct operation *o)
{
    if (call_is_foreign(o))
        return start_foreign(o);
    alnico_status_t status = alnico_comm_set_stream(o->comm->alnico, o->stream);
    return status == ALNICO_SUCCESS ? call_start(o)
                                    : comm_failed(o->comm, result_of(status, call_name(o)));
}

static ncclResult_t submit(struct operation *o)
{
    ncclResult_t result = comm_hold(o->comm, call_name(o));
    if (result != ncclSuccess)
        return group_result(result);
    result = call_check(o);
    if (result != ncclSuccess)
        comm_failed(o->comm, result);
    else
        result = group_is_open() ? group_keep(o) : start(o);
    comm_release(o->comm);
    return group_result(result);
}

#define SUBMIT(...) submit(&(struct operation){__VA_ARGS__, .comm = comm, .stream = stream})
#define BUFFERS .send = send, .recv = recv, .count = count, .type = type

ncclResult_t ours_AllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                            ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return SUBMIT(ALL_REDUCE, BUFFERS, .op = op);
}

ncclResult_t ours_Reduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                         ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    return SUBMIT(REDUCE, BUFFERS, .op = op, .other = root);
}

ncclResult_t ours_Broadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                            int root, ncclComm_t comm, cudaStream_t stream)
{
    return SUBMIT(BROADCAST, BUFFERS, .other = root);
}

ncclResult_t ours_Bcast(void *buffer, size_t count, ncclDataType_t type, int root, ncclComm_t comm,
                        cudaStream_t stream)
{
    return ours_Broadcast(buffer, buffer, count, type, root, comm, stream);
}

ncclResult_t ours_ReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                                ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return SUBMIT(REDUCE_SCATTER, BUFFERS, .op = op);
}

ncclResult_t ours_AllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                            ncclComm_t comm, cudaStream_t stream)
{
    return SUBMIT(ALL_GATHER, BUFFERS);
}

ncclResult_t ours_AlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    return SUBMIT(ALL_TO_ALL, BUFFERS);
}

ncclResult_t ours_Gather(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                         ncclComm_t comm, cudaStream_t stream)
{
    return SUBMIT(GATHER, BUFFERS, .other = root);
}

ncclResult_t ours_Scatter(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                          ncclComm_t comm, cudaStream_t stream)
{
    return SUBMIT(SCATTER, BUFFERS, .other = root);
}

ncclResult_t ours_Send(const void *send, size_t count, ncclDataType_t type, int peer,
                       ncclComm_t comm, cudaStream_t stream)
{
    return SUBMIT(SEND, .send = send, .count = count, .type = type, .other = peer);
}

ncclResult_t ours_Recv(void *recv, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                       cudaStream_t stream)
{
    return SUBMIT(RECV, .recv = recv, .count = count, .type = type, .other = peer);
}

ncclResult_t ours_RedOpCreatePreMulSum(ncclRedOp_t *out, void *scalar, ncclDataType_t type,
                                       ncclScalarResidence_t residence, ncclComm_t comm)
{
    return scale_create(out, scalar, type, residence, comm);
}

ncclResult_t ours_RedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    return scale_destroy(op, comm);
}
