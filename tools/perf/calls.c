/* Our calls, one function an operation: they are what is timed, and call the public API only. Main
 * thread. */
#include "base/datatype.h"
#include "base/status.h"
#include "tools/perf/operations.h"

/* A function of `job` and `request`: alnico_NAME on the communicator, or alnico_iNAME with the
 * request. */
#define OPERATION(name, ...)                                                                       \
    alnico_status_t call_##name(const struct perf_job *job, alnico_request_t *request)             \
    {                                                                                              \
        return request ? alnico_i##name(__VA_ARGS__, job->comm, request)                           \
                       : alnico_##name(__VA_ARGS__, job->comm);                                    \
    }

alnico_status_t perf_call_ours(const struct perf_job *job, alnico_request_t *request)
{
    return job->operation->call(job, request);
}

static size_t own_count(const struct perf_job *job)
{
    return job->blocks->counts[job->rank];
}

OPERATION(allreduce, job_send(job, ALNICO_IN_PLACE), job->recv, job->count, job->type, job->op)
OPERATION(reduce, job_send(job, ALNICO_IN_PLACE), job->recv, job->count, job->type, job->op,
          job->root)
OPERATION(broadcast, job->recv, job->count, job->type, job->root)
OPERATION(allgather, job_send(job, ALNICO_IN_PLACE), job->recv, job->count, job->type)
OPERATION(allgatherv, job_send(job, ALNICO_IN_PLACE), own_count(job), job->recv,
          job->blocks->counts, job->blocks->at, job->type)
OPERATION(reduce_scatter, job_send(job, ALNICO_IN_PLACE), job->recv, job->count, job->type, job->op)
OPERATION(reduce_scatterv, job_send(job, ALNICO_IN_PLACE), job->recv, job->blocks->counts,
          job->type, job->op)
OPERATION(gather, job_send(job, ALNICO_IN_PLACE), job->recv, job->count, job->type, job->root)
OPERATION(gatherv, job_send(job, ALNICO_IN_PLACE), own_count(job), job->recv, job->blocks->counts,
          job->blocks->at, job->type, job->root)
OPERATION(scatter, job_scattered(job), job_recv(job, ALNICO_IN_PLACE), job->count, job->type,
          job->root)
OPERATION(scatterv, job_scattered(job), job->blocks->counts, job->blocks->at,
          job_recv(job, ALNICO_IN_PLACE), own_count(job), job->type, job->root)
OPERATION(alltoall, job_send(job, ALNICO_IN_PLACE), job->recv, job->count, job->type)
OPERATION(alltoallv, job_send(job, ALNICO_IN_PLACE), job->blocks->counts, job->blocks->at,
          job->recv, job->blocks->counts, job->blocks->at, job->type)
OPERATION(sendrecv, job->send, job->count, job_neighbour(job, 1), job->recv, job->count,
          job_neighbour(job, -1), job->type)

alnico_status_t call_barrier(const struct perf_job *job, alnico_request_t *request)
{
    return request ? alnico_ibarrier(job->comm, request) : alnico_barrier(job->comm);
}

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
