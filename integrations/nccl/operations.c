/* Collectives and messages: from NCCL's arguments to an operation, which starts at once or is kept for the
 * end of its group. */
#include "integrations/nccl/calls.h"
#include "integrations/nccl/ours.h"

static ncclResult_t submit(struct operation *o)
{
    o->who = entry_name();
    ncclResult_t result = o->kind == OP_DESTROY ? ncclSuccess : call_check(o);
    if (result != ncclSuccess)
        return result;
    return group_is_open() ? group_keep(o) : call_start(o);
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

/* In a group it stays until the calls before it have begun. */
ncclResult_t ours_RedOpDestroy(ncclRedOp_t op, ncclComm_t comm)
{
    return submit(&(struct operation){OP_DESTROY, .op = op, .comm = comm});
}
