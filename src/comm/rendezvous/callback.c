/* How ranks come together: from a callback or an MPI_Comm to a transport. On the caller's
 * thread. */
#include "comm/communicator/comm.h"

#include "base/log.h"
#include "base/status.h"
#include "comm/hostmem/process.h"
#include "comm/hostmem/segment.h"

#include <alnico/mpi.h>

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- From arguments to a communicator ---- */

static alnico_status_t check_create(alnico_device_t device, void *stream, alnico_comm_t *out,
                                    const char *who, const struct device_ops **ops)
{
    if (!out)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: out is NULL", who);
    *out = NULL;
    if (device != ALNICO_DEVICE_CPU && device != ALNICO_DEVICE_CUDA)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: unknown device %d", who, (int)device);
    *ops = device_find(device);
    if (!*ops)
        return error_set(ALNICO_ERROR_UNSUPPORTED, "%s: %s", who, alnico_error_detail());
    return device_ready(*ops, stream, who);
}

static alnico_status_t build(struct transport *transport, const struct device_ops *device,
                             void *stream, const char *who, alnico_comm_t *out)
{
    if (stream && device->host_accessible && !transport->concurrent) {
        transport->ops->destroy(transport);
        return error_set(
            ALNICO_ERROR_UNSUPPORTED,
            "%s: a stream needs MPI_THREAD_MULTIPLE, and MPI was initialised below it; "
            "only the inline stream (NULL) works",
            who);
    }
    return comm_build(transport, NULL, device, stream, who, out);
}

/* Until the ranks know rank 0's settings. */
static double own_timeout(void)
{
    struct settings settings;
    settings_read(&settings);
    return settings.status == ALNICO_SUCCESS ? settings.timeout : 600;
}

/* ---- From a callback ---- */

struct identity {
    uint64_t host_id;
    struct process_id process;
    int world_rank;
    struct local_hub *hub; /* of rank 0; only meaningful in its process */
};

/* What the transports over a callback are made from. */
struct gathering {
    const alnico_bootstrap_t *bootstrap;
    const struct identity *all;
    const char *who;
    bool failed; /* the callback */
};

static void identify(struct identity *out)
{
    memset(out, 0, sizeof *out);
    out->host_id = topology_host_id();
    process_identify(&out->process);
    out->world_rank = transport_mpi_world_rank();
}

static alnico_status_t gather(void *context, const void *mine, void *all, size_t bytes)
{
    struct gathering *g = context;
    int result = g->bootstrap->allgather(g->bootstrap->context, mine, all, bytes);
    g->failed = result != 0;
    if (result)
        return error_set(ALNICO_ERROR_SYSTEM, "%s: the bootstrap's allgather returned %d", g->who,
                         result);
    return ALNICO_SUCCESS;
}

static alnico_status_t over_mpi(const struct identity *all, int size, const char *who,
                                struct transport **out)
{
    int *world = calloc((size_t)size, sizeof *world);
    if (!world)
        return error_set(ALNICO_ERROR_MEMORY, "%s: no memory for %d ranks", who, size);
    alnico_status_t status = ALNICO_SUCCESS;
    for (int i = 0; i < size && status == ALNICO_SUCCESS; i++) {
        world[i] = all[i].world_rank;
        if (world[i] < 0)
            status = error_set(ALNICO_ERROR_UNSUPPORTED,
                               "%s: the ranks are in several processes, and MPI, which would carry "
                               "their messages, is not initialised on rank %d",
                               who, i);
    }
    if (status == ALNICO_SUCCESS)
        status = transport_mpi_create_group(world, size, out);
    free(world);
    return status;
}

static bool have_mpi(const struct gathering *g)
{
    for (int i = 0; i < g->bootstrap->size; i++)
        if (g->all[i].world_rank < 0)
            return false;
    return true;
}

/* All ranks fail alike, and then all try MPI: ranks of one kernel may be in containers that keep
 * them apart. */
static alnico_status_t over_shm(struct gathering *g, struct transport **out)
{
    const alnico_bootstrap_t *b = g->bootstrap;
    struct shm_options options = {
        .timeout = own_timeout(), .read_from = SHM_READ_FROM, .learns = true};
    alnico_status_t status = transport_shm_create(gather, g, b->rank, b->size, &options, out);
    if (status == ALNICO_SUCCESS || g->failed)
        return status;
    char detail[256];
    snprintf(detail, sizeof detail, "%s", alnico_error_detail());
    if (!have_mpi(g))
        return error_set(status, "%s: no shared memory between the ranks: %s", g->who, detail);
    log_write(LOG_INFO, "%s: no shared memory between the ranks, so MPI carries their messages: %s",
              g->who, detail);
    return over_mpi(g->all, b->size, g->who, out);
}

static alnico_status_t choose_transport(struct gathering *g, struct transport **out)
{
    const alnico_bootstrap_t *b = g->bootstrap;
    bool one_host = true, one_process = true;
    for (int i = 1; i < b->size; i++) {
        one_host &= g->all[i].host_id == g->all[0].host_id;
        one_process &= process_same(&g->all[i].process, &g->all[0].process);
    }
    if (!one_host)
        return over_mpi(g->all, b->size, g->who, out);
    if (!one_process)
        return over_shm(g, out);
    if (!g->all[0].hub)
        return error_set(ALNICO_ERROR_MEMORY, "%s: no memory on rank 0", g->who);
    return transport_local_create(g->all[0].hub, b->rank, out);
}

static alnico_status_t from_callback(const alnico_bootstrap_t *b, const char *who,
                                     struct transport **out)
{
    struct identity mine;
    identify(&mine);
    struct identity *all = calloc((size_t)b->size, sizeof *all);
    if (!all)
        return error_set(ALNICO_ERROR_MEMORY, "%s: no memory for %d ranks", who, b->size);
    struct local_hub *hub = b->rank == 0 ? local_hub_create(b->size) : NULL;
    mine.hub = hub;
    struct gathering g = {.bootstrap = b, .all = all, .who = who};
    alnico_status_t status = gather(&g, &mine, all, sizeof mine);
    if (status == ALNICO_SUCCESS)
        status = choose_transport(&g, out);
    if (status != ALNICO_SUCCESS || strcmp((*out)->ops->name, "local") != 0)
        local_hub_destroy(hub);
    free(all);
    return status;
}

alnico_status_t alnico_comm_create(const alnico_bootstrap_t *bootstrap, alnico_device_t device,
                                   void *stream, alnico_comm_t *out)
{
    const char *who = "alnico_comm_create";
    const struct device_ops *ops = NULL;
    TRY(check_create(device, stream, out, who, &ops));
    if (!bootstrap)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: bootstrap is NULL", who);
    if (bootstrap->size < 1)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: size %d is not positive", who,
                         bootstrap->size);
    if (bootstrap->rank < 0 || bootstrap->rank >= bootstrap->size)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: rank %d is not in 0 to %d", who,
                         bootstrap->rank, bootstrap->size - 1);
    if (!bootstrap->allgather)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: the bootstrap's allgather is NULL", who);
    struct transport *transport;
    TRY(from_callback(bootstrap, who, &transport));
    return build(transport, ops, stream, who, out);
}

/* ---- From an MPI_Comm ---- */

static alnico_status_t check_mpi(MPI_Comm comm, const char *who)
{
    int initialized = 0, finalized = 0, inter = 0;
    MPI_Initialized(&initialized);
    MPI_Finalized(&finalized);
    if (!initialized || finalized)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: MPI is %s", who,
                         finalized ? "already finalised" : "not initialised");
    if (comm == MPI_COMM_NULL)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: mpi_comm is MPI_COMM_NULL", who);
    MPI_Comm_test_inter(comm, &inter);
    if (inter)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: mpi_comm is an intercommunicator", who);
    return ALNICO_SUCCESS;
}

/* Threads keep the rules that MPI was initialised with, so that they do not depend on where ranks
 * are. */
alnico_status_t comm_leave_mpi(alnico_comm_t comm, const char *who)
{
    const struct settings *settings = &comm->family->settings;
    struct transport *mpi = comm->transport, *shm;
    if (strcmp(mpi->ops->name, "mpi") != 0 || settings->over_mpi || comm->hosts > 1 ||
        comm->size < 2 || !comm->device->host_accessible)
        return ALNICO_SUCCESS;
    struct comm_caller caller = {.comm = comm, .who = who};
    struct shm_options options = {
        .timeout = settings->timeout, .read_from = SHM_READ_FROM, .learns = true};
    alnico_status_t status = transport_shm_create(comm_allgather_called, &caller, comm->rank,
                                                  comm->size, &options, &shm);
    bool refused = segment_is_refused(status);
    if (caller.failed || (status != ALNICO_SUCCESS && !refused))
        return status;
    if (refused) {
        log_write(LOG_INFO,
                  "%s: no shared memory between the ranks, so MPI carries their messages: %s", who,
                  alnico_error_detail());
        return ALNICO_SUCCESS;
    }
    shm->concurrent = mpi->concurrent;
    mpi->ops->destroy(mpi);
    comm->transport = shm;
    return ALNICO_SUCCESS;
}

alnico_status_t alnico_comm_create_mpi(MPI_Comm mpi_comm, alnico_device_t device, void *stream,
                                       alnico_comm_t *out)
{
    const char *who = "alnico_comm_create_mpi";
    const struct device_ops *ops = NULL;
    TRY(check_create(device, stream, out, who, &ops));
    TRY(check_mpi(mpi_comm, who));
    struct transport *transport;
    TRY(transport_mpi_create(&mpi_comm, own_timeout(), &transport));
    return build(transport, ops, stream, who, out);
}
