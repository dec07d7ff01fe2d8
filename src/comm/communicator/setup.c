/* Setup of a communicator: its ranks exchange their places and rank 0's settings, and all draw the
 * same conclusions. On the caller's thread. */
#include "comm/communicator/comm.h"

#include "base/log.h"
#include "base/number.h"
#include "base/status.h"
#include "comm/communicator/out_of_band.h"
#include "comm/hostmem/segment.h"
#include "comm/rendezvous/hosts.h"
#include "comm/rendezvous/out_of_band.h"

#include <stdlib.h>
#include <string.h>

/* A rank's entry in the first exchange. */
struct member {
    int32_t status; /* how the rank has fared */
    char detail[188];
    uint64_t host_id, kernel_id;
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

static alnico_status_t make_map(alnico_comm_t comm, const struct member *members)
{
    uint64_t *identities = calloc((size_t)comm->size, sizeof *identities);
    for (int i = 0; identities && i < comm->size; i++)
        identities[i] = members[i].host_id;
    comm->map = identities ? host_map_create(identities, comm->size) : NULL;
    free(identities);
    return comm->map
               ? ALNICO_SUCCESS
               : error_set(ALNICO_ERROR_MEMORY, "no memory for the places of %d ranks", comm->size);
}

static alnico_status_t learn_places(alnico_comm_t comm, const struct member *members,
                                    struct core_set *sets)
{
    TRY(make_map(comm, members));
    const struct host_map *map = comm->map;
    int host = map->host[comm->rank];
    comm->hosts = map->hosts;
    comm->local_rank = map->place[comm->rank];
    for (int i = map->first[host]; i < map->first[host + 1]; i++)
        sets[comm->local_size++] = members[map->rank[i]].process;
    return ALNICO_SUCCESS;
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

/* The ranks that may run where this one does, those of other hosts of one kernel among them. */
static int count_rivals(alnico_comm_t comm, const struct member *members)
{
    const struct topology *topology = &comm->family->topology;
    int count = 0;
    for (int i = 0; i < comm->size; i++)
        count += members[i].kernel_id == topology->kernel_id &&
                 topology_shares(topology, &members[i].process);
    return count;
}

static alnico_status_t start_engine(alnico_comm_t comm, const struct member *members,
                                    const struct core_set *sets)
{
    struct family *family = comm->family;
    int units = family->topology.units, rivals = count_rivals(comm, members);
    comm->crowded = rivals > units;
    if (family->engine)
        return ALNICO_SUCCESS;
    struct engine_options options = {.threaded = comm->transport->concurrent,
                                     .crowded = 2 * rivals > units,
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
    alnico_status_t status =
        tuning->rows
            ? ALNICO_SUCCESS
            : error_set(ALNICO_ERROR_MEMORY, "no memory for a tuning table of %zu rows", count);
    TRY(comm_agree_status(comm, who, status));
    tuning->count = (int)count;
    const struct out_of_band wait = {.transport = comm->transport,
                                     .timeout = family->settings.timeout,
                                     .who = who,
                                     .called = comm->called};
    return out_of_band_broadcast(&wait, tuning->rows, count * sizeof *tuning->rows);
}

/* Ranks of a family know rank 0's settings already. */
static struct out_of_band first_wait(const struct creation *made)
{
    return (struct out_of_band){.transport = made->transport,
                                .timeout = made->family ? made->family->settings.timeout
                                                        : settings_own_timeout(),
                                .who = made->who,
                                .called = made->called};
}

static atomic_int next_id = 1;

static void describe(alnico_comm_t comm, struct member *out)
{
    const struct family *family = comm->family;
    out->host_id = family->topology.host_id;
    out->kernel_id = family->topology.kernel_id;
    out->process = family->topology.process;
    out->settings = family->settings;
    out->id = atomic_load(&next_id);
    if (comm->device->identify)
        comm->device->identify(out->device, sizeof out->device);
}

static alnico_status_t first_error(const struct member *members, int size, const char *who)
{
    for (int i = 0; i < size; i++)
        if (members[i].status != ALNICO_SUCCESS)
            return error_set((alnico_status_t)members[i].status, "%s: %s", who, members[i].detail);
    return ALNICO_SUCCESS;
}

/* As out_of_band_gather, with the communicator's failure detector. */
static alnico_status_t gather_first(alnico_comm_t comm, const struct creation *made,
                                    const struct member *mine, struct member *members)
{
    struct comm_rendezvous r;
    comm_rendezvous_init(&r, comm, made->who);
    r.wait.timeout = first_wait(made).timeout;
    return r.base.allgather(&r, mine, members, sizeof *mine);
}

/* The first message between the ranks. A rank that has failed, or has no memory for `members`, takes
 * part and says so. */
static alnico_status_t introduce(alnico_comm_t comm, const struct creation *made,
                                 alnico_status_t status, struct member *members)
{
    const struct out_of_band wait = first_wait(made);
    const struct transport *t = made->transport;
    struct member mine;
    memset(&mine, 0, sizeof mine);
    if (status == ALNICO_SUCCESS && !members)
        status = error_set(ALNICO_ERROR_MEMORY, "no memory for %d ranks", t->size);
    mine.status = status;
    if (status == ALNICO_SUCCESS)
        describe(comm, &mine);
    else
        agree_detail(made->who, made->called ? made->called[t->rank] : t->rank, mine.detail,
                     sizeof mine.detail);
    TRY(status == ALNICO_SUCCESS ? gather_first(comm, made, &mine, members)
                                 : out_of_band_gather(&wait, &mine, members, sizeof mine));
    return members ? first_error(members, t->size, made->who)
                   : error_set(status, "%s: %s", made->who, mine.detail);
}

static void choose_id(alnico_comm_t comm, const struct member *members)
{
    for (int i = 0; i < comm->size; i++)
        comm->id = members[i].id > comm->id ? members[i].id : comm->id;
    int seen = atomic_load(&next_id);
    while (seen <= comm->id && !atomic_compare_exchange_weak(&next_id, &seen, comm->id + 1))
        ;
}

/* Finds what is alike on all ranks. */
static alnico_status_t learn(alnico_comm_t comm, const struct member *members, const char *who)
{
    choose_id(comm, members);
    TRY(check_devices(members, comm->size, who));
    TRY(apply_settings(comm, &members[0].settings, who));
    return share_tuning(comm, who);
}

/* Makes what each rank has for itself. */
static alnico_status_t equip(alnico_comm_t comm, const struct member *members,
                             struct core_set *sets)
{
    TRY(learn_places(comm, members, sets));
    TRY(tuning_steps_init(&comm->tuning, &comm->family->tuning, (int)comm->device->kind, comm->size,
                          comm->hosts));
    return start_engine(comm, members, sets);
}

static alnico_status_t meet(alnico_comm_t comm, const struct creation *made, alnico_status_t status)
{
    size_t size = (size_t)made->transport->size;
    struct core_set *sets = calloc(size, sizeof *sets);
    struct member *members = sets ? calloc(size, sizeof *members) : NULL;
    status = introduce(comm, made, status, members);
    if (status == ALNICO_SUCCESS)
        status = learn(comm, members, made->who);
    if (status == ALNICO_SUCCESS)
        status = comm_agree_status(comm, made->who, equip(comm, members, sets));
    free(members);
    free(sets);
    return status;
}

/* The transport in place of the one before, on which the failure detector may listen. */
static void take_over(alnico_comm_t comm, struct transport *transport)
{
    detector_finish(&comm->detector, comm->transport);
    detector_init(&comm->detector);
    transport->concurrent = comm->transport->concurrent;
    comm->transport->ops->destroy(comm->transport);
    comm->transport = transport;
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
    const struct shm_options options = {.read_from = SHM_READ_FROM, .learns = true};
    struct comm_rendezvous r;
    comm_rendezvous_init(&r, comm, who);
    alnico_status_t status = transport_shm_create(&r.base, &options, &shm);
    bool refused = segment_is_refused(status);
    if (r.base.failed || (status != ALNICO_SUCCESS && !refused))
        return status;
    if (refused) {
        log_write(comm->rank == 0 ? LOG_WARNING : LOG_DEBUG,
                  "%s: no shared memory between the ranks, so MPI carries their messages: %s", who,
                  error_text(who));
        return ALNICO_SUCCESS;
    }
    take_over(comm, shm);
    return ALNICO_SUCCESS;
}

/* Whoever asks for it exchanges messages between hosts over TCP under MPI, too. */
static alnico_status_t take_tcp(alnico_comm_t comm, const char *who)
{
    struct transport *mpi = comm->transport, *hosts = NULL;
    const struct tcp_options options = settings_tcp();
    if (strcmp(mpi->ops->name, "mpi") != 0 || !comm->family->settings.over_tcp || comm->hosts < 2)
        return ALNICO_SUCCESS;
    struct comm_rendezvous r;
    comm_rendezvous_init(&r, comm, who);
    uint64_t *host = calloc((size_t)comm->size, sizeof *host);
    alnico_status_t status =
        rendezvous_gather(&r.base, &comm->family->topology.host_id, host, sizeof *host);
    if (status == ALNICO_SUCCESS)
        status = error_of(who, transport_hosts_create(&r.base, host, &options, &hosts));
    free(host);
    if (status != ALNICO_SUCCESS)
        return status;
    take_over(comm, hosts);
    return ALNICO_SUCCESS;
}

alnico_status_t comm_setup(alnico_comm_t comm, const struct creation *made, alnico_status_t mine)
{
    TRY(meet(comm, made, mine));
    TRY(take_tcp(comm, made->who));
    return leave_mpi(comm, made->who);
}
