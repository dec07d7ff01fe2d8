/* Communicators from an MPI_Comm, in libalnico-mpi, which the library does without. The rest of the
 * interface is <alnico/alnico.h>. */
#ifndef ALNICO_MPI_H
#define ALNICO_MPI_H

#include <alnico/alnico.h>
#include <mpi.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Creates a communicator of the ranks of `mpi_comm`. Collective. Everything not said here is as for
 * alnico_comm_create.
 *
 * mpi_comm: an intracommunicator. It is duplicated; the caller may free it afterwards. MPI must be
 * initialised, and may be finalised only after the communicator is destroyed.
 *
 * Threads: with MPI_THREAD_MULTIPLE a thread of the library progresses nonblocking operations.
 * Below that level the calls that wait or test progress them, and `stream` must be the inline one
 * (NULL).
 *
 * Error handler: MPICH raises errors of the library's messages on MPI_COMM_WORLD, such as a message
 * longer than its receive. With MPICH the library therefore puts a handler of its own in front of
 * that of MPI_COMM_WORLD while communicators over MPI exist. It passes all other errors to the
 * handler that was there. A handler that the program sets meanwhile gets all errors.
 *
 * Errors: as alnico_comm_create; ARGUMENT also for MPI_COMM_NULL and an intercommunicator. */
ALNICO_API alnico_status_t alnico_comm_create_mpi(MPI_Comm mpi_comm, alnico_device_t device,
                                                  void *stream, alnico_comm_t *out);

#ifdef __cplusplus
}
#endif

#endif
