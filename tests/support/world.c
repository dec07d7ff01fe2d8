/* MPI around a test. A failing REQUIRE ends its process, and so, by mpirun, the others. */
#include "tests/support/world.h"

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

uint64_t world_begin(int level)
{
    int provided;
    uint64_t seed = (uint64_t)time(NULL);
    MPI_Init_thread(NULL, NULL, level, &provided);
    if (provided < level) {
        MPI_Finalize();
        exit(77);
    }
    MPI_Bcast(&seed, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (world_rank() == 0)
        printf("%d ranks, seed %llu\n", world_size(), (unsigned long long)seed);
    return seed;
}

alnico_comm_t world_comm(void *stream)
{
    alnico_comm_t comm = NULL;
    REQUIRE_STATUS(alnico_comm_create_mpi(MPI_COMM_WORLD, ALNICO_DEVICE_CPU, stream, &comm),
                   ALNICO_SUCCESS);
    return comm;
}

int world_rank(void)
{
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

int world_local_rank(void)
{
    MPI_Comm host;
    int rank;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
    MPI_Comm_rank(host, &rank);
    MPI_Comm_free(&host);
    return rank;
}

int world_size(void)
{
    int size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
}

void world_run(void (*function)(void), const char *name)
{
    double start = ranks_seconds();
    function();
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_rank() == 0)
        printf("%-50s ok %6.2f s\n", name, ranks_seconds() - start);
}

int world_end(void)
{
    MPI_Finalize();
    return 0;
}
