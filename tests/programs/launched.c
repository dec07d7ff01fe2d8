/* A rank that meets the others by what its launcher says, twice, and reduces. Prints "rank R of N";
 * with an error its detail, and ends with 1. With --mpi after that MPI is initialised and used. */
#include <alnico/alnico.h>

#include <stdio.h>
#include <string.h>
#include <time.h>

#ifdef WITH_MPI
#include <mpi.h>

static void use_mpi(void)
{
    int sum = 1;
    MPI_Init(NULL, NULL);
    MPI_Allreduce(MPI_IN_PLACE, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    printf("MPI has %d ranks\n", sum);
    MPI_Finalize();
}
#else
static void use_mpi(void)
{
}
#endif

static int reduce_once(int *rank, int *size)
{
    alnico_comm_t comm;
    if (alnico_comm_create_env(ALNICO_DEVICE_CPU, NULL, &comm) != ALNICO_SUCCESS)
        return 1;
    *rank = alnico_comm_rank(comm);
    *size = alnico_comm_size(comm);
    int sum = *rank + 1;
    alnico_status_t status =
        alnico_allreduce(ALNICO_IN_PLACE, &sum, 1, ALNICO_INT32, ALNICO_SUM, comm);
    alnico_comm_destroy(comm);
    return status != ALNICO_SUCCESS || sum != *size * (*size + 1) / 2;
}

int main(int argc, char **argv)
{
    int rank = -1, size = -1;
    for (int i = 0; i < 2; i++)
        if (reduce_once(&rank, &size)) {
            fprintf(stderr, "failed: %s\n", alnico_error_detail());
            return 1;
        }
    if (rank > 0)
        nanosleep(&(struct timespec){.tv_nsec = 300000000},
                  NULL); /* rank 0 ends before the others */
    printf("rank %d of %d\n", rank, size);
    fflush(stdout);
    if (argc > 1 && strcmp(argv[1], "--mpi") == 0)
        use_mpi();
    return 0;
}
