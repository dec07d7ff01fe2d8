/* Setup of a communicator: its ranks exchange their places and rank 0's settings, and all draw the
 * same conclusions. On the caller's thread. */
#include "comm/communicator/comm.h"

#include "base/log.h"
#include "base/number.h"
#include "base/status.h"
#include "comm/communicator/out_of_band.h"
#include "comm/hostmem/segment.h"
#include "comm/rendezvous/out_of_band.h"

#include <stdlib.h>
#include <string.h>

/* A rank's entry in the first exchange. */
struct member {
    uint64_t host_id;
    struct core_set process;
    struct settings settings; /* rank 0's count */
    int id;                   /* the next communicator's, as far as this rank knows */
    char device[32];          /* its name on its host; "": ranks may share it, or it is unknown */
};

/* Kernels of two ranks that wait for each other on one device might never run at the same time. */
static alnico_status_t check_devices(const struct member *members, int size, const char *who)
{
    for (int i = 1; i < size; i++)
        for (int j = 0; j < i; j++)
            if (*members[i].device && members[i].host_id == members[j].host_id &&
                strcmp(members[i].device, members[j].device) == 0)
                return error_set(ALNICO_ERROR_ARGUMENT,
                                 "%s: ranks %d and %d are both on GPU %s of one host; each rank "
                                 "needs a GPU of its own, made current before",
                                 who, j, i, members[i].device);
    return ALNICO_SUCCESS;
}

static void learn_places(alnico_comm_t comm, const struct member *members, struct core_set *sets)
{
    for (int i = 0; i < comm->size; i++) {
        bool first = true;
        for (int j = 0; j < i && first; j++)
            first = members[j].host_id != members[i].host_id;
        comm->hosts += first;
        if (members[i].host_id != members[comm->rank].host_id)
            continue;
        comm->local_rank += i < comm->rank;
        sets[comm->local_size++] = members[i].process;
    }
}

static int engine_core(const alnico_comm_t comm, const struct core_set *sets)
{
    const char *text = variable_text(VARIABLE_ENGINE_CORE);
    if (strcmp(text, "auto") == 0)
        return topology_engine_core(&comm->family->topology, sets, comm->local_rank,
                                    comm->local_size);
    uint64_t unit;
    if (number_whole(text, 0, CORE_SET_WORDS * 64 - 1, &unit))
        return (int)unit;
    if (strcmp(text, "none") != 0)
        log_write(LOG_WARNING, "ALNICO_ENGINE_CORE is '%s', expected auto, none or a number", text);
    return -1;
}

static alnico_status_t start_engine(alnico_comm_t comm, const struct core_set *sets)
{
    struct family *family = comm->family;
    int units = family->topology.units;
    comm->crowded = comm->local_size > units;
    if (family->engine)
        return ALNICO_SUCCESS;
    struct engine_options options = {.threaded = comm->transport->concurrent,
                                     .crowded = 2 * comm->local_size > units,
                                     .core = engine_core(comm, sets)};
    return engine_create(&options, &family->engine);
}

/* A program may have communicators of both devices: a name that only the other one has is not meant
 * for this one. */
static void force_algorithm(alnico_comm_t comm, int collective, const char *name)
{
    struct choice *forced = &comm->forced[collective];
    if (!*name)
        return;
    forced->algorithm =
        backend_algorithm_named((int)comm->device->kind, collective, name, &forced->backend);
    if (!forced->algorithm)
        log_write(LOG_INFO, "%s is '%s' on rank 0, which %s does not have: the table chooses",
                  variable_info((enum variable)(VARIABLE_ALLREDUCE + collective))->name, name,
                  comm->device->name);
}

static alnico_status_t apply_settings(alnico_comm_t comm, const struct settings *settings,
                                      const char *who)
{
    if (settings->status != ALNICO_SUCCESS)
        return error_set(settings->status, "%s: %s", who, settings->detail);
    if (!comm->family->engine) /* a new family: nobody reads them yet */
        comm->family->settings = *settings;
    for (int c = 0; c < COLLECTIVES; c++)
        force_algorithm(comm, c, settings->algorithm[c]);
    return ALNICO_SUCCESS;
}

/* The rows of rank 0's file become everybody's. A family that has an engine has its rows. */
static alnico_status_t share_tuning(alnico_comm_t comm, const char *who)
{
    struct family *family = comm->family;
    struct tuning *tuning = &family->tuning;
    size_t count = (size_t)family->settings.tuning_rows;
    if (family->engine || count == 0)
        return ALNICO_SUCCESS;
    if (comm->rank > 0)
        tuning->rows = calloc(count, sizeof *tuning->rows);
    if (!tuning->rows)
        return error_set(ALNICO_ERROR_MEMORY, "%s: no memory for a tuning table of %zu rows", who,
                         count);
    tuning->count = (int)count;
    const struct out_of_band wait = {
        .transport = comm->transport, .timeout = family->settings.timeout, .who = who};
    return out_of_band_broadcast(&wait, tuning->rows, count * sizeof *tuning->rows);
}

/* The first message between the ranks: all learn each other's hosts and rank 0's settings. Until
 * they do, each waits as long as its own environment says. */
static alnico_status_t meet(alnico_comm_t comm, const char *who)
{
    static atomic_int next_id = 1;
    struct family *family = comm->family;
    struct settings own;
    settings_read(&own);
    double timeout = own.status == ALNICO_SUCCESS ? own.timeout : 600;
    struct member mine = {.host_id = family->topology.host_id,
                          .process = family->topology.process,
                          .settings = family->settings,
                          .id = atomic_load(&next_id)};
    if (comm->device->identify)
        comm->device->identify(mine.device, sizeof mine.device);
    size_t size = (size_t)comm->size;
    struct member *members = calloc(size, sizeof *members);
    struct core_set *sets = calloc(size, sizeof *sets);
    alnico_status_t status = ALNICO_ERROR_MEMORY;
    if (!members || !sets) {
        error_set(status, "%s: no memory for %d ranks", who, comm->size);
        goto free_members;
    }
    const struct out_of_band wait = {.transport = comm->transport, .timeout = timeout, .who = who};
    status = out_of_band_gather(&wait, &mine, members, sizeof mine);
    if (status != ALNICO_SUCCESS)
        goto free_members;
    for (int i = 0; i < comm->size; i++)
        comm->id = members[i].id > comm->id ? members[i].id : comm->id;
    int seen = atomic_load(&next_id);
    while (seen <= comm->id && !atomic_compare_exchange_weak(&next_id, &seen, comm->id + 1))
        ;
    learn_places(comm, members, sets);
    status = check_devices(members, comm->size, who);
    if (status == ALNICO_SUCCESS)
        status = apply_settings(comm, &members[0].settings, who);
    if (status == ALNICO_SUCCESS)
        status = share_tuning(comm, who);
    if (status == ALNICO_SUCCESS)
        status = tuning_steps_init(&comm->tuning, &comm->family->tuning, (int)comm->device->kind,
                                   comm->size, comm->hosts);
    if (status == ALNICO_SUCCESS)
        status = start_engine(comm, sets);
free_members:
    free(members);
    free(sets);
    return status;
}

/* Ranks of one host that MPI carries messages for leave it for shared memory, where they can: MPI
 * asks the processor more for each message. Threads keep the rules that MPI was initialised with, so
 * that they do not depend on where ranks are. */
static alnico_status_t leave_mpi(alnico_comm_t comm, const char *who)
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

alnico_status_t comm_setup(alnico_comm_t comm, const char *who)
{
    TRY(meet(comm, who));
    return leave_mpi(comm, who);
}
