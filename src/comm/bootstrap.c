/* How ranks come together: from a callback or an MPI_Comm to a transport. On the caller's thread. */
#include "comm/comm.h"

#include "status.h"

#include <alnico/mpi.h>

#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <unistd.h>

/* ---- From arguments to a communicator ---- */

static alnico_status_t check_create(alnico_device_t device, const void *out, const char *who,
                                    const struct device_ops **ops)
{
    if (!out)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: out is NULL", who);
    if (device != ALNICO_DEVICE_CPU && device != ALNICO_DEVICE_CUDA)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: unknown device %d", who, (int)device);
    *ops = device_find(device);
    if (!*ops)
        return error_set(ALNICO_ERROR_UNSUPPORTED, "%s: this build has no CUDA device", who);
    return ALNICO_SUCCESS;
}

static alnico_status_t build(struct transport *transport, const struct device_ops *device,
                             void *stream, const char *who, alnico_comm_t *out)
{
    if (stream && !transport->concurrent) {
        transport->ops->destroy(transport);
        return error_set(
            ALNICO_ERROR_UNSUPPORTED,
            "%s: a stream needs MPI_THREAD_MULTIPLE, and MPI was initialised below it; "
            "only the inline stream (NULL) works",
            who);
    }
    return comm_build(transport, NULL, device, stream, who, out);
}

/* ---- From a callback ---- */

/* Tells processes of one machine apart even where containers give them equal process numbers: the kernel
 * gives each program that it starts 16 random bytes. */
struct identity {
    uint64_t host_id, random[2];
    int64_t process;
    int world_rank;
    struct local_hub *hub; /* of rank 0; only meaningful in its process */
};

static bool same_process(const struct identity *a, const struct identity *b)
{
    return a->host_id == b->host_id && a->process == b->process &&
           memcmp(a->random, b->random, sizeof a->random) == 0;
}

static void identify(struct identity *out)
{
    memset(out, 0, sizeof *out);
    out->host_id = topology_host_id();
    out->process = getpid();
    out->world_rank = transport_mpi_world_rank();
    const void *random = (const void *)getauxval(AT_RANDOM);
    if (random)
        memcpy(out->random, random, sizeof out->random);
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

static alnico_status_t choose_transport(const struct identity *all, int rank, int size,
                                        const char *who, struct transport **out)
{
    for (int i = 1; i < size; i++)
        if (!same_process(&all[0], &all[i]))
            return over_mpi(all, size, who, out);
    if (!all[0].hub)
        return error_set(ALNICO_ERROR_MEMORY, "%s: no memory on rank 0", who);
    return transport_local_create(all[0].hub, rank, out);
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
    alnico_status_t status = ALNICO_SUCCESS;
    int result = b->allgather(b->context, &mine, all, sizeof mine);
    if (result)
        status = error_set(ALNICO_ERROR_SYSTEM, "%s: the bootstrap's allgather returned %d", who,
                           result);
    else
        status = choose_transport(all, b->rank, b->size, who, out);
    if (status != ALNICO_SUCCESS || strcmp((*out)->ops->name, "local") != 0)
        local_hub_destroy(hub);
    free(all);
    return status;
}

alnico_status_t alnico_comm_create(const alnico_bootstrap_t *bootstrap, alnico_device_t device,
                                   void *stream, alnico_comm_t *out)
{
    const char *who = "alnico_comm_create";
    const struct device_ops *ops;
    TRY(check_create(device, out, who, &ops));
    *out = NULL;
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

alnico_status_t alnico_comm_create_mpi(MPI_Comm mpi_comm, alnico_device_t device, void *stream,
                                       alnico_comm_t *out)
{
    const char *who = "alnico_comm_create_mpi";
    const struct device_ops *ops;
    TRY(check_create(device, out, who, &ops));
    *out = NULL;
    TRY(check_mpi(mpi_comm, who));
    struct settings settings;
    settings_read(&settings);
    double timeout = settings.status == ALNICO_SUCCESS ? settings.timeout : 600;
    struct transport *transport;
    TRY(transport_mpi_create(&mpi_comm, timeout, &transport));
    return build(transport, ops, stream, who, out);
}
