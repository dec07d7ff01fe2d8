/* After an error the ranks that live go on: here the last one gives up, and all meet again. Had it died,
 * the others would meet without it. Run it by any launcher, or as examples/meet.c says by hand. */
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
    alnico_comm_t comm, next;
    check(alnico_comm_create_env(ALNICO_DEVICE_CPU, NULL, &comm));
    int rank = alnico_comm_rank(comm), size = alnico_comm_size(comm), sum = rank;
    if (rank == size - 1)
        check(alnico_comm_abort(comm));
    alnico_status_t status =
        alnico_allreduce(ALNICO_IN_PLACE, &sum, 1, ALNICO_INT32, ALNICO_SUM, comm);
    printf("rank %d of %d: %s\n", rank, size, alnico_status_string(status));

    check(alnico_comm_shrink(comm, NULL, &next));
    alnico_comm_destroy(comm);
    sum = rank;
    check(alnico_allreduce(ALNICO_IN_PLACE, &sum, 1, ALNICO_INT32, ALNICO_SUM, next));
    printf("rank %d of %d: sum %d\n", alnico_comm_rank(next), alnico_comm_size(next), sum);
    alnico_comm_destroy(next);
    return 0;
}
