/* Where simulated ranks differ from processes; scripts/simgrid/build includes it before every file.
 * SimGrid's MPI has no MPI_Comm_idup, whose deadline a simulation can do without, and its MPI_Test
 * does not know a null request. It is MPI_Test that lets other ranks run: yielding the core costs
 * real time only. A rank's host is the simulated one, so that no two of them share memory or a boot
 * id. */
#ifndef ALNICO_SCRIPTS_SIMGRID_MPI_SHIM_H
#define ALNICO_SCRIPTS_SIMGRID_MPI_SHIM_H

#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

static inline int shim_comm_idup(MPI_Comm comm, MPI_Comm *out, MPI_Request *request)
{
    *request = MPI_REQUEST_NULL;
    return MPI_Comm_dup(comm, out);
}

static inline int shim_test(MPI_Request *request, int *done, MPI_Status *status)
{
    *done = 1;
    return *request == MPI_REQUEST_NULL ? MPI_SUCCESS : MPI_Test(request, done, status);
}

static inline int shim_yield(void)
{
    return 0;
}

static inline FILE *shim_fopen(const char *path, const char *mode)
{
    return strstr(path, "boot_id") ? NULL : fopen(path, mode);
}

static inline int shim_gethostname(char *name, size_t bytes)
{
    char host[MPI_MAX_PROCESSOR_NAME];
    int length = 0;
    if (MPI_Get_processor_name(host, &length) != MPI_SUCCESS)
        return -1;
    snprintf(name, bytes, "%s", host);
    return 0;
}

#undef MPI_Comm_idup
#undef MPI_Test
#define MPI_Comm_idup shim_comm_idup
#define MPI_Test shim_test
#define sched_yield shim_yield
#define fopen shim_fopen
#define gethostname shim_gethostname

#endif
