/* Averages a gradient over the ranks of mpirun, srun or torchrun. The README shows this program. */
#include <alnico/alnico.h>
#include <stdio.h>

int main(void)
{
    alnico_comm_t comm;
    alnico_comm_create_env(ALNICO_DEVICE_CPU, NULL, &comm);
    float gradient[3] = {1, 2, alnico_comm_rank(comm)};
    alnico_allreduce(ALNICO_IN_PLACE, gradient, 3, ALNICO_FLOAT32, ALNICO_AVERAGE, comm);
    printf("%g %g %g\n", gradient[0], gradient[1], gradient[2]);
    alnico_comm_destroy(comm);
}
