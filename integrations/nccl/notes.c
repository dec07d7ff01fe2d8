/* See notes.h. Messages of the communicator, in memory of its device, on its own stream. Nothing here waits
 * for other work of the device. */
#include "integrations/nccl/notes.h"

#include "integrations/nccl/ours.h"

struct note {
    ncclResult_t result;
    ncclUniqueId id;
};

/* From the first member to all others, in one group. */
static alnico_status_t spread(ncclComm_t comm, const int *members, int count, struct note *note)
{
    bool first = comm->rank == members[0];
    alnico_status_t status = alnico_group_begin(comm->alnico);
    for (int i = 1; status == ALNICO_SUCCESS && first && i < count; i++)
        status = alnico_send(note, sizeof *note, ALNICO_UINT8, members[i], comm->alnico);
    if (status == ALNICO_SUCCESS && !first)
        status = alnico_recv(note, sizeof *note, ALNICO_UINT8, members[0], comm->alnico);
    alnico_status_t end = alnico_group_end(comm->alnico, NULL);
    return status == ALNICO_SUCCESS ? end : status;
}

static ncclResult_t copy(ncclComm_t comm, void *to, const void *from, enum cudaMemcpyKind kind)
{
    return result_of_cuda(cudaMemcpyAsync(to, from, sizeof(struct note), kind, comm->home));
}

/* `there` is the device's. */
static ncclResult_t share(ncclComm_t comm, const int *members, int count, struct note *note,
                          struct note *there)
{
    ncclResult_t result = result_of(alnico_comm_set_stream(comm->alnico, comm->home));
    if (result == ncclSuccess)
        result = copy(comm, there, note, cudaMemcpyHostToDevice);
    if (result == ncclSuccess)
        result = result_of(spread(comm, members, count, there));
    if (result == ncclSuccess)
        result = copy(comm, note, there, cudaMemcpyDeviceToHost);
    cudaError_t error = cudaStreamSynchronize(comm->home);
    if (result == ncclSuccess)
        result = result_of_cuda(error);
    return result == ncclSuccess ? result_of(alnico_comm_status(comm->alnico)) : result;
}

ncclResult_t notes_share_id(ncclComm_t comm, const int *members, int count, ncclUniqueId *id)
{
    struct note note = {0}, *there;
    if (comm->rank == members[0])
        note.result = ours_GetUniqueId(&note.id);
    ncclResult_t result = result_of_cuda(cudaMallocAsync((void **)&there, sizeof note, comm->home));
    if (result != ncclSuccess)
        return result;
    result = share(comm, members, count, &note, there);
    cudaFreeAsync(there, comm->home);
    *id = note.id;
    if (result != ncclSuccess || note.result == ncclSuccess)
        return result;
    return fail(note.result, "rank %d could not make an id", members[0]);
}
