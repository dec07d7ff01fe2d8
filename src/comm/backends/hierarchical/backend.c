/*
 * The hierarchical backend: on GPUs of several hosts a collective is one inside each host, one between
 * hosts, and one inside each host again, each a call of the library's own on a communicator that the
 * backend has made (create.c, calls.c). An error of one of these is the owner's, and the reverse
 * (struct creation, `owner`).
 *
 * Where NCCL works between the hosts, which stands before it in the table, the communicators are not
 * made before a blocking call wants them, or a forced name.
 */
#include "comm/backends/hierarchical/hierarchical.h"
#include "comm/communicator/out_of_band.h"
#include "comm/operations/stream_operation.h"
#include "progress/staging.h"

#include "base/status.h"

#include <stdlib.h>

static bool hierarchical_supports(alnico_comm_t comm, const struct call *call,
                                  const struct algorithm *algorithm)
{
    const struct hierarchical_state *state = hierarchical_state_of(comm);
    (void)algorithm;
    if (!state || (state->tried && !state->comms[INSIDE]))
        return false;
    return !call || hierarchical_can(comm, call);
}

static bool hierarchical_prepared(alnico_comm_t comm, const struct algorithm *algorithm)
{
    (void)algorithm;
    return !hierarchical_state_of(comm) || hierarchical_state_of(comm)->tried;
}

static alnico_status_t hierarchical_prepare(alnico_comm_t comm, const struct algorithm *algorithm,
                                            const char *who)
{
    if (hierarchical_prepared(comm, algorithm))
        return ALNICO_SUCCESS;
    alnico_status_t status = hierarchical_make(comm, who);
    if (status != ALNICO_SUCCESS)
        comm_latch(comm, status, alnico_error_detail());
    return status;
}

static bool is_forced(const struct alnico_comm *comm)
{
    for (int c = 0; c < COLLECTIVES; c++)
        if (comm->forced[c].algorithm == &algorithm_hierarchical)
            return true;
    return false;
}

static bool has_nccl(alnico_comm_t comm)
{
    const struct backend *nccl = backend_find("nccl", (int)comm->device->kind);
    return nccl && nccl->ops &&
           nccl->ops->supports(comm, NULL, backend_algorithm(nccl, ALNICO_ALLREDUCE, "nccl"));
}

/* Messages between hosts go through the host's memory at least, which needs an engine with a thread. */
static alnico_status_t hierarchical_attach(alnico_comm_t comm, const char *who)
{
    if (comm->hosts < 2 || comm->map->most < 2 || !comm->transport->concurrent ||
        (comm->limits.scratch && !comm_take_scratch(comm, "hierarchical", LEVELS * STAGING_BYTES)))
        return ALNICO_SUCCESS;
    struct hierarchical_state *state = calloc(1, sizeof *state);
    alnico_status_t mine =
        state ? ALNICO_SUCCESS : error_set(ALNICO_ERROR_MEMORY, "no memory for the hosts' state");
    comm->state[BACKEND_HIERARCHICAL] = state;
    alnico_status_t status = comm_agree_status(comm, who, mine);
    if (status == ALNICO_SUCCESS && (is_forced(comm) || !has_nccl(comm)))
        status = hierarchical_make(comm, who);
    return status;
}

static void hierarchical_detach(alnico_comm_t comm)
{
    if (!hierarchical_state_of(comm))
        return;
    hierarchical_end(comm);
    free(hierarchical_state_of(comm));
    comm->state[BACKEND_HIERARCHICAL] = NULL;
}

static alnico_comm_t made_at(alnico_comm_t comm, int level)
{
    const struct hierarchical_state *state = hierarchical_state_of(comm);
    return state ? atomic_load(&state->comms[level]) : NULL;
}

static void hierarchical_memory(alnico_comm_t comm, alnico_comm_memory_t *sum)
{
    for (int level = 0; level < LEVELS; level++) {
        alnico_comm_t made = made_at(comm, level);
        for (const struct backend_ops *const *b = made ? made->backends : NULL; b && *b; b++)
            if ((*b)->memory)
                (*b)->memory(made, sum);
        if (made && made->transport->ops->memory)
            made->transport->ops->memory(made->transport, sum);
    }
}

static alnico_status_t hierarchical_health(alnico_comm_t comm)
{
    for (int level = 0; level < LEVELS; level++)
        if (made_at(comm, level))
            TRY(comm_health(made_at(comm, level)));
    return ALNICO_SUCCESS;
}

static void hierarchical_listen(alnico_comm_t comm)
{
    for (int level = 0; level < LEVELS; level++)
        if (made_at(comm, level))
            comm_listen(made_at(comm, level));
}

/* The owner's error is latched by now. */
static void hierarchical_abort(alnico_comm_t comm)
{
    alnico_status_t status = comm_latched(comm);
    for (int level = 0; level < LEVELS; level++)
        if (made_at(comm, level) && status != ALNICO_SUCCESS) {
            comm_latch(made_at(comm, level), status, alnico_error_detail());
            comm_abort(made_at(comm, level), 0);
        }
}

static bool hierarchical_misleads(alnico_comm_t comm)
{
    alnico_comm_t inside = made_at(comm, INSIDE);
    for (const struct backend_ops *const *b = inside ? inside->backends : NULL; b && *b; b++)
        if ((*b)->misleads && (*b)->misleads(inside))
            return true;
    return false;
}

const struct backend_ops hierarchical_ops = {
    .about = "calls inside each host and between hosts, on communicators of the backend's own",
    .needs =
        "several hosts, one of them with several ranks, and MPI_THREAD_MULTIPLE under MPI; for "
        "allgather and reduce_scatter a host's ranks as neighbours, for reduce_scatter as many on "
        "each, and for reduce a root whose seat all hosts have; and no graph that is being "
        "captured",
    .attach = hierarchical_attach,
    .detach = hierarchical_detach,
    .supports = hierarchical_supports,
    .prepared = hierarchical_prepared,
    .prepare = hierarchical_prepare,
    .memory = hierarchical_memory,
    .health = hierarchical_health,
    .listen = hierarchical_listen,
    .abort = hierarchical_abort,
    .misleads = hierarchical_misleads,
    .start = stream_operation_start,
    .launch = hierarchical_launch,
};
