/* MPI's start and end for the tests under mpirun. */
#ifndef ALNICO_TESTS_SUPPORT_WORLD_H
#define ALNICO_TESTS_SUPPORT_WORLD_H

#include "tests/support/ranks.h"

#include <alnico/mpi.h>

/* Initialises MPI at `level`; exits with 77, skipped, if MPI offers less. Gives all ranks rank 0's
 * seed, which it prints. */
uint64_t world_begin(int level);

/* A communicator over MPI_COMM_WORLD on the CPU; the test fails if it cannot be made. */
alnico_comm_t world_comm(void *stream);

int world_rank(void);
int world_size(void);

/* This rank's number among those of its host (collective). */
int world_local_rank(void);

/* Runs the function and says its name on rank 0. */
#define WORLD_RUN(function) world_run(function, #function)
void world_run(void (*function)(void), const char *name);

/* Finalises MPI and returns the exit status. */
int world_end(void);

#endif
