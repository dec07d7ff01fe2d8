/* Times one allreduce of float32 at each size in SimGrid's simulated time, on MPI's ranks, and
 * checks it. Rank 0 prints "bytes microseconds", the time from a barrier until the last rank has
 * its result.
 *
 * Usage: ALNICO_ALLREDUCE=ALGORITHM smpirun ... allreduce BYTES... */
#include <alnico/mpi.h>

#include <stdio.h>
#include <stdlib.h>

static int fail(const char *what)
{
    fprintf(stderr, "allreduce: %s: %s\n", what, alnico_error_detail());
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
    return EXIT_FAILURE;
}

/* The time on the slowest rank in microseconds; negative if a sum is wrong on any. */
static double measure(alnico_comm_t comm, float *values, size_t count)
{
    int rank = alnico_comm_rank(comm), size = alnico_comm_size(comm);
    for (size_t i = 0; i < count; i++)
        values[i] = (float)((i + (size_t)rank) % 100);
    float expected = 0;
    for (int r = 0; r < size; r++)
        expected += (float)((count - 1 + (size_t)r) % 100);
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = MPI_Wtime(), first, last;
    if (alnico_allreduce(ALNICO_IN_PLACE, values, count, ALNICO_FLOAT32, ALNICO_SUM, comm) !=
        ALNICO_SUCCESS)
        return fail("alnico_allreduce");
    double end = values[count - 1] == expected ? MPI_Wtime() : 1e9;
    MPI_Allreduce(&begin, &first, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    MPI_Allreduce(&end, &last, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return last < 1e9 ? (last - first) * 1e6 : -1;
}

int main(int argc, char **argv)
{
    alnico_comm_t comm;
    int wrong = 0;
    MPI_Init(&argc, &argv);
    if (alnico_comm_create_mpi(MPI_COMM_WORLD, ALNICO_DEVICE_CPU, NULL, &comm) != ALNICO_SUCCESS)
        return fail("alnico_comm_create_mpi");
    for (int i = 1; i < argc; i++) {
        size_t bytes = strtoul(argv[i], NULL, 10), count = bytes / sizeof(float);
        float *values = malloc(bytes + 1);
        if (!values || !count)
            return fail("expected sizes from 4");
        double time_us = measure(comm, values, count);
        if (alnico_comm_rank(comm) == 0)
            printf("%zu %.3f\n", bytes, time_us);
        wrong |= time_us < 0;
        free(values);
    }
    alnico_comm_destroy(comm);
    MPI_Finalize();
    return wrong;
}
