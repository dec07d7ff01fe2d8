/*
 * Creation of NCCL communicators: every rank has a GPU of its own, rank 0's identifier goes around,
 * and all agree on how each step went before the next begins, so that nobody waits in NCCL for a
 * rank that gave up. A call that may wait in NCCL has a thread of its own, and with it a deadline.
 * On the caller's thread, in calls that may wait for all ranks.
 */
#include "comm/backends/nccl/algorithms.h"
#include "comm/backends/nccl/nccl.h"
#include "comm/backends/nccl/worker.h"
#include "comm/communicator/out_of_band.h"

#include "base/log.h"
#include "base/status.h"
#include "device/backoff.h"

#include <cuda_runtime_api.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

alnico_status_t nccl_status(ncclResult_t result, ncclComm_t nccl, const char *function)
{
    if (result == ncclSuccess)
        return ALNICO_SUCCESS;
    bool refused = result == ncclInvalidArgument || result == ncclInvalidUsage;
    const char *last = nccl_library()->ncclGetLastError(nccl);
    return error_set(refused ? ALNICO_ERROR_ARGUMENT : ALNICO_ERROR_SYSTEM, "%s: %s%s%s", function,
                     nccl_library()->ncclGetErrorString(result), last && *last ? ": " : "",
                     last ? last : "");
}

alnico_status_t nccl_agree(alnico_comm_t comm, const struct nccl_step *step, alnico_status_t mine,
                           bool *all)
{
    struct comm_rendezvous r;
    comm_rendezvous_init(&r, comm, step->who);
    mine = comm_rendezvous_agree(&r, mine);
    *all = mine == ALNICO_SUCCESS;
    if (r.base.failed)
        return mine;
    if (!*all)
        log_write(comm->rank == 0 ? step->level : LOG_DEBUG, "%s: %s: %s", step->who, step->without,
                  error_text(step->who));
    return ALNICO_SUCCESS;
}

/* NCCL's identifier, which rank 0 gets for all ranks, and how a rank is prepared. */
struct identifier {
    int32_t status;
    ncclUniqueId id;
};

static alnico_status_t run_init(struct nccl_worker *worker)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t nccl = NULL;
    config.blocking = 1;
    if (worker->most_blocks > 0)
        config.maxCTAs = worker->most_blocks;
    TRY(nccl_status(nccl_library()->ncclCommInitRankConfig(&nccl, worker->size, worker->id,
                                                           worker->rank, &config),
                    NULL, "ncclCommInitRankConfig"));
    worker->nccl = nccl;
    return ALNICO_SUCCESS;
}

static void rest(double seconds)
{
    struct timespec time = {(time_t)seconds, (long)(1e9 * (seconds - (double)(time_t)seconds))};
    nanosleep(&time, NULL);
}

static alnico_status_t run_abort(struct nccl_worker *worker)
{
    rest(worker->delay_s);
    ncclComm_t nccl = worker->nccl;
    worker->nccl = NULL;
    return nccl_status(nccl_library()->ncclCommAbort(nccl), NULL, "ncclCommAbort");
}

struct nccl_worker *nccl_abort_begin(alnico_comm_t comm, ncclComm_t nccl, double delay_s)
{
    struct nccl_worker *worker = nccl_worker_create(comm, run_abort);
    if (worker) {
        worker->nccl = nccl;
        worker->delay_s = delay_s;
    }
    if (worker && nccl_worker_start(worker) == ALNICO_SUCCESS)
        return worker;
    nccl_worker_free(worker);
    rest(delay_s);
    nccl_library()->ncclCommAbort(nccl);
    return NULL;
}

static void end(alnico_comm_t comm, ncclComm_t nccl)
{
    if (nccl)
        nccl_worker_finish(nccl_abort_begin(comm, nccl, 0), comm->family->settings.timeout);
}

/* Rank 0's identifier becomes everybody's, if all ranks are prepared: *mine says how this one is, and
 * then whether they are. One that does not come is named, and waited for by nobody in NCCL. */
static alnico_status_t share_identifier(alnico_comm_t comm, const struct nccl_step *step,
                                        alnico_status_t *mine, ncclUniqueId *id)
{
    struct identifier *all = calloc((size_t)comm->size, sizeof *all), own;
    memset(&own, 0, sizeof own);
    if (!all)
        *mine = error_set(ALNICO_ERROR_MEMORY, "no memory for %d ranks", comm->size);
    if (comm->rank == 0 && *mine == ALNICO_SUCCESS)
        *mine = nccl_status(nccl_library()->ncclGetUniqueId(&own.id), NULL, "ncclGetUniqueId");
    own.status = *mine;
    alnico_status_t status = comm_allgather(comm, step->who, &own, all, sizeof own);
    for (int i = 0; all && status == ALNICO_SUCCESS && i < comm->size; i++)
        if (*mine == ALNICO_SUCCESS && all[i].status != ALNICO_SUCCESS)
            *mine = error_set((alnico_status_t)all[i].status, "rank %d is not prepared: %s", i,
                              alnico_status_string((alnico_status_t)all[i].status));
    if (all)
        *id = all[0].id;
    free(all);
    return status;
}

alnico_status_t nccl_make(alnico_comm_t comm, const struct nccl_step *step, ncclComm_t *out)
{
    struct nccl_worker *worker = nccl_worker_create(comm, run_init);
    ncclUniqueId id;
    *out = NULL;
    alnico_status_t mine = !worker          ? ALNICO_ERROR_MEMORY
                           : nccl_library() ? ALNICO_SUCCESS
                                            : ALNICO_ERROR_UNSUPPORTED;
    alnico_status_t status = share_identifier(comm, step, &mine, &id);
    if (status == ALNICO_SUCCESS && mine == ALNICO_SUCCESS) {
        worker->id = id;
        mine = nccl_worker_do(comm, step->who, &worker);
        if (!worker) /* it was given up: the other ranks are not to be asked about it */
            return mine;
    }
    ncclComm_t nccl = worker ? worker->nccl : NULL;
    nccl_worker_free(worker);
    TRY(status);
    bool all;
    status = nccl_agree(comm, step, mine, &all);
    if (all)
        *out = nccl;
    else
        end(comm, nccl);
    return status;
}

/* NCCL connects the ranks for each of its own algorithms when that is first used, and then the call
 * waits for the other ranks. These sizes meet them. */
enum { CONNECT_BYTES_LEAST = 8, CONNECT_BYTES_MOST = 8 << 20, CONNECT_FACTOR = 16 };

/* Blocks are rounded up to an element, and every rank has one more. */
static size_t rehearsal_bytes(const struct nccl_worker *worker)
{
    return CONNECT_BYTES_MOST + ((size_t)worker->size + 1) * sizeof(float);
}

static alnico_status_t rehearsal_init(struct nccl_worker *worker)
{
    const struct device_ops *device = worker->device;
    TRY(device->alloc(rehearsal_bytes(worker), &worker->memory));
    TRY(device->stream_create(&worker->stream));
    TRY(device->event_create(&worker->event));
    cudaError_t error = cudaMemsetAsync(worker->memory, 0, rehearsal_bytes(worker), worker->stream);
    if (error != cudaSuccess)
        return error_set(ALNICO_ERROR_SYSTEM, "cudaMemsetAsync: %s", cudaGetErrorString(error));
    return ALNICO_SUCCESS;
}

/* NCCL's kernels have ended, or were aborted. */
static void rehearsal_finish(struct nccl_worker *worker)
{
    const struct device_ops *device = worker->device;
    if (worker->stream)
        device->stream_synchronize(worker->stream);
    if (worker->event)
        device->event_destroy(worker->event);
    if (worker->stream)
        device->stream_destroy(worker->stream);
    device->free(worker->memory);
}

static enum wait look_for_event(void *context)
{
    struct nccl_worker *worker = context;
    bool over = worker->device->event_complete(worker->event) || nccl_worker_abandoned(worker);
    return over ? WAIT_DONE : WAIT_IDLE;
}

/* Until the kernel has ended, so that none runs while NCCL waits for other ranks. */
static alnico_status_t settle(struct nccl_worker *worker)
{
    const struct device_ops *device = worker->device;
    TRY(device->event_record(worker->event, worker->stream));
    wait_until(look_for_event, worker, WAIT_FOREVER, true);
    if (!device->event_complete(worker->event))
        return error_set(ALNICO_ERROR_ABORTED, "nobody waits for NCCL's connections any more");
    return device->event_synchronize(worker->event);
}

/* Every collective of so many bytes, in place: rings for all, and the other algorithms that NCCL
 * takes for some. */
static ncclResult_t rehearse_all(const struct nccl_worker *e, size_t bytes)
{
    size_t count = bytes / sizeof(float), block = (count + (size_t)e->size - 1) / (size_t)e->size;
    float *all = e->memory, *own = all + (size_t)e->rank * block;
    ncclResult_t result =
        nccl_library()->ncclAllReduce(all, all, count, ncclFloat32, ncclSum, e->nccl, e->stream);
    if (result == ncclSuccess)
        result = nccl_library()->ncclBroadcast(all, all, count, ncclFloat32, 0, e->nccl, e->stream);
    if (result == ncclSuccess)
        result = nccl_library()->ncclReduce(all, all, count, ncclFloat32, ncclSum, 0, e->nccl,
                                            e->stream);
    if (result == ncclSuccess)
        result = nccl_library()->ncclAllGather(own, all, block, ncclFloat32, e->nccl, e->stream);
    if (result == ncclSuccess)
        result = nccl_library()->ncclReduceScatter(all, own, block, ncclFloat32, ncclSum, e->nccl,
                                                   e->stream);
    return result;
}

static alnico_status_t rehearse(struct nccl_worker *worker)
{
    for (size_t bytes = CONNECT_BYTES_LEAST; bytes <= CONNECT_BYTES_MOST; bytes *= CONNECT_FACTOR) {
        TRY(nccl_status(rehearse_all(worker, bytes), worker->nccl, "connecting the ranks"));
        TRY(settle(worker));
    }
    return ALNICO_SUCCESS;
}

/* One element to every rank, and from every rank. */
static ncclResult_t pair_all(const struct nccl_worker *e)
{
    float *sent = e->memory, *received = sent + 1;
    ncclResult_t result = nccl_library()->ncclGroupStart();
    if (result != ncclSuccess)
        return result;
    for (int r = 0; r < e->size && result == ncclSuccess; r++) {
        result = nccl_library()->ncclSend(sent, 1, ncclFloat32, r, e->nccl, e->stream);
        if (result == ncclSuccess)
            result = nccl_library()->ncclRecv(received + r, 1, ncclFloat32, r, e->nccl, e->stream);
    }
    ncclResult_t end = nccl_library()->ncclGroupEnd();
    return result == ncclSuccess ? end : result;
}

static alnico_status_t rehearse_pairs(struct nccl_worker *worker)
{
    TRY(nccl_status(pair_all(worker), worker->nccl, "connecting pairs of ranks"));
    return settle(worker);
}

/* After a failure kernels may still wait, and memory is freed behind them. */
static alnico_status_t run_rehearsal(struct nccl_worker *worker)
{
    alnico_status_t status = worker->pairs ? rehearse_pairs(worker) : rehearse(worker);
    if (status != ALNICO_SUCCESS) {
        nccl_library()->ncclCommAbort(worker->nccl);
        worker->nccl = NULL;
    }
    return status;
}

alnico_status_t nccl_connect(alnico_comm_t comm, const struct nccl_step *step,
                             enum nccl_connect what, ncclComm_t *nccl)
{
    struct nccl_worker *worker = nccl_worker_create(comm, run_rehearsal);
    alnico_status_t mine = ALNICO_ERROR_MEMORY;
    bool all;
    if (worker) {
        worker->finish = rehearsal_finish;
        worker->pairs = what == NCCL_CONNECT_PAIRS;
        mine = rehearsal_init(worker);
    }
    alnico_status_t status = nccl_agree(comm, step, mine, &all);
    if (all) {
        worker->nccl = *nccl;
        *nccl = NULL;
        mine = nccl_worker_do(comm, step->who, &worker);
        if (!worker)
            return mine;
        *nccl = worker->nccl;
        status = nccl_agree(comm, step, mine, &all);
    }
    nccl_worker_free(worker);
    if (!all) {
        end(comm, *nccl);
        *nccl = NULL;
    }
    return status;
}
