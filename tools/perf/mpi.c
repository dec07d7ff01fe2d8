/* MPI's calls, one function an operation, and its names for our types and operations. MPI's default
 * error handler ends the program, so that calls need no check. Main thread. */
#include "tools/perf/mpi.h"

#include "base/datatype.h"
#include "base/status.h"

#include <alnico/mpi.h>
#include <string.h>

/* A function of `job` and `requests`: the blocking call or, with requests, the nonblocking one,
 * which leaves one open. */
#define OPERATION(name, blocking, nonblocking, ...)                                                \
    static int mpi_##name(const struct perf_job *job, MPI_Request *requests)                       \
    {                                                                                              \
        if (requests)                                                                              \
            nonblocking(__VA_ARGS__, MPI_COMM_WORLD, requests);                                    \
        else                                                                                       \
            blocking(__VA_ARGS__, MPI_COMM_WORLD);                                                 \
        return requests != NULL;                                                                   \
    }

/* The types that MPI reduces. A handle is no constant everywhere. */
static MPI_Datatype reduced_type(alnico_datatype_t type)
{
    const MPI_Datatype types[] = {[ALNICO_INT8] = MPI_INT8_T,
                                  [ALNICO_UINT8] = MPI_UINT8_T,
                                  [ALNICO_INT32] = MPI_INT32_T,
                                  [ALNICO_UINT32] = MPI_UINT32_T,
                                  [ALNICO_INT64] = MPI_INT64_T,
                                  [ALNICO_UINT64] = MPI_UINT64_T,
                                  [ALNICO_FLOAT16] = MPI_DATATYPE_NULL,
                                  [ALNICO_BFLOAT16] = MPI_DATATYPE_NULL,
                                  [ALNICO_FLOAT32] = MPI_FLOAT,
                                  [ALNICO_FLOAT64] = MPI_DOUBLE,
                                  [ALNICO_FLOAT8_E4M3] = MPI_DATATYPE_NULL,
                                  [ALNICO_FLOAT8_E5M2] = MPI_DATATYPE_NULL};
    return types[type];
}

/* Floats of 16 and 8 bits can be moved, not reduced. */
static MPI_Datatype type_of(const struct perf_job *job)
{
    bool moved =
        datatype_is_short_float(job->type) && !collectives[job->operation->collective].reduces;
    return !moved                           ? reduced_type(job->type)
           : datatype_bytes(job->type) == 1 ? MPI_UINT8_T
                                            : MPI_UINT16_T;
}

static MPI_Op op_of(const struct perf_job *job)
{
    const MPI_Op ops[] = {[ALNICO_SUM] = MPI_SUM,          [ALNICO_PRODUCT] = MPI_PROD,
                          [ALNICO_MINIMUM] = MPI_MIN,      [ALNICO_MAXIMUM] = MPI_MAX,
                          [ALNICO_AVERAGE] = MPI_OP_NULL,  [ALNICO_LOGICAL_AND] = MPI_LAND,
                          [ALNICO_LOGICAL_OR] = MPI_LOR,   [ALNICO_LOGICAL_XOR] = MPI_LXOR,
                          [ALNICO_BITWISE_AND] = MPI_BAND, [ALNICO_BITWISE_OR] = MPI_BOR,
                          [ALNICO_BITWISE_XOR] = MPI_BXOR};
    return ops[job->op];
}

static bool can(const struct perf_job *job)
{
    return type_of(job) != MPI_DATATYPE_NULL && op_of(job) != MPI_OP_NULL;
}

static int count_of(const struct perf_job *job)
{
    return (int)job->count;
}

static int own_count(const struct perf_job *job)
{
    return job->blocks->mpi_counts[job->rank];
}

OPERATION(allreduce, MPI_Allreduce, MPI_Iallreduce, job_send(job, MPI_IN_PLACE), job->recv,
          count_of(job), type_of(job), op_of(job))
OPERATION(reduce, MPI_Reduce, MPI_Ireduce, job_send(job, MPI_IN_PLACE), job->recv, count_of(job),
          type_of(job), op_of(job), job->root)
OPERATION(broadcast, MPI_Bcast, MPI_Ibcast, job->recv, count_of(job), type_of(job), job->root)
OPERATION(allgather, MPI_Allgather, MPI_Iallgather, job_send(job, MPI_IN_PLACE), count_of(job),
          type_of(job), job->recv, count_of(job), type_of(job))
OPERATION(allgatherv, MPI_Allgatherv, MPI_Iallgatherv, job_send(job, MPI_IN_PLACE), own_count(job),
          type_of(job), job->recv, job->blocks->mpi_counts, job->blocks->mpi_at, type_of(job))
/* In place MPI puts the result in front. */
OPERATION(reduce_scatter, MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block,
          job_send(job, MPI_IN_PLACE), job->recv, count_of(job), type_of(job), op_of(job))
OPERATION(reduce_scatterv, MPI_Reduce_scatter, MPI_Ireduce_scatter, job_send(job, MPI_IN_PLACE),
          job->recv, job->blocks->mpi_counts, type_of(job), op_of(job))
OPERATION(gather, MPI_Gather, MPI_Igather, job_send(job, MPI_IN_PLACE), count_of(job), type_of(job),
          job->recv, count_of(job), type_of(job), job->root)
OPERATION(gatherv, MPI_Gatherv, MPI_Igatherv, job_send(job, MPI_IN_PLACE), own_count(job),
          type_of(job), job->recv, job->blocks->mpi_counts, job->blocks->mpi_at, type_of(job),
          job->root)
OPERATION(scatter, MPI_Scatter, MPI_Iscatter, job_scattered(job), count_of(job), type_of(job),
          job_recv(job, MPI_IN_PLACE), count_of(job), type_of(job), job->root)
OPERATION(scatterv, MPI_Scatterv, MPI_Iscatterv, job_scattered(job), job->blocks->mpi_counts,
          job->blocks->mpi_at, type_of(job), job_recv(job, MPI_IN_PLACE), own_count(job),
          type_of(job), job->root)
OPERATION(alltoall, MPI_Alltoall, MPI_Ialltoall, job_send(job, MPI_IN_PLACE), count_of(job),
          type_of(job), job->recv, count_of(job), type_of(job))
OPERATION(alltoallv, MPI_Alltoallv, MPI_Ialltoallv, job_send(job, MPI_IN_PLACE),
          job->blocks->mpi_counts, job->blocks->mpi_at, type_of(job), job->recv,
          job->blocks->mpi_counts, job->blocks->mpi_at, type_of(job))

static int mpi_barrier(const struct perf_job *job, MPI_Request *requests)
{
    (void)job;
    if (requests)
        MPI_Ibarrier(MPI_COMM_WORLD, requests);
    else
        MPI_Barrier(MPI_COMM_WORLD);
    return requests != NULL;
}

static int mpi_sendrecv(const struct perf_job *job, MPI_Request *requests)
{
    int next = job_neighbour(job, 1), previous = job_neighbour(job, -1);
    if (!requests) {
        MPI_Sendrecv(job->send, count_of(job), type_of(job), next, 0, job->recv, count_of(job),
                     type_of(job), previous, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return 0;
    }
    MPI_Irecv(job->recv, count_of(job), type_of(job), previous, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(job->send, count_of(job), type_of(job), next, 0, MPI_COMM_WORLD, &requests[1]);
    return 2;
}

static int mpi_exchange(const struct perf_job *job, MPI_Request *requests)
{
    int left = job_neighbour(job, -1), right = job_neighbour(job, 1);
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

static int mpi_pingpong(const struct perf_job *job, MPI_Request *requests)
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

/* PERF_REQUESTS requests make a call nonblocking, and it returns how many it used. */
static const struct {
    const char *name;
    int (*call)(const struct perf_job *job, MPI_Request *requests);
} calls[] = {{"allreduce", mpi_allreduce},
             {"reduce", mpi_reduce},
             {"broadcast", mpi_broadcast},
             {"allgather", mpi_allgather},
             {"allgatherv", mpi_allgatherv},
             {"reduce_scatter", mpi_reduce_scatter},
             {"reduce_scatterv", mpi_reduce_scatterv},
             {"gather", mpi_gather},
             {"gatherv", mpi_gatherv},
             {"scatter", mpi_scatter},
             {"scatterv", mpi_scatterv},
             {"alltoall", mpi_alltoall},
             {"alltoallv", mpi_alltoallv},
             {"barrier", mpi_barrier},
             {"sendrecv", mpi_sendrecv},
             {"exchange", mpi_exchange},
             {"pingpong", mpi_pingpong}};

static MPI_Request requests[PERF_REQUESTS];

/* A program has one operation, which is looked for once. */
static int start(const struct perf_job *job, bool nonblocking)
{
    static const struct perf_operation *operation;
    static int index;
    for (int i = 0; operation != job->operation; i++)
        if (strcmp(calls[i].name, job->operation->name) == 0) {
            operation = job->operation;
            index = i;
        }
    return calls[index].call(job, nonblocking ? requests : NULL);
}

static void wait_all(int open)
{
    MPI_Status statuses[PERF_REQUESTS];
    if (open)
        MPI_Waitall(open, requests, statuses);
}

static alnico_status_t create(alnico_device_t device, void *stream, alnico_comm_t *out)
{
    return alnico_comm_create_mpi(MPI_COMM_WORLD, device, stream, out);
}

static void abort_all(int status)
{
    MPI_Abort(MPI_COMM_WORLD, status);
}

static void close_mpi(void)
{
    int ended;
    MPI_Finalized(&ended);
    if (!ended)
        MPI_Finalize();
}

static const char *library_version(void)
{
    static char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int length = 0;
    MPI_Get_library_version(text, &length);
    for (char *c = text; *c; c++)
        if (*c == '\t')
            *c = ' ';
    text[strcspn(text, "\n,")] = '\0';
    return text;
}

static const char *level_name(int level)
{
    static const char *const names[] = {[MPI_THREAD_SINGLE] = "MPI_THREAD_SINGLE",
                                        [MPI_THREAD_FUNNELED] = "MPI_THREAD_FUNNELED",
                                        [MPI_THREAD_SERIALIZED] = "MPI_THREAD_SERIALIZED",
                                        [MPI_THREAD_MULTIPLE] = "MPI_THREAD_MULTIPLE"};
    return names[level];
}

const struct perf_mpi *perf_mpi_open(bool multiple)
{
    static struct perf_mpi mpi = {.can = can,
                                  .start = start,
                                  .wait = wait_all,
                                  .create = create,
                                  .abort = abort_all,
                                  .close = close_mpi};
    int wanted = multiple ? MPI_THREAD_MULTIPLE : MPI_THREAD_SINGLE, level;
    int begun;
    MPI_Initialized(&begun);
    if (begun)
        MPI_Query_thread(&level);
    else
        MPI_Init_thread(NULL, NULL, wanted, &level);
    mpi.library = library_version();
    mpi.level = level_name(level);
    if (level >= wanted)
        return &mpi;
    error_set(ALNICO_ERROR_UNSUPPORTED, "MPI gives %s, and these options need %s", mpi.level,
              level_name(wanted));
    return NULL;
}
