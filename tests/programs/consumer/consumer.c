/* A user of the installed library, in C and C++: one rank, no MPI started. Prints the version. */
#include <alnico/alnico.h>
#include <stdio.h>
#include <string.h>

/* The library has functions of these names, too, which are no business of its users. */
int log_write(void)
{
    return 0;
}

int pool_init(void)
{
    return 0;
}

static int allgather(void *context, const void *mine, void *all, size_t bytes)
{
    (void)context;
    memcpy(all, mine, bytes);
    return 0;
}

int main(void)
{
    alnico_bootstrap_t bootstrap;
    alnico_comm_t comm;
    float send = 3, recv = 0;
    memset(&bootstrap, 0, sizeof bootstrap);
    bootstrap.size = 1;
    bootstrap.allgather = allgather;
    if (alnico_comm_create(&bootstrap, ALNICO_DEVICE_CPU, NULL, &comm) != ALNICO_SUCCESS ||
        alnico_allreduce(&send, &recv, 1, ALNICO_FLOAT32, ALNICO_SUM, comm) != ALNICO_SUCCESS) {
        fprintf(stderr, "%s\n", alnico_error_detail());
        return 1;
    }
    alnico_comm_destroy(comm);
    printf("%s\n", alnico_version());
    return recv == 3 ? log_write() + pool_init() : 1;
}
