/* Overlap: starts an allreduce, computes, and waits. With MPI_THREAD_MULTIPLE a thread of the
 * library progresses the allreduce meanwhile. Run it under mpirun; an argument sets the number of
 * elements. */
#include <alnico/mpi.h>
#include <stdio.h>
#include <stdlib.h>

static void check(alnico_status_t status)
{
    if (status == ALNICO_SUCCESS)
        return;
    fprintf(stderr, "%s: %s\n", alnico_status_string(status), alnico_error_detail());
    MPI_Abort(MPI_COMM_WORLD, EXIT_FAILURE);
}

/* Work that does not depend on the communication. */
static double compute(size_t steps)
{
    double x = 1;
    for (size_t i = 0; i < steps; i++)
        x = x * 0.999 + 0.001;
    return x;
}

int main(int argc, char **argv)
{
    size_t count = argc > 1 ? strtoull(argv[1], NULL, 10) : 1 << 20;
    int level;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    alnico_comm_t comm;
    check(alnico_comm_create_mpi(MPI_COMM_WORLD, ALNICO_DEVICE_CPU, NULL, &comm));
    float *gradient = malloc(count * sizeof *gradient);
    for (size_t i = 0; gradient && i < count; i++)
        gradient[i] = 1;

    alnico_request_t request;
    check(alnico_iallreduce(ALNICO_IN_PLACE, gradient, count, ALNICO_FLOAT32, ALNICO_SUM, comm,
                            &request));
    double meanwhile = compute(count);
    check(alnico_wait(&request));

    bool right = gradient[0] == alnico_comm_size(comm) && gradient[count - 1] == gradient[0];
    printf("rank %d: sum %g, computed %g meanwhile\n", alnico_comm_rank(comm), gradient[0],
           meanwhile);
    free(gradient);
    alnico_comm_destroy(comm);
    MPI_Finalize();
    return right ? EXIT_SUCCESS : EXIT_FAILURE;
}
