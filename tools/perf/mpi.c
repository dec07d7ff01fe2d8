/* MPI's calls, one function an operation, and its names for our types and operations. MPI's default
 * error handler ends the program, so that calls need no check. Main thread. */
#include "base/datatype.h"
#include "tools/perf/operations.h"

#include <limits.h>

/* The blocking call, or the nonblocking one, which leaves one request. */
#define CALL(blocking, nonblocking, ...)                                                           \
    (requests ? (nonblocking(__VA_ARGS__, requests), 1) : (blocking(__VA_ARGS__), 0))

static MPI_Datatype reduced_type(alnico_datatype_t type)
{
    switch (type) {
    case ALNICO_INT8:
        return MPI_INT8_T;
    case ALNICO_UINT8:
        return MPI_UINT8_T;
    case ALNICO_INT32:
        return MPI_INT32_T;
    case ALNICO_UINT32:
        return MPI_UINT32_T;
    case ALNICO_INT64:
        return MPI_INT64_T;
    case ALNICO_UINT64:
        return MPI_UINT64_T;
    case ALNICO_FLOAT32:
        return MPI_FLOAT;
    case ALNICO_FLOAT64:
        return MPI_DOUBLE;
    default:
        return MPI_DATATYPE_NULL;
    }
}

/* 16-bit floats can be moved, not reduced. */
static MPI_Datatype type_of(const struct perf_job *job)
{
    bool half = job->type == ALNICO_FLOAT16 || job->type == ALNICO_BFLOAT16;
    return half && !job->operation->reduces ? MPI_UINT16_T : reduced_type(job->type);
}

static MPI_Op op_of(const struct perf_job *job)
{
    switch (job->op) {
    case ALNICO_SUM:
        return MPI_SUM;
    case ALNICO_PRODUCT:
        return MPI_PROD;
    case ALNICO_MINIMUM:
        return MPI_MIN;
    case ALNICO_MAXIMUM:
        return MPI_MAX;
    case ALNICO_LOGICAL_AND:
        return MPI_LAND;
    case ALNICO_LOGICAL_OR:
        return MPI_LOR;
    case ALNICO_LOGICAL_XOR:
        return MPI_LXOR;
    case ALNICO_BITWISE_AND:
        return MPI_BAND;
    case ALNICO_BITWISE_OR:
        return MPI_BOR;
    case ALNICO_BITWISE_XOR:
        return MPI_BXOR;
    default:
        return MPI_OP_NULL;
    }
}

bool perf_mpi_can(const struct perf_job *job)
{
    return type_of(job) != MPI_DATATYPE_NULL && op_of(job) != MPI_OP_NULL &&
           perf_extent(job->operation, job->count, job->ranks) <= INT_MAX;
}

static const void *send_of(const struct perf_job *job)
{
    return job->in_place ? MPI_IN_PLACE : job->send;
}

static int count_of(const struct perf_job *job)
{
    return (int)job->count;
}

/* ---- Vectors ---- */

int mpi_allreduce(const struct perf_job *job, MPI_Request *requests)
{
    return CALL(MPI_Allreduce, MPI_Iallreduce, send_of(job), job->recv, count_of(job), type_of(job),
                op_of(job), MPI_COMM_WORLD);
}

int mpi_reduce(const struct perf_job *job, MPI_Request *requests)
{
    return CALL(MPI_Reduce, MPI_Ireduce, send_of(job), job->recv, count_of(job), type_of(job),
                op_of(job), job->root, MPI_COMM_WORLD);
}

int mpi_broadcast(const struct perf_job *job, MPI_Request *requests)
{
    return CALL(MPI_Bcast, MPI_Ibcast, job->recv, count_of(job), type_of(job), job->root,
                MPI_COMM_WORLD);
}

/* ---- Blocks ---- */

int mpi_allgather(const struct perf_job *job, MPI_Request *requests)
{
    return CALL(MPI_Allgather, MPI_Iallgather, send_of(job), count_of(job), type_of(job), job->recv,
                count_of(job), type_of(job), MPI_COMM_WORLD);
}

int mpi_allgatherv(const struct perf_job *job, MPI_Request *requests)
{
    const struct perf_blocks *b = job->blocks;
    return CALL(MPI_Allgatherv, MPI_Iallgatherv, send_of(job), b->mpi_counts[job->rank],
                type_of(job), job->recv, b->mpi_counts, b->mpi_at, type_of(job), MPI_COMM_WORLD);
}

/* In place MPI puts the result in front. */
int mpi_reduce_scatter(const struct perf_job *job, MPI_Request *requests)
{
    return CALL(MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, send_of(job), job->recv,
                count_of(job), type_of(job), op_of(job), MPI_COMM_WORLD);
}

int mpi_reduce_scatterv(const struct perf_job *job, MPI_Request *requests)
{
    return CALL(MPI_Reduce_scatter, MPI_Ireduce_scatter, send_of(job), job->recv,
                job->blocks->mpi_counts, type_of(job), op_of(job), MPI_COMM_WORLD);
}

int mpi_gather(const struct perf_job *job, MPI_Request *requests)
{
    return CALL(MPI_Gather, MPI_Igather, send_of(job), count_of(job), type_of(job), job->recv,
                count_of(job), type_of(job), job->root, MPI_COMM_WORLD);
}

int mpi_gatherv(const struct perf_job *job, MPI_Request *requests)
{
    const struct perf_blocks *b = job->blocks;
    return CALL(MPI_Gatherv, MPI_Igatherv, send_of(job), b->mpi_counts[job->rank], type_of(job),
                job->recv, b->mpi_counts, b->mpi_at, type_of(job), job->root, MPI_COMM_WORLD);
}

int mpi_scatter(const struct perf_job *job, MPI_Request *requests)
{
    const void *send = job->in_place ? job->recv : job->send;
    void *recv = job->in_place ? MPI_IN_PLACE : job->recv;
    return CALL(MPI_Scatter, MPI_Iscatter, send, count_of(job), type_of(job), recv, count_of(job),
                type_of(job), job->root, MPI_COMM_WORLD);
}

int mpi_scatterv(const struct perf_job *job, MPI_Request *requests)
{
    const struct perf_blocks *b = job->blocks;
    const void *send = job->in_place ? job->recv : job->send;
    void *recv = job->in_place ? MPI_IN_PLACE : job->recv;
    return CALL(MPI_Scatterv, MPI_Iscatterv, send, b->mpi_counts, b->mpi_at, type_of(job), recv,
                b->mpi_counts[job->rank], type_of(job), job->root, MPI_COMM_WORLD);
}

int mpi_alltoall(const struct perf_job *job, MPI_Request *requests)
{
    return CALL(MPI_Alltoall, MPI_Ialltoall, send_of(job), count_of(job), type_of(job), job->recv,
                count_of(job), type_of(job), MPI_COMM_WORLD);
}

int mpi_alltoallv(const struct perf_job *job, MPI_Request *requests)
{
    const struct perf_blocks *b = job->blocks;
    return CALL(MPI_Alltoallv, MPI_Ialltoallv, send_of(job), b->mpi_counts, b->mpi_at, type_of(job),
                job->recv, b->mpi_counts, b->mpi_at, type_of(job), MPI_COMM_WORLD);
}

/* ---- No data, and messages ---- */

int mpi_barrier(const struct perf_job *job, MPI_Request *requests)
{
    (void)job;
    return CALL(MPI_Barrier, MPI_Ibarrier, MPI_COMM_WORLD);
}

int mpi_sendrecv(const struct perf_job *job, MPI_Request *requests)
{
    int next = (job->rank + 1) % job->ranks, previous = (job->rank + job->ranks - 1) % job->ranks;
    if (!requests) {
        MPI_Sendrecv(job->send, count_of(job), type_of(job), next, 0, job->recv, count_of(job),
                     type_of(job), previous, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return 0;
    }
    MPI_Irecv(job->recv, count_of(job), type_of(job), previous, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(job->send, count_of(job), type_of(job), next, 0, MPI_COMM_WORLD, &requests[1]);
    return 2;
}

int mpi_exchange(const struct perf_job *job, MPI_Request *requests)
{
    int left = (job->rank + job->ranks - 1) % job->ranks, right = (job->rank + 1) % job->ranks;
    size_t bytes = job->count * datatype_bytes(job->type);
    const char *send = job->send;
    char *recv = job->recv;
    MPI_Status statuses[PERF_REQUESTS];
    MPI_Request own[PERF_REQUESTS], *r = requests ? requests : own;
    MPI_Irecv(recv + bytes, count_of(job), type_of(job), right, 0, MPI_COMM_WORLD, &r[0]);
    MPI_Irecv(recv, count_of(job), type_of(job), left, 0, MPI_COMM_WORLD, &r[1]);
    MPI_Isend(send, count_of(job), type_of(job), left, 0, MPI_COMM_WORLD, &r[2]);
    MPI_Isend(send + bytes, count_of(job), type_of(job), right, 0, MPI_COMM_WORLD, &r[3]);
    if (requests)
        return 4;
    MPI_Waitall(4, own, statuses);
    return 0;
}

int mpi_pingpong(const struct perf_job *job, MPI_Request *requests)
{
    (void)requests;
    if (job->rank > 1)
        return 0;
    if (job->rank == 0)
        MPI_Send(job->send, count_of(job), type_of(job), 1, 0, MPI_COMM_WORLD);
    MPI_Recv(job->recv, count_of(job), type_of(job), 1 - job->rank, 0, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
    if (job->rank == 1)
        MPI_Send(job->send, count_of(job), type_of(job), 0, 0, MPI_COMM_WORLD);
    return 0;
}
