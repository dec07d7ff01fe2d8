/*
 * How NCCL communicators come to be: every rank has a GPU of its own, rank 0's identifier goes around, and all agree on
 * how each step went before the next begins, so that nobody waits in NCCL for a rank that gave up. On the caller's
 * thread, while a communicator is made or memory is registered.
 */
#include "comm/nccl_state.h"

#include "log.h"
#include "status.h"

#include <cuda_runtime_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

alnico_status_t nccl_status(ncclResult_t result, ncclComm_t nccl, const char *function)
{
    if (result == ncclSuccess)
        return ALNICO_SUCCESS;
    bool refused = result == ncclInvalidArgument || result == ncclInvalidUsage;
    const char *last = ncclGetLastError(nccl);
    return error_set(refused ? ALNICO_ERROR_ARGUMENT : ALNICO_ERROR_SYSTEM, "%s: %s%s%s", function,
                     ncclGetErrorString(result), last && *last ? ": " : "", last ? last : "");
}

static alnico_status_t exchange(alnico_comm_t comm, const char *who, const void *mine, void *all,
                                size_t bytes)
{
    return comm_exchange(comm->transport, comm->family->engine, comm->family->settings.timeout, who,
                         mine, all, bytes);
}

/* ---- Agreement ---- */

struct outcome {
    int32_t status;
    char detail[236];
};

static bool all_succeeded(const struct outcome *outcomes, const struct alnico_comm *comm,
                          const struct nccl_step *step)
{
    for (int i = 0; i < comm->size; i++)
        if (outcomes[i].status != ALNICO_SUCCESS) {
            log_write(comm->rank == 0 ? step->level : LOG_DEBUG, "%s: %s: rank %d: %s", step->who,
                      step->without, i, outcomes[i].detail);
            return false;
        }
    return true;
}

alnico_status_t nccl_agree(alnico_comm_t comm, const struct nccl_step *step, alnico_status_t mine,
                           bool *all)
{
    *all = false;
    struct outcome own = {.status = mine};
    if (mine != ALNICO_SUCCESS)
        snprintf(own.detail, sizeof own.detail, "%s", alnico_error_detail());
    struct outcome *outcomes = calloc((size_t)comm->size, sizeof *outcomes);
    if (!outcomes)
        return error_set(ALNICO_ERROR_MEMORY, "%s: no memory for %d ranks", step->who, comm->size);
    alnico_status_t status = exchange(comm, step->who, &own, outcomes, sizeof own);
    if (status == ALNICO_SUCCESS)
        *all = all_succeeded(outcomes, comm, step);
    free(outcomes);
    return status;
}

/* ---- Communicators ---- */

struct birth {
    int32_t status;
    ncclUniqueId id;
};

static alnico_status_t join(alnico_comm_t comm, const struct birth *birth, ncclComm_t *out)
{
    if (birth->status != ALNICO_SUCCESS)
        return comm->rank == 0 ? (alnico_status_t)birth->status
                               : error_set((alnico_status_t)birth->status,
                                           "rank 0 got no identifier from NCCL");
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 1;
    return nccl_status(ncclCommInitRankConfig(out, comm->size, birth->id, comm->rank, &config),
                       NULL, "ncclCommInitRankConfig");
}

alnico_status_t nccl_make(alnico_comm_t comm, const struct nccl_step *step, ncclComm_t *out)
{
    struct birth birth = {.status = ALNICO_SUCCESS};
    *out = NULL;
    if (comm->rank == 0)
        birth.status = nccl_status(ncclGetUniqueId(&birth.id), NULL, "ncclGetUniqueId");
    TRY(comm_broadcast(comm->transport, comm->family->engine, comm->family->settings.timeout,
                       step->who, &birth, sizeof birth));
    ncclComm_t nccl = NULL;
    alnico_status_t mine = join(comm, &birth, &nccl);
    bool all;
    alnico_status_t status = nccl_agree(comm, step, mine, &all);
    if (all)
        *out = nccl;
    else if (mine == ALNICO_SUCCESS)
        ncclCommAbort(nccl);
    return status;
}

/* ---- Connections ---- */

/* NCCL connects the ranks for each of its own algorithms when that is first used, and then the call waits for the other
 * ranks. These sizes meet them. */
enum { CONNECT_BYTES_LEAST = 8, CONNECT_BYTES_MOST = 8 << 20, CONNECT_FACTOR = 16 };

struct rehearsal {
    void *buffer, *stream;
};

static alnico_status_t rehearsal_init(struct rehearsal *r, const struct device_ops *device)
{
    TRY(device->alloc(CONNECT_BYTES_MOST, &r->buffer));
    TRY(device->stream_create(&r->stream));
    cudaError_t error = cudaMemsetAsync(r->buffer, 0, CONNECT_BYTES_MOST, r->stream);
    if (error != cudaSuccess)
        return error_set(ALNICO_ERROR_SYSTEM, "cudaMemsetAsync: %s", cudaGetErrorString(error));
    return ALNICO_SUCCESS;
}

static alnico_status_t rehearse(const struct rehearsal *r, const struct device_ops *device,
                                ncclComm_t nccl)
{
    for (size_t bytes = CONNECT_BYTES_LEAST; bytes <= CONNECT_BYTES_MOST; bytes *= CONNECT_FACTOR)
        TRY(nccl_status(ncclAllReduce(r->buffer, r->buffer, bytes / sizeof(float), ncclFloat32,
                                      ncclSum, nccl, r->stream),
                        nccl, "ncclAllReduce"));
    return device->stream_synchronize(r->stream);
}

static void rehearsal_finish(struct rehearsal *r, const struct device_ops *device)
{
    if (r->stream)
        device->stream_destroy(r->stream);
    device->free(r->buffer);
}

alnico_status_t nccl_connect(alnico_comm_t comm, const struct nccl_step *step, ncclComm_t nccl,
                             bool *all)
{
    struct rehearsal r = {NULL, NULL};
    alnico_status_t status = nccl_agree(comm, step, rehearsal_init(&r, comm->device), all);
    if (*all)
        status = nccl_agree(comm, step, rehearse(&r, comm->device, nccl), all);
    rehearsal_finish(&r, comm->device);
    return status;
}
