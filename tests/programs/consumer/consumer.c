/* A user of the installed library: one rank, no MPI started. Prints the version. */
#include <alnico/alnico.h>
#include <stdio.h>
#include <string.h>

static int allgather(void *context, const void *mine, void *all, size_t bytes)
{
    (void)context;
    memcpy(all, mine, bytes);
    return 0;
}

int main(void)
{
    alnico_bootstrap_t bootstrap = {.rank = 0, .size = 1, .allgather = allgather};
    alnico_comm_t comm;
    float send = 3, recv = 0;
    if (alnico_comm_create(&bootstrap, ALNICO_DEVICE_CPU, NULL, &comm) != ALNICO_SUCCESS ||
        alnico_allreduce(&send, &recv, 1, ALNICO_FLOAT32, ALNICO_SUM, comm) != ALNICO_SUCCESS) {
        fprintf(stderr, "%s\n", alnico_error_detail());
        return 1;
    }
    alnico_comm_destroy(comm);
    printf("%s\n", alnico_version());
    return recv == 3 ? 0 : 1;
}
