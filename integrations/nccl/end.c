/* The end of a communicator: finalized, destroyed, aborted, revoked. */
#include "integrations/nccl/cliques.h"
#include "integrations/nccl/group.h"
#include "integrations/nccl/ours.h"

#include <stdlib.h>

static ncclResult_t end_one(const struct job *job)
{
    comm_end(job->comm);
    return ncclSuccess;
}

/* All at the same time, since each may wait for the others. */
static ncclResult_t end_all(ncclComm_t left, const char *who)
{
    size_t count = 0, i = 0;
    for (ncclComm_t c = left; c; c = c->next_leaving)
        count++;
    struct job *jobs = count ? calloc(count, sizeof *jobs) : NULL;
    if (count && !jobs)
        return fail(ncclSystemError, "%s: no memory", who);
    for (ncclComm_t c = left; c; c = c->next_leaving)
        jobs[i++] = (struct job){.run = end_one, .who = who, .comm = c, .device = c->device};
    ncclResult_t result = jobs_run(jobs, count);
    free(jobs);
    return result;
}

ncclResult_t ours_CommDestroy(ncclComm_t comm)
{
    const char *who = "ncclCommDestroy";
    if (!comm)
        return ncclSuccess;
    ncclResult_t result = comm_retire(comm, who);
    return result == ncclSuccess ? end_all(clique_leave(comm), who) : result;
}

/* It waits for no other rank. The real communicator is aborted first: a destroy would wait. */
ncclResult_t ours_CommAbort(ncclComm_t comm)
{
    const char *who = "ncclCommAbort";
    if (!comm)
        return ncclSuccess;
    ncclResult_t result = comm_retire(comm, who);
    if (result != ncclSuccess)
        return result;
    alnico_comm_abort(comm->alnico);
    if (comm->real)
        (void)entries_real()->CommAbort(comm->real);
    comm->real = NULL;
    ncclComm_t left = clique_drop(comm);
    const struct job job = {.run = end_one, .who = who, .comm = comm, .device = comm->device};
    result = jobs_run(&job, 1);
    ncclResult_t others = end_all(left, who);
    return result == ncclSuccess ? others : result;
}

/* Waits for all that was started; nothing may be started afterwards. */
ncclResult_t ours_CommFinalize(ncclComm_t comm)
{
    const char *who = "ncclCommFinalize";
    ncclResult_t result = comm_hold(comm, who);
    if (result != ncclSuccess)
        return result;
    if (comm->finalized)
        result = fail(ncclInvalidArgument, "%s: the communicator was finalized", who);
    comm->finalized = true;
    if (result == ncclSuccess)
        result = result_of(alnico_synchronize(comm->alnico), who);
    comm_failed(comm, result);
    comm_release(comm);
    return result;
}

/* Ends what is in flight; ncclCommShrink and the ends above may follow. */
ncclResult_t ours_CommRevoke(ncclComm_t comm, int flags)
{
    const char *who = "ncclCommRevoke";
    ncclResult_t result = comm_hold(comm, who);
    if (result != ncclSuccess)
        return result;
    result = flags ? fail(ncclInvalidArgument, "%s: unknown flags %#x", who, (unsigned)flags)
                   : result_of(alnico_comm_abort(comm->alnico), who);
    comm_failed(comm, result);
    comm_release(comm);
    return result;
}
