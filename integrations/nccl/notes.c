/* See notes.h. Messages of the communicator, in memory of its device, on its own stream. */
#include "integrations/nccl/notes.h"

#include <stdlib.h>
#include <string.h>

struct note {
    int result, unable; /* the rank that is not able, -1 for none */
    ncclUniqueId id;
};

/* One for each rank, and one of the host's for them. */
static ncclResult_t allocate(ncclComm_t comm, struct note **host, const char *who)
{
    size_t bytes = (size_t)comm->size * sizeof **host;
    *host = calloc((size_t)comm->size, sizeof **host);
    if (!*host)
        return fail(ncclSystemError, "%s: no memory", who);
    return comm->notes ? ncclSuccess : result_of_cuda(cudaMalloc(&comm->notes, bytes), who);
}

void notes_free(ncclComm_t comm)
{
    if (comm->notes)
        cudaFree(comm->notes);
}

/* A message between `rank` and this one, in rank's place of the notes. */
static alnico_status_t move(ncclComm_t comm, int rank, bool send)
{
    struct note *note = (struct note *)comm->notes + rank;
    return send ? alnico_send(note, sizeof *note, ALNICO_UINT8, rank, comm->alnico)
                : alnico_recv(note, sizeof *note, ALNICO_UINT8, rank, comm->alnico);
}

/* Between the first member and all others, in one group. */
static alnico_status_t move_all(ncclComm_t comm, const int *members, int count, bool to_first)
{
    bool first = comm->rank == members[0];
    alnico_status_t status = alnico_group_begin(comm->alnico);
    for (int i = 1; status == ALNICO_SUCCESS && first && i < count; i++)
        status = move(comm, members[i], !to_first);
    if (status == ALNICO_SUCCESS && !first)
        status = move(comm, members[0], to_first);
    alnico_status_t end = alnico_group_end(comm->alnico, NULL);
    return status == ALNICO_SUCCESS ? end : status;
}

static ncclResult_t copy(ncclComm_t comm, struct note *host, bool to_device, const char *who)
{
    size_t bytes = (size_t)comm->size * sizeof *host;
    cudaError_t error =
        to_device ? cudaMemcpyAsync(comm->notes, host, bytes, cudaMemcpyHostToDevice, comm->home)
                  : cudaMemcpyAsync(host, comm->notes, bytes, cudaMemcpyDeviceToHost, comm->home);
    if (error == cudaSuccess)
        error = cudaStreamSynchronize(comm->home);
    return result_of_cuda(error, who);
}

static ncclResult_t send_round(ncclComm_t comm, const int *members, int count, bool to_first,
                               struct note *host, const char *who)
{
    ncclResult_t result = copy(comm, host, true, who);
    if (result == ncclSuccess)
        result = result_of(move_all(comm, members, count, to_first), who);
    if (result == ncclSuccess)
        result = copy(comm, host, false, who);
    return result == ncclSuccess ? result_of(alnico_comm_status(comm->alnico), who) : result;
}

/* What the first member tells all: the id, or why there is none. */
static struct note decide(const struct note *heard, const int *members, int count,
                          ncclResult_t (*make)(ncclUniqueId *))
{
    struct note note = {.unable = -1};
    for (int i = 0; i < count; i++)
        if (heard[members[i]].unable >= 0)
            note.unable = heard[members[i]].unable;
    note.result = note.unable >= 0 ? ncclInvalidUsage : make(&note.id);
    return note;
}

static ncclResult_t read_note(const struct note *note, ncclUniqueId *id, const char *who)
{
    *id = note->id;
    if (note->unable >= 0)
        return fail(ncclInvalidUsage, "%s: rank %d has no real NCCL for it; %s", who, note->unable,
                    "ALNICO_NCCL_LIBRARY may name one");
    return note->result == ncclSuccess
               ? ncclSuccess
               : fail((ncclResult_t)note->result, "%s: rank 0 could not make an id", who);
}

ncclResult_t notes_share_id(ncclComm_t comm, const int *members, int count, bool able,
                            ncclResult_t (*make)(ncclUniqueId *), ncclUniqueId *id, const char *who)
{
    struct note *host = NULL;
    int first = members[0];
    ncclResult_t result = allocate(comm, &host, who);
    if (result == ncclSuccess)
        result = result_of(alnico_comm_set_stream(comm->alnico, comm->home), who);
    if (result == ncclSuccess) {
        host[first].unable = able ? -1 : comm->rank;
        result = send_round(comm, members, count, true, host, who);
    }
    if (result == ncclSuccess && comm->rank == first) {
        const struct note note = decide(host, members, count, make);
        for (int i = 0; i < count; i++)
            host[members[i]] = note;
    }
    if (result == ncclSuccess)
        result = send_round(comm, members, count, false, host, who);
    if (result == ncclSuccess)
        result = read_note(&host[first], id, who);
    free(host);
    return result;
}
