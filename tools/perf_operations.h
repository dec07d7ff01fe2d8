/* What alnico-perf can measure, one row an operation, and whom it can be measured against. To add an
 * operation, add its row and its two calls in perf_operations.c. */
#ifndef ALNICO_TOOLS_PERF_OPERATIONS_H
#define ALNICO_TOOLS_PERF_OPERATIONS_H

#include <alnico/alnico.h>
#include <mpi.h>

/* One call's arguments. `send` is ALNICO_IN_PLACE for in place. */
struct perf_job {
    const void *send;
    void *recv;
    size_t count;
    alnico_datatype_t type;
    alnico_op_t op;
    alnico_comm_t comm;
};

struct perf_operation {
    const char *name, *about;
    alnico_collective_t collective;
    double (*bus_factor)(int ranks); /* bus bandwidth / algorithm bandwidth, as in nccl-tests */
    /* The name of the i-th algorithm that a device has; NULL after the last. */
    const char *(*algorithm)(alnico_device_t device, int i);
    /* Ours and MPI's; a request makes the call nonblocking, NULL blocking. */
    alnico_status_t (*call)(const struct perf_job *job, alnico_request_t *request);
    int (*mpi)(const struct perf_job *job, MPI_Request *request);
};

/* The row of that name, or NULL; and the i-th, NULL after the last. */
const struct perf_operation *perf_operation_find(const char *name);
const struct perf_operation *perf_operation_at(int i);

/* Whether MPI has the type, the operation, and a count that fits its int. */
bool perf_mpi_can(alnico_datatype_t type, alnico_op_t op, size_t count);

#endif
