/* Halo exchange: ranks in a ring smooth a line of values that is divided among them. Before each
 * step they exchange border values with both neighbours in one group, which cannot deadlock
 * whatever the order of its sends and receives. */
#include <alnico/mpi.h>
#include <stdio.h>
#include <stdlib.h>

enum { CELLS = 1000, STEPS = 50 };

static void check(alnico_status_t status)
{
    if (status == ALNICO_SUCCESS)
        return;
    fprintf(stderr, "%s: %s\n", alnico_status_string(status), alnico_error_detail());
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
}

/* cells[0] and cells[CELLS + 1] are the neighbours'. On two ranks both neighbours are the same one:
 * its first message is what it sends to its left. */
static void exchange(double *cells, alnico_comm_t comm, alnico_request_t *request)
{
    int rank = alnico_comm_rank(comm), size = alnico_comm_size(comm);
    int left = (rank + size - 1) % size, right = (rank + 1) % size;
    check(alnico_group_begin(comm));
    check(alnico_send(&cells[1], 1, ALNICO_FLOAT64, left, comm));
    check(alnico_send(&cells[CELLS], 1, ALNICO_FLOAT64, right, comm));
    check(alnico_recv(&cells[CELLS + 1], 1, ALNICO_FLOAT64, right, comm));
    check(alnico_recv(&cells[0], 1, ALNICO_FLOAT64, left, comm));
    check(alnico_group_end(comm, request));
}

static void smooth(const double *from, double *to, int first, int last)
{
    for (int i = first; i <= last; i++)
        to[i] = (from[i - 1] + 2 * from[i] + from[i + 1]) / 4;
}

/* The inner cells are computed while the borders are on their way. */
static void step(double *from, double *to, alnico_comm_t comm)
{
    alnico_request_t request;
    exchange(from, comm, &request);
    smooth(from, to, 2, CELLS - 1);
    check(alnico_wait(&request));
    smooth(from, to, 1, 1);
    smooth(from, to, CELLS, CELLS);
}

int main(int argc, char **argv)
{
    static double cells[2][CELLS + 2];
    double sum = 0;
    alnico_comm_t comm;
    MPI_Init(&argc, &argv);
    check(alnico_comm_create_mpi(MPI_COMM_WORLD, ALNICO_DEVICE_CPU, NULL, &comm));
    if (alnico_comm_rank(comm) == 0)
        cells[0][1] = 1024; /* at the border, so that a part goes to the other ranks */
    for (int i = 0; i < STEPS; i++)
        step(cells[i % 2], cells[1 - i % 2], comm);
    for (int i = 1; i <= CELLS; i++)
        sum += cells[STEPS % 2][i];
    printf("rank %d: %g\n", alnico_comm_rank(comm), sum);
    check(alnico_allreduce(ALNICO_IN_PLACE, &sum, 1, ALNICO_FLOAT64, ALNICO_SUM, comm));
    alnico_comm_destroy(comm);
    MPI_Finalize();
    return sum > 1023.999 && sum < 1024.001 ? EXIT_SUCCESS : EXIT_FAILURE;
}
