/* Sharded optimizer state: a reduce-scatter gives each rank the sum of its block of gradients, the
 * rank updates its weights, and an allgather in place distributes them. Then an alltoall
 * transposes a matrix. Run it under mpirun. */
#include <alnico/mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { COUNT = 1000, RANKS_MOST = 64 }; /* COUNT: weights of each rank */

static void check(alnico_status_t status)
{
    if (status == ALNICO_SUCCESS)
        return;
    fprintf(stderr, "%s: %s\n", alnico_status_string(status), alnico_error_detail());
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
}

/* In place: the own block of `weights` is up to date already. */
static void step(float *weights, const float *gradients, alnico_comm_t comm)
{
    static float average[COUNT];
    float *own = weights + (size_t)alnico_comm_rank(comm) * COUNT;
    check(alnico_reduce_scatter(gradients, average, COUNT, ALNICO_FLOAT32, ALNICO_AVERAGE, comm));
    for (int i = 0; i < COUNT; i++)
        own[i] -= 0.5f * average[i];
    check(alnico_allgather(ALNICO_IN_PLACE, weights, COUNT, ALNICO_FLOAT32, comm));
}

/* Rank r has row r of a square matrix, and gets column r. */
static bool transpose(alnico_comm_t comm)
{
    int row[RANKS_MOST], column[RANKS_MOST], rank = alnico_comm_rank(comm), right = true;
    for (int i = 0; i < alnico_comm_size(comm); i++)
        row[i] = 100 * rank + i;
    check(alnico_alltoall(row, column, 1, ALNICO_INT32, comm));
    for (int i = 0; i < alnico_comm_size(comm); i++)
        right &= column[i] == 100 * i + rank;
    return right;
}

int main(int argc, char **argv)
{
    alnico_comm_t comm;
    MPI_Init(&argc, &argv);
    check(alnico_comm_create_mpi(MPI_COMM_WORLD, ALNICO_DEVICE_CPU, NULL, &comm));
    size_t count = (size_t)alnico_comm_size(comm) * COUNT;
    float *weights = malloc(count * sizeof *weights), *gradients = malloc(count * sizeof *weights);
    bool right = weights && gradients && alnico_comm_size(comm) <= RANKS_MOST;
    for (size_t i = 0; right && i < count; i++) {
        weights[i] = 3;
        gradients[i] = 2;
    }
    if (right) {
        step(weights, gradients, comm);
        right = transpose(comm) && weights[0] == 2 && weights[count - 1] == 2;
        printf("rank %d: weights %g to %g\n", alnico_comm_rank(comm), weights[0],
               weights[count - 1]);
    }
    free(weights);
    free(gradients);
    alnico_comm_destroy(comm);
    MPI_Finalize();
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
