/* Ranks without MPI: those that a launcher started, and those that have the same id. Run it by any of
 * mpirun, srun, torchrun --no-python or, for two ranks by hand,
 *
 *     ALNICO_RANK=0 ALNICO_SIZE=2 ALNICO_ADDRESS=127.0.0.1:4000 meet &
 *     ALNICO_RANK=1 ALNICO_SIZE=2 ALNICO_ADDRESS=127.0.0.1:4000 meet */
#include <alnico/alnico.h>
#include <stdio.h>
#include <stdlib.h>

static void check(alnico_status_t status)
{
    if (status == ALNICO_SUCCESS)
        return;
    fprintf(stderr, "%s: %s\n", alnico_status_string(status), alnico_error_detail());
    exit(EXIT_FAILURE);
}

int main(void)
{
    alnico_comm_t world, reversed;
    check(alnico_comm_create_env(ALNICO_DEVICE_CPU, NULL, &world));
    int rank = alnico_comm_rank(world), size = alnico_comm_size(world), sum = rank;

    /* An id goes by whatever way there is; here a broadcast. */
    alnico_id_t id = {{0}};
    if (rank == 0)
        check(alnico_id_create(&id));
    check(alnico_broadcast(&id, sizeof id, ALNICO_UINT8, 0, world));
    check(alnico_comm_create_id(&id, size - 1 - rank, size, ALNICO_DEVICE_CPU, NULL, &reversed));

    check(alnico_allreduce(ALNICO_IN_PLACE, &sum, 1, ALNICO_INT32, ALNICO_SUM, reversed));
    printf("rank %d of %d, and %d backwards: sum %d\n", rank, size, alnico_comm_rank(reversed),
           sum);
    alnico_comm_destroy(reversed);
    alnico_comm_destroy(world);
    return 0;
}
