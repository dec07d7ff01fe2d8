/* The end of a communicator: finalized, destroyed, aborted, revoked. */
#include "integrations/nccl/cliques.h"
#include "integrations/nccl/group.h"
#include "integrations/nccl/ours.h"

#include <stdlib.h>

static ncclResult_t end_one(const struct job *job)
{
    comm_end(job->ends);
    return ncclSuccess;
}

static struct job job_of(ncclComm_t comm)
{
    return (struct job){.run = end_one, .who = entry_name(), .ends = comm, .device = comm->device};
}

/* All at the same time, since each may wait for the others. */
static ncclResult_t end_all(ncclComm_t left)
{
    size_t count = 0, i = 0;
    for (ncclComm_t c = left; c; c = c->next_leaving)
        count++;
    struct job *jobs = count ? calloc(count, sizeof *jobs) : NULL;
    if (count && !jobs)
        return fail(ncclSystemError, "no memory");
    for (ncclComm_t c = left; c; c = c->next_leaving)
        jobs[i++] = job_of(c);
    ncclResult_t result = jobs_run(jobs, count);
    free(jobs);
    return result;
}

/* It waits for no other rank. */
static ncclResult_t end_alone(ncclComm_t comm)
{
    alnico_comm_abort(comm->alnico);
    ncclComm_t left = clique_drop(comm);
    const struct job job = job_of(comm);
    ncclResult_t result = jobs_run(&job, 1), others = end_all(left);
    return result == ncclSuccess ? others : result;
}

/* The caller may destroy its stream before the last of the clique comes. What has failed does not wait. */
static ncclResult_t end_with_clique(ncclComm_t comm)
{
    alnico_status_t status = alnico_comm_set_stream(comm->alnico, comm->home);
    return status == ALNICO_SUCCESS ? end_all(clique_leave(comm)) : end_alone(comm);
}

static ncclResult_t retire(ncclComm_t comm, ncclResult_t (*end)(ncclComm_t))
{
    ncclResult_t result = comm ? comm_retire(comm) : ncclSuccess;
    return comm && result == ncclSuccess ? end(comm) : result;
}

ncclResult_t ours_CommDestroy(ncclComm_t comm)
{
    return retire(comm, end_with_clique);
}

ncclResult_t ours_CommAbort(ncclComm_t comm)
{
    return retire(comm, end_alone);
}

/* Waits for all that was started; nothing may be started afterwards. */
ncclResult_t ours_CommFinalize(ncclComm_t comm)
{
    if (comm->finalized || comm->revoked)
        return fail(ncclInvalidArgument, "the communicator was %s",
                    comm->revoked ? "revoked" : "finalized");
    comm->finalized = true;
    return result_of(alnico_synchronize(comm->alnico));
}

/* Ends what is in flight; ncclCommSplit, ncclCommShrink and the ends above may follow. */
ncclResult_t ours_CommRevoke(ncclComm_t comm, int flags)
{
    if (flags)
        return fail(ncclInvalidArgument, "unknown flags %#x", (unsigned)flags);
    if (comm->revoked)
        return fail(ncclInvalidArgument, "the communicator was revoked");
    comm->revoked = true;
    return result_of(alnico_comm_abort(comm->alnico));
}
