/* From a callback to a transport: the ranks exchange their places, and all choose the same one. */
#include "comm/rendezvous/callback.h"

#include "base/log.h"
#include "base/status.h"
#include "comm/agree.h"
#include "comm/hostmem/process.h"
#include "device/topology.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct identity {
    uint64_t host_id;
    struct process_id process;
    int world_rank;
    struct local_hub *hub; /* of rank 0; only meaningful in its process */
};

/* The ranks while they choose a transport. */
struct gathering {
    const alnico_bootstrap_t *bootstrap;
    struct identity *all;
    struct step_result *results;
    double timeout;
    const char *who;
    bool failed;   /* the callback */
    bool uses_hub; /* the ranks join it, and the last one that leaves frees it */
};

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
        .timeout = g->timeout, .read_from = SHM_READ_FROM, .learns = true};
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

/* All ranks have joined rank 0's hub, or none. */
static alnico_status_t over_hub(struct gathering *g, struct transport **out)
{
    const alnico_bootstrap_t *b = g->bootstrap;
    struct transport *transport = NULL;
    g->uses_hub = true;
    alnico_status_t status = g->all[0].hub
                                 ? transport_local_create(g->all[0].hub, b->rank, &transport)
                                 : error_set(ALNICO_ERROR_MEMORY, "no memory for a hub");
    alnico_status_t agreed = agree_on_status(gather, g, g->results, b->size, NULL, &status);
    if (agreed == ALNICO_SUCCESS && status != ALNICO_SUCCESS)
        agreed = error_set(status, "%s: %s", g->who, alnico_error_detail());
    if (agreed != ALNICO_SUCCESS && transport)
        transport->ops->destroy(transport);
    if (agreed == ALNICO_SUCCESS)
        *out = transport;
    return agreed;
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
    return over_hub(g, out);
}

alnico_status_t transport_from_callback(const alnico_bootstrap_t *b, double timeout,
                                        const char *who, struct transport **out)
{
    struct gathering g = {.bootstrap = b, .timeout = timeout, .who = who};
    size_t size = (size_t)b->size;
    struct identity mine;
    memset(&mine, 0, sizeof mine);
    mine.host_id = topology_host_id();
    process_identify(&mine.process);
    mine.world_rank = transport_mpi_world_rank();
    g.all = calloc(size, sizeof *g.all + sizeof *g.results);
    if (!g.all)
        return error_set(ALNICO_ERROR_MEMORY, "%s: no memory for %d ranks", who, b->size);
    g.results = (struct step_result *)(g.all + size);
    struct local_hub *hub = b->rank == 0 ? local_hub_create(b->size) : NULL;
    mine.hub = hub;
    alnico_status_t status = gather(&g, &mine, g.all, sizeof mine);
    if (status == ALNICO_SUCCESS)
        status = choose_transport(&g, out);
    if (!g.uses_hub)
        local_hub_leave(hub, b->size);
    free(g.all);
    return status;
}
