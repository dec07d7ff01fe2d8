/* MPI as a peer, which is initialised only where the options ask for it: its calls, and our
 * communicator from MPI_COMM_WORLD, so that both are as MPI has made them. Main thread. */
#ifndef ALNICO_TOOLS_PERF_MPI_H
#define ALNICO_TOOLS_PERF_MPI_H

#include "tools/perf/operations.h"

struct perf_mpi {
    const char *library, *level; /* version in one line; MPI_THREAD_... */

    /* Whether MPI has the type and the operation. */
    bool (*can)(const struct perf_job *job);

    /* One call. A nonblocking one leaves so many requests open, which `wait` waits for. */
    int (*start)(const struct perf_job *job, bool nonblocking);
    void (*wait)(int open);

    /* Our communicator of MPI_COMM_WORLD (collective). */
    alnico_status_t (*create)(alnico_device_t device, void *stream, alnico_comm_t *out);

    void (*abort)(int status); /* ends all ranks */
    void (*close)(void);
};

/* Loads MPI and initialises it, with MPI_THREAD_MULTIPLE or SINGLE. NULL, with the thread's error
 * detail, if this build has none or the level is lower. */
ALNICO_API const struct perf_mpi *perf_mpi_open(bool multiple);

#endif
