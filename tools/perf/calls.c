/* Our calls, one function an operation: they are what is timed, and call the public API only. Main
 * thread. */
#include "base/datatype.h"
#include "base/status.h"
#include "tools/perf/operations.h"

/* A function of JOB and REQUEST: alnico_NAME, or alnico_iNAME with the request. */
#define OPERATION(name, job, request, ...)                                                         \
    alnico_status_t call_##name(const struct perf_job *job, alnico_request_t *request)             \
    {                                                                                              \
        return request ? alnico_i##name(__VA_ARGS__, request) : alnico_##name(__VA_ARGS__);        \
    }

alnico_status_t perf_call_ours(const struct perf_job *job, alnico_request_t *request)
{
    return job->operation->call(job, request);
}

static size_t own_count(const struct perf_job *job)
{
    return job->blocks->counts[job->rank];
}

OPERATION(allreduce, job, request, job_send(job, ALNICO_IN_PLACE), job->recv, job->count, job->type,
          job->op, job->comm)
OPERATION(reduce, job, request, job_send(job, ALNICO_IN_PLACE), job->recv, job->count, job->type,
          job->op, job->root, job->comm)
OPERATION(broadcast, job, request, job->recv, job->count, job->type, job->root, job->comm)
OPERATION(allgather, job, request, job_send(job, ALNICO_IN_PLACE), job->recv, job->count, job->type,
          job->comm)
OPERATION(allgatherv, job, request, job_send(job, ALNICO_IN_PLACE), own_count(job), job->recv,
          job->blocks->counts, job->blocks->at, job->type, job->comm)
OPERATION(reduce_scatter, job, request, job_send(job, ALNICO_IN_PLACE), job->recv, job->count,
          job->type, job->op, job->comm)
OPERATION(reduce_scatterv, job, request, job_send(job, ALNICO_IN_PLACE), job->recv,
          job->blocks->counts, job->type, job->op, job->comm)
OPERATION(gather, job, request, job_send(job, ALNICO_IN_PLACE), job->recv, job->count, job->type,
          job->root, job->comm)
OPERATION(gatherv, job, request, job_send(job, ALNICO_IN_PLACE), own_count(job), job->recv,
          job->blocks->counts, job->blocks->at, job->type, job->root, job->comm)
OPERATION(scatter, job, request, job_scattered(job), job_recv(job, ALNICO_IN_PLACE), job->count,
          job->type, job->root, job->comm)
OPERATION(scatterv, job, request, job_scattered(job), job->blocks->counts, job->blocks->at,
          job_recv(job, ALNICO_IN_PLACE), own_count(job), job->type, job->root, job->comm)
OPERATION(alltoall, job, request, job_send(job, ALNICO_IN_PLACE), job->recv, job->count, job->type,
          job->comm)
OPERATION(alltoallv, job, request, job_send(job, ALNICO_IN_PLACE), job->blocks->counts,
          job->blocks->at, job->recv, job->blocks->counts, job->blocks->at, job->type, job->comm)
OPERATION(barrier, job, request, job->comm)
OPERATION(sendrecv, job, request, job->send, job->count, job_neighbour(job, 1), job->recv,
          job->count, job_neighbour(job, -1), job->type, job->comm)

/* Receives stand so that, with two ranks, the first message of a neighbour is the one that it sends
 * to its left. An error shows in the end again, since members are then missing on one side only. */
alnico_status_t call_exchange(const struct perf_job *job, alnico_request_t *request)
{
    int left = job_neighbour(job, -1), right = job_neighbour(job, 1);
    size_t bytes = job->count * datatype_bytes(job->type);
    const char *send = job->send;
    char *recv = job->recv;
    TRY(alnico_group_begin(job->comm));
    TRY(alnico_recv(recv + bytes, job->count, job->type, right, job->comm));
    TRY(alnico_recv(recv, job->count, job->type, left, job->comm));
    TRY(alnico_send(send, job->count, job->type, left, job->comm));
    TRY(alnico_send(send + bytes, job->count, job->type, right, job->comm));
    return alnico_group_end(job->comm, request);
}

alnico_status_t call_pingpong(const struct perf_job *job, alnico_request_t *request)
{
    (void)request;
    if (job->rank > 1)
        return ALNICO_SUCCESS;
    if (job->rank == 0)
        TRY(alnico_send(job->send, job->count, job->type, 1, job->comm));
    TRY(alnico_recv(job->recv, job->count, job->type, 1 - job->rank, job->comm));
    if (job->rank == 0)
        return ALNICO_SUCCESS;
    return alnico_send(job->send, job->count, job->type, 0, job->comm);
}
