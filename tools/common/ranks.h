/* All ranks of a program: those that mpirun, srun, torchrun or a user's variables started together, or
 * this process alone. They meet without MPI; exchanges between them go over a communicator on the CPU.
 * Errors end the program. All calls are collective, and of the main thread. */
#ifndef ALNICO_TOOLS_COMMON_RANKS_H
#define ALNICO_TOOLS_COMMON_RANKS_H

#include <alnico/alnico.h>

#include <stdint.h>

void program_ranks_open(void);
void program_ranks_close(void);

/* 0 and 1 before program_ranks_open. */
int program_rank(void);
int program_size(void);

void program_barrier(void);

/* `bytes` from `mine` of every rank into `all`, in rank order. */
void program_gather(const void *mine, void *all, size_t bytes);

/* That rank's bytes become every rank's. */
void program_broadcast(void *data, size_t bytes, int root);

/* Each value becomes the least, or the greatest, of all ranks'. */
void program_least(int *values, int count);
void program_greatest(int *values, int count);
void program_slowest(double *seconds, int count); /* the greatest, too */

/* Of all ranks. */
uint64_t program_sum(uint64_t value);

/* This rank's number among those of its host, and how many these are. */
void program_host(int *rank, int *size);

/* Another communicator of all ranks. */
alnico_status_t program_comm(alnico_device_t device, void *stream, alnico_comm_t *out);

#endif
