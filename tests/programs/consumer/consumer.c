/* A user of the installed library, in C and C++: one rank, by a callback or from MPI. Prints the version. */
#include <alnico/alnico.h>
#include <stdio.h>
#include <string.h>
#ifdef WITH_MPI
#include <alnico/mpi.h>
#endif

/* The library has functions of these names, too, which are no business of its users. */
int log_write(void)
{
    return 0;
}

int pool_init(void)
{
    return 0;
}

/* It has them in its part for MPI, too. */
int error_set(void)
{
    return 0;
}

#ifdef WITH_MPI
static alnico_status_t create(alnico_comm_t *out)
{
    return alnico_comm_create_mpi(MPI_COMM_SELF, ALNICO_DEVICE_CPU, NULL, out);
}
#else
static int allgather(void *context, const void *mine, void *all, size_t bytes)
{
    (void)context;
    memcpy(all, mine, bytes);
    return 0;
}

static alnico_status_t create(alnico_comm_t *out)
{
    alnico_bootstrap_t bootstrap;
    memset(&bootstrap, 0, sizeof bootstrap);
    bootstrap.size = 1;
    bootstrap.allgather = allgather;
    return alnico_comm_create(&bootstrap, ALNICO_DEVICE_CPU, NULL, out);
}
#endif

int main(void)
{
    alnico_comm_t comm;
    float send = 3, recv = 0;
#ifdef WITH_MPI
    MPI_Init(NULL, NULL);
#endif
    if (create(&comm) != ALNICO_SUCCESS ||
        alnico_allreduce(&send, &recv, 1, ALNICO_FLOAT32, ALNICO_SUM, comm) != ALNICO_SUCCESS) {
        fprintf(stderr, "%s\n", alnico_error_detail());
        return 1;
    }
    alnico_comm_destroy(comm);
#ifdef WITH_MPI
    MPI_Finalize();
#endif
    printf("%s\n", alnico_version());
    return recv == 3 ? log_write() + pool_init() + error_set() : 1;
}
