/* See group.h. A thread's group is its own. */
#include "integrations/nccl/group.h"

#include "integrations/nccl/ours.h"

#include <stdlib.h>
#include <string.h>

struct group {
    int depth;
    ncclResult_t error; /* the first */
    char detail[DETAIL_BYTES];
    struct operation *operations;
    size_t operation_count, operation_room;
    struct job *jobs;
    size_t job_count, job_room;
};

static _Thread_local struct group group;

/* A thread that ends frees what its group has. */
static pthread_key_t key;
static pthread_once_t key_once = PTHREAD_ONCE_INIT;

static void free_group(void *value)
{
    struct group *own = value;
    free(own->operations);
    free(own->jobs);
    memset(own, 0, sizeof *own);
}

static void make_key(void)
{
    pthread_key_create(&key, free_group);
}

/* Room for one more of `bytes` bytes. */
static bool make_room(void **array, size_t count, size_t *room, size_t bytes)
{
    if (count < *room)
        return true;
    size_t wanted = *room ? 2 * *room : 16;
    void *grown = realloc(*array, wanted * bytes);
    if (!grown)
        return false;
    pthread_once(&key_once, make_key);
    pthread_setspecific(key, &group);
    *array = grown;
    *room = wanted;
    return true;
}

bool group_is_open(void)
{
    return group.depth > 0;
}

ncclResult_t group_result(ncclResult_t result)
{
    if (result != ncclSuccess && group.depth > 0 && group.error == ncclSuccess) {
        group.error = result;
        memcpy(group.detail, fail_detail(), sizeof group.detail);
    }
    return result;
}

ncclResult_t group_keep(const struct operation *operation)
{
    struct group *g = &group;
    if (!make_room((void **)&g->operations, g->operation_count, &g->operation_room,
                   sizeof *operation))
        return fail(ncclSystemError, "no memory for a group");
    g->operations[g->operation_count] = *operation;
    g->operations[g->operation_count].order = g->operation_count;
    g->operation_count++;
    return ncclSuccess;
}

ncclResult_t group_job(struct job *job)
{
    struct group *g = &group;
    ncclResult_t result = ncclSuccess;
    job->who = entry_name();
    if (job->comm)
        job->device = job->comm->device;
    else
        result = result_of_cuda(cudaGetDevice(&job->device));
    if (result != ncclSuccess || g->depth == 0)
        return result == ncclSuccess ? jobs_run(job, 1) : result;
    if (!make_room((void **)&g->jobs, g->job_count, &g->job_room, sizeof *job))
        return fail(ncclSystemError, "no memory for a group");
    g->jobs[g->job_count++] = *job;
    return ncclSuccess;
}

/* Two jobs are together if they make ranks of one communicator. */
static bool are_together(const struct job *a, const struct job *b)
{
    if (a->run != b->run || !a->out)
        return false;
    return a->comm && b->comm ? a->comm->clique == b->comm->clique
                              : memcmp(&a->id, &b->id, sizeof a->id) == 0;
}

/* A thread that makes several ranks of one communicator later starts their operations one by one. */
static void mark_crowded(struct job *jobs, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (size_t j = 0; j < count && !jobs[i].crowded; j++)
            jobs[i].crowded = i != j && are_together(&jobs[i], &jobs[j]);
}

ncclResult_t ours_GroupStart(void)
{
    if (group.depth++ == 0) {
        group.error = ncclSuccess;
        group.operation_count = 0;
        group.job_count = 0;
    }
    return ncclSuccess;
}

/* The lists are taken out of the group, so that its jobs and calls see none. */
static ncclResult_t end_group(void)
{
    ncclResult_t result = group.error;
    size_t jobs = group.job_count, operations = group.operation_count;
    group.job_count = group.operation_count = 0;
    group.error = ncclSuccess;
    if (result != ncclSuccess) {
        fail_repeat(group.detail);
        return result;
    }
    mark_crowded(group.jobs, jobs);
    result = jobs_run(group.jobs, jobs);
    return result == ncclSuccess ? group_start(group.operations, operations) : result;
}

ncclResult_t ours_GroupEnd(void)
{
    if (group.depth == 0)
        return fail(ncclInvalidUsage, "no group was started by this thread");
    return --group.depth == 0 ? end_group() : ncclSuccess;
}

/* Alnico has no estimate: the group is dropped. */
ncclResult_t ours_GroupSimulateEnd(ncclSimInfo_t *info)
{
    (void)info;
    if (group.depth == 0)
        return fail(ncclInvalidUsage, "no group was started by this thread");
    group.depth = 0;
    group.job_count = group.operation_count = 0;
    return fail(ncclInvalidUsage, "there is no estimate of a group's time");
}
