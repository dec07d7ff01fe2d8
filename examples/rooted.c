/* Rooted operations: one rank broadcasts the settings, scatters unequal work, and gathers and
 * reduces the results, once weighted by each rank's share. Run it under mpirun. */
#include <alnico/mpi.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { ROOT = 0, RANKS_MOST = 64 };

static void check(alnico_status_t status)
{
    if (status == ALNICO_SUCCESS)
        return;
    fprintf(stderr, "%s: %s\n", alnico_status_string(status), alnico_error_detail());
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
}

/* Rank r gets r + 1 items; only the root passes counts. */
static void work(alnico_comm_t comm, double factor, bool *right)
{
    size_t counts[RANKS_MOST], rank = (size_t)alnico_comm_rank(comm), own = rank + 1, all = 0;
    int size = alnico_comm_size(comm);
    double items[RANKS_MOST * RANKS_MOST], results[RANKS_MOST * RANKS_MOST], mine[RANKS_MOST];
    double sum = 0, total = 0;
    for (int r = 0; r < size; r++) {
        counts[r] = (size_t)r + 1;
        for (size_t i = 0; i < counts[r]; i++)
            items[all++] = 1;
    }
    check(alnico_scatterv(items, counts, NULL, mine, own, ALNICO_FLOAT64, ROOT, comm));
    for (size_t i = 0; i < own; i++)
        sum += mine[i] *= factor;
    check(alnico_gatherv(mine, own, results, counts, NULL, ALNICO_FLOAT64, ROOT, comm));
    check(alnico_reduce(&sum, &total, 1, ALNICO_FLOAT64, ALNICO_SUM, ROOT, comm));
    if (rank != ROOT)
        return;
    printf("%zu results, in all %g\n", all, total);
    *right = total == factor * (double)all && results[all - 1] == factor;
}

/* Rank r weighs r + 1. */
static double weighted_mean(alnico_comm_t comm, double mine)
{
    int size = alnico_comm_size(comm);
    double mean = 0, share = 2.0 * (alnico_comm_rank(comm) + 1) / (size * (size + 1.0));
    alnico_op_t weighted;
    check(alnico_op_create_premultiplied_sum(comm, &share, ALNICO_FLOAT64, ALNICO_DEVICE_CPU,
                                             &weighted));
    check(alnico_reduce(&mine, &mean, 1, ALNICO_FLOAT64, weighted, ROOT, comm));
    check(alnico_op_destroy(comm, weighted));
    return mean;
}

int main(int argc, char **argv)
{
    bool right = true;
    alnico_comm_t comm;
    MPI_Init(&argc, &argv);
    check(alnico_comm_create_mpi(MPI_COMM_WORLD, ALNICO_DEVICE_CPU, NULL, &comm));
    double factor = alnico_comm_rank(comm) == ROOT ? 2.5 : 0;
    check(alnico_broadcast(&factor, 1, ALNICO_FLOAT64, ROOT, comm));
    double copy = 0;
    check(alnico_broadcast_to(&factor, &copy, 1, ALNICO_FLOAT64, ROOT, comm));
    right &= copy == factor;
    double mean = weighted_mean(comm, factor);
    right &= alnico_comm_rank(comm) != ROOT || fabs(mean - factor) < 1e-9;
    if (alnico_comm_size(comm) <= RANKS_MOST)
        work(comm, factor, &right);
    check(alnico_barrier(comm));
    alnico_comm_destroy(comm);
    MPI_Finalize();
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
