/* Jobs of a group: see group.h. Each that is not alone has a thread of its own, which ends with it. */
#include "integrations/nccl/group.h"

#include <stdlib.h>
#include <string.h>

/* A job and the thread that carries it out. */
struct worker {
    const struct job *job;
    pthread_t thread;
    bool started;
    ncclResult_t result;
    char detail[DETAIL_BYTES];
};

static ncclResult_t run(const struct job *job)
{
    if (!job->comm)
        return job->run(job);
    ncclResult_t result = comm_hold(job->comm);
    return result == ncclSuccess ? comm_release(job->comm, job->run(job)) : result;
}

/* A new thread has no GPU to go back to: that would make a context there. */
static void *work(void *argument)
{
    struct worker *worker = argument;
    entry_begin(worker->job->who);
    worker->result = result_of_cuda(cudaSetDevice(worker->job->device));
    if (worker->result == ncclSuccess)
        worker->result = run(worker->job);
    memcpy(worker->detail, fail_detail(), sizeof worker->detail);
    return NULL;
}

static ncclResult_t join(struct worker *workers, size_t count)
{
    ncclResult_t result = ncclSuccess;
    for (size_t i = 0; i < count; i++) {
        if (workers[i].started)
            pthread_join(workers[i].thread, NULL);
        if (result == ncclSuccess && workers[i].result != ncclSuccess) {
            result = workers[i].result;
            fail_repeat(workers[i].detail);
        }
    }
    return result;
}

static ncclResult_t run_here(const struct job *job)
{
    int before = job->device;
    entry_begin(job->who);
    ncclResult_t result = result_of_cuda(cudaGetDevice(&before));
    if (result == ncclSuccess && before != job->device)
        result = result_of_cuda(cudaSetDevice(job->device));
    if (result == ncclSuccess)
        result = run(job);
    if (before != job->device)
        cudaSetDevice(before);
    return result;
}

ncclResult_t jobs_run(const struct job *jobs, size_t count)
{
    if (count <= 1)
        return count ? run_here(jobs) : ncclSuccess;
    struct worker *workers = calloc(count, sizeof *workers);
    if (!workers)
        return fail(ncclSystemError, "no memory for a group");
    for (size_t i = 0; i < count; i++) {
        workers[i].job = &jobs[i];
        workers[i].started = pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0;
        if (!workers[i].started)
            workers[i].result = ncclSystemError;
        if (!workers[i].started)
            memcpy(workers[i].detail, "no thread for a rank", sizeof "no thread for a rank");
    }
    ncclResult_t result = join(workers, count);
    free(workers);
    return result;
}
