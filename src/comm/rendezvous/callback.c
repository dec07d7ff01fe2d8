/* From ranks that meet to a transport: they exchange their places, and all choose the same one. */
#include "comm/rendezvous/callback.h"

#include "base/log.h"
#include "base/status.h"
#include "comm/agree.h"
#include "comm/hostmem/process.h"
#include "comm/hostmem/segment.h"
#include "comm/rendezvous/hosts.h"
#include "comm/tuning/settings.h"
#include "device/topology.h"

#include <stdlib.h>
#include <string.h>

struct identity {
    uint64_t host_id;
    struct process_id process;
    int world_rank;
    int over_mpi; /* this rank's setting; rank 0's counts */
};

/* The ranks while they choose a transport. */
struct gathering {
    struct rendezvous *r;
    struct identity *all;
};

static alnico_status_t over_mpi(struct gathering *g, struct transport **out)
{
    int size = g->r->size, *world = calloc((size_t)size, sizeof *world);
    for (int i = 0; world && i < size; i++)
        world[i] = g->all[i].world_rank;
    alnico_status_t status = transport_mpi_meet(g->r, world, out);
    free(world);
    return status;
}

/* A rank that MPI, which would carry messages between processes, does not know; -1: none. */
static int find_outside(const struct gathering *g)
{
    for (int i = 0; i < g->r->size; i++)
        if (g->all[i].world_rank < 0)
            return i;
    return -1;
}

static alnico_status_t over_tcp(struct gathering *g, struct transport **out)
{
    const struct tcp_options options = settings_tcp();
    return transport_tcp_create(g->r, &options, out);
}

static alnico_status_t over_hosts(struct gathering *g, struct transport **out)
{
    const struct tcp_options options = settings_tcp();
    uint64_t *host = calloc((size_t)g->r->size, sizeof *host);
    for (int i = 0; host && i < g->r->size; i++)
        host[i] = g->all[i].host_id;
    alnico_status_t status = transport_hosts_create(g->r, host, &options, out);
    free(host);
    return status;
}

/* All ranks fail alike, and then all take MPI or TCP: ranks of one kernel may be in containers that
 * keep them apart. */
static alnico_status_t over_shm(struct gathering *g, struct transport **out)
{
    const struct shm_options options = {.read_from = SHM_READ_FROM, .learns = true};
    const char *who = g->r->who;
    alnico_status_t status = transport_shm_create(g->r, &options, out);
    if (status == ALNICO_SUCCESS || g->r->failed || !segment_is_refused(status))
        return status;
    bool mpi = find_outside(g) < 0;
    log_write(g->r->rank == 0 ? LOG_WARNING : LOG_DEBUG,
              "%s: no shared memory between the ranks, so %s carries their messages: %s", who,
              mpi ? "MPI" : "TCP", error_text(who));
    return mpi ? over_mpi(g, out) : over_tcp(g, out);
}

static alnico_status_t choose_transport(struct gathering *g, struct transport **out)
{
    bool one_host = true, one_process = true;
    for (int i = 1; i < g->r->size; i++) {
        one_host &= g->all[i].host_id == g->all[0].host_id;
        one_process &= process_same(&g->all[i].process, &g->all[0].process);
    }
    if (one_host)
        return one_process ? transport_local_meet(g->r, out) : over_shm(g, out);
    return g->all[0].over_mpi && find_outside(g) < 0 ? over_mpi(g, out) : over_hosts(g, out);
}

alnico_status_t transport_meet(struct rendezvous *r, struct transport **out)
{
    struct identity mine;
    memset(&mine, 0, sizeof mine);
    mine.host_id = topology_host_id();
    process_identify(&mine.process);
    mine.world_rank = transport_mpi_world_rank();
    mine.over_mpi = strcmp(variable_text(VARIABLE_TRANSPORT), "mpi") == 0;
    struct gathering g = {.r = r, .all = calloc((size_t)r->size, sizeof *g.all)};
    if (!g.all)
        return error_set(ALNICO_ERROR_MEMORY, "%s: rank %d: no memory for %d ranks", r->who,
                         r->rank, r->size);
    alnico_status_t status = rendezvous_gather(r, &mine, g.all, sizeof mine);
    if (status == ALNICO_SUCCESS)
        status = choose_transport(&g, out);
    free(g.all);
    return status;
}

/* A callback of the user's. */
struct callback {
    const alnico_bootstrap_t *bootstrap;
    const char *who;
    void *spare; /* for the callback, where this rank has no memory */
};

static alnico_status_t gather(void *context, const void *mine, void *all, size_t bytes)
{
    const struct callback *c = context;
    const alnico_bootstrap_t *b = c->bootstrap;
    int result = b->allgather(b->context, mine, all ? all : c->spare, bytes);
    return result == 0 ? ALNICO_SUCCESS
                       : error_set(ALNICO_ERROR_SYSTEM,
                                   "%s: the bootstrap's allgather returned %d on rank %d", c->who,
                                   result, b->rank);
}

/* A rank without any memory cannot take part in the callback, whose deadline then counts. */
alnico_status_t transport_from_callback(const alnico_bootstrap_t *b, double timeout,
                                        const char *who, struct transport **out)
{
    struct callback callback = {b, who, calloc((size_t)b->size, RENDEZVOUS_BYTES)};
    struct rendezvous r = {.allgather = gather,
                           .context = &callback,
                           .rank = b->rank,
                           .size = b->size,
                           .who = who,
                           .timeout = timeout};
    if (!callback.spare)
        return error_set(ALNICO_ERROR_MEMORY, "%s: rank %d: no memory for %d ranks", who, b->rank,
                         b->size);
    alnico_status_t status = transport_meet(&r, out);
    free(callback.spare);
    return status;
}
