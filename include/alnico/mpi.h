/* Communicators from an MPI_Comm. The rest of the interface is <alnico/alnico.h>. */
#ifndef ALNICO_MPI_H
#define ALNICO_MPI_H

#include <alnico/alnico.h>
#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Creates a communicator over the ranks of `mpi_comm` (collective), which is duplicated and may be
 * freed afterwards. MPI must be initialised, and finalised only after the communicator is
 * destroyed. With MPI_THREAD_MULTIPLE the library progresses nonblocking operations on a thread of
 * its own; below it, whoever waits or tests does, and the stream must be the inline one (NULL).
 * Otherwise as alnico_comm_create. An intercommunicator or MPI_COMM_NULL is ARGUMENT.
 *
 * With MPICH, an error handler of the library's stands before that of MPI_COMM_WORLD while
 * communicators over MPI live: MPICH raises there what fails in the library's messages too, such as
 * one longer than its receive. All other errors go on to the handler that was there. One that is
 * set meanwhile gets all. */
ALNICO_API alnico_status_t alnico_comm_create_mpi(MPI_Comm mpi_comm, alnico_device_t device,
                                                  void *stream, alnico_comm_t *out);

#ifdef __cplusplus
}
#endif

#endif
