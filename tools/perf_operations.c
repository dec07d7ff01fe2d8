/* The table of operations, and MPI's names for our types and operations. */
#include "perf_operations.h"

#include "comm/tuning.h"
#include "datatype.h"

#include <limits.h>
#include <string.h>

static MPI_Datatype mpi_type(alnico_datatype_t type)
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

static MPI_Op mpi_op(alnico_op_t op)
{
    switch (op) {
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

bool perf_mpi_can(alnico_datatype_t type, alnico_op_t op, size_t count)
{
    return mpi_type(type) != MPI_DATATYPE_NULL && mpi_op(op) != MPI_OP_NULL && count <= INT_MAX;
}

static double allreduce_bus_factor(int ranks)
{
    return 2.0 * (ranks - 1) / ranks;
}

static const char *allreduce_algorithm(alnico_device_t device, int i)
{
    const struct algorithm *algorithm = tuning_algorithm_at(device, ALNICO_ALLREDUCE, i, NULL);
    return algorithm ? algorithm->name : NULL;
}

static alnico_status_t allreduce_call(const struct perf_job *job, alnico_request_t *request)
{
    if (request)
        return alnico_iallreduce(job->send, job->recv, job->count, job->type, job->op, job->comm,
                                 request);
    return alnico_allreduce(job->send, job->recv, job->count, job->type, job->op, job->comm);
}

static int allreduce_mpi(const struct perf_job *job, MPI_Request *request)
{
    const void *send = job->send == ALNICO_IN_PLACE ? MPI_IN_PLACE : job->send;
    if (request)
        return MPI_Iallreduce(send, job->recv, (int)job->count, mpi_type(job->type),
                              mpi_op(job->op), MPI_COMM_WORLD, request);
    return MPI_Allreduce(send, job->recv, (int)job->count, mpi_type(job->type), mpi_op(job->op),
                         MPI_COMM_WORLD);
}

static const struct perf_operation operations[] = {
    {.name = "allreduce",
     .about = "every rank gets the combination of all ranks' elements",
     .collective = ALNICO_ALLREDUCE,
     .bus_factor = allreduce_bus_factor,
     .algorithm = allreduce_algorithm,
     .call = allreduce_call,
     .mpi = allreduce_mpi},
};

const struct perf_operation *perf_operation_at(int i)
{
    return i < (int)(sizeof operations / sizeof *operations) ? &operations[i] : NULL;
}

const struct perf_operation *perf_operation_find(const char *name)
{
    for (int i = 0; perf_operation_at(i); i++)
        if (strcmp(operations[i].name, name) == 0)
            return &operations[i];
    return NULL;
}
