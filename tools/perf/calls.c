/* Our calls, one function an operation. Only public calls stand here, since they are what is timed.
 * Main thread. */
#include "base/datatype.h"
#include "tools/perf/operations.h"

/* alnico_NAME, or alnico_iNAME with the request. */
#define CALL(name, ...)                                                                            \
    (request ? alnico_i##name(__VA_ARGS__, request) : alnico_##name(__VA_ARGS__))

static const void *send_of(const struct perf_job *job)
{
    return job->in_place ? ALNICO_IN_PLACE : job->send;
}

alnico_status_t perf_call_ours(const struct perf_job *job, alnico_request_t *request)
{
    return job->operation->call(job, request);
}

/* ---- Vectors ---- */

alnico_status_t call_allreduce(const struct perf_job *job, alnico_request_t *request)
{
    return CALL(allreduce, send_of(job), job->recv, job->count, job->type, job->op, job->comm);
}

alnico_status_t call_reduce(const struct perf_job *job, alnico_request_t *request)
{
    return CALL(reduce, send_of(job), job->recv, job->count, job->type, job->op, job->root,
                job->comm);
}

alnico_status_t call_broadcast(const struct perf_job *job, alnico_request_t *request)
{
    return CALL(broadcast, job->recv, job->count, job->type, job->root, job->comm);
}

/* ---- Blocks ---- */

alnico_status_t call_allgather(const struct perf_job *job, alnico_request_t *request)
{
    return CALL(allgather, send_of(job), job->recv, job->count, job->type, job->comm);
}

alnico_status_t call_allgatherv(const struct perf_job *job, alnico_request_t *request)
{
    const struct perf_blocks *b = job->blocks;
    return CALL(allgatherv, send_of(job), b->counts[job->rank], job->recv, b->counts, b->at,
                job->type, job->comm);
}

alnico_status_t call_reduce_scatter(const struct perf_job *job, alnico_request_t *request)
{
    return CALL(reduce_scatter, send_of(job), job->recv, job->count, job->type, job->op, job->comm);
}

alnico_status_t call_reduce_scatterv(const struct perf_job *job, alnico_request_t *request)
{
    return CALL(reduce_scatterv, send_of(job), job->recv, job->blocks->counts, job->type, job->op,
                job->comm);
}

alnico_status_t call_gather(const struct perf_job *job, alnico_request_t *request)
{
    return CALL(gather, send_of(job), job->recv, job->count, job->type, job->root, job->comm);
}

alnico_status_t call_gatherv(const struct perf_job *job, alnico_request_t *request)
{
    const struct perf_blocks *b = job->blocks;
    return CALL(gatherv, send_of(job), b->counts[job->rank], job->recv, b->counts, b->at, job->type,
                job->root, job->comm);
}

/* In place the root's vector is the only buffer. */
alnico_status_t call_scatter(const struct perf_job *job, alnico_request_t *request)
{
    const void *send = job->in_place ? job->recv : job->send;
    void *recv = job->in_place ? ALNICO_IN_PLACE : job->recv;
    return CALL(scatter, send, recv, job->count, job->type, job->root, job->comm);
}

alnico_status_t call_scatterv(const struct perf_job *job, alnico_request_t *request)
{
    const struct perf_blocks *b = job->blocks;
    const void *send = job->in_place ? job->recv : job->send;
    void *recv = job->in_place ? ALNICO_IN_PLACE : job->recv;
    return CALL(scatterv, send, b->counts, b->at, recv, b->counts[job->rank], job->type, job->root,
                job->comm);
}

alnico_status_t call_alltoall(const struct perf_job *job, alnico_request_t *request)
{
    return CALL(alltoall, send_of(job), job->recv, job->count, job->type, job->comm);
}

alnico_status_t call_alltoallv(const struct perf_job *job, alnico_request_t *request)
{
    const struct perf_blocks *b = job->blocks;
    return CALL(alltoallv, send_of(job), b->counts, b->at, job->recv, b->counts, b->at, job->type,
                job->comm);
}

/* ---- No data, and messages ---- */

alnico_status_t call_barrier(const struct perf_job *job, alnico_request_t *request)
{
    return CALL(barrier, job->comm);
}

alnico_status_t call_sendrecv(const struct perf_job *job, alnico_request_t *request)
{
    int next = (job->rank + 1) % job->ranks, previous = (job->rank + job->ranks - 1) % job->ranks;
    return CALL(sendrecv, job->send, job->count, next, job->recv, job->count, previous, job->type,
                job->comm);
}

/* Receives stand so that, with two ranks, the first message of a neighbour is the one that it sends
 * to its left. An error shows in the end again, since members are then missing on one side only. */
alnico_status_t call_exchange(const struct perf_job *job, alnico_request_t *request)
{
    int left = (job->rank + job->ranks - 1) % job->ranks, right = (job->rank + 1) % job->ranks;
    size_t bytes = job->count * datatype_bytes(job->type);
    const char *send = job->send;
    char *recv = job->recv;
    alnico_status_t status = alnico_group_begin(job->comm);
    if (status == ALNICO_SUCCESS)
        status = alnico_recv(recv + bytes, job->count, job->type, right, job->comm);
    if (status == ALNICO_SUCCESS)
        status = alnico_recv(recv, job->count, job->type, left, job->comm);
    if (status == ALNICO_SUCCESS)
        status = alnico_send(send, job->count, job->type, left, job->comm);
    if (status == ALNICO_SUCCESS)
        status = alnico_send(send + bytes, job->count, job->type, right, job->comm);
    return status == ALNICO_SUCCESS ? alnico_group_end(job->comm, request) : status;
}

alnico_status_t call_pingpong(const struct perf_job *job, alnico_request_t *request)
{
    alnico_status_t status = ALNICO_SUCCESS;
    (void)request;
    if (job->rank > 1)
        return status;
    if (job->rank == 0)
        status = alnico_send(job->send, job->count, job->type, 1, job->comm);
    if (status == ALNICO_SUCCESS)
        status = alnico_recv(job->recv, job->count, job->type, 1 - job->rank, job->comm);
    if (job->rank == 1 && status == ALNICO_SUCCESS)
        status = alnico_send(job->send, job->count, job->type, 0, job->comm);
    return status;
}
