/* Rank 0's environment decides for all: its algorithm and deadline hold, others' are not looked at,
 * and a wrong one of its own is an error on every rank. */
#include "comm/communicator/comm.h"
#include "tests/support/world.h"

#include <stdlib.h>
#include <string.h>

static int rank_from_launcher(void)
{
    static const char *const names[] = {"PMI_RANK", "PMIX_RANK", "OMPI_COMM_WORLD_RANK"};
    for (int i = 0; i < 3; i++)
        if (getenv(names[i]))
            return atoi(getenv(names[i]));
    return -1;
}

/* The environment is read once in a process, so one run shows one set of settings: the first
 * argument. */
int main(int argc, char **argv)
{
    bool wrong = argc > 1 && strcmp(argv[1], "wrong") == 0;
    int rank = rank_from_launcher();
    if (rank < 0)
        return 77;
    bool over_mpi = argc > 1 && strcmp(argv[1], "mpi") == 0;
    bool bogus = wrong == (rank == 0);
    if (over_mpi)
        setenv("ALNICO_TRANSPORT", rank == 0 ? "mpi" : "bogus", 1);
    setenv("ALNICO_ALLREDUCE", bogus ? "bogus" : "ring", 1);
    setenv("ALNICO_BROADCAST", "nccl", 1); /* not meant for a CPU */
    setenv("ALNICO_TIMEOUT", rank == 0 ? "7" : "-3", 1);
    world_begin(MPI_THREAD_SINGLE);
    alnico_comm_t comm;
    alnico_status_t status = alnico_comm_create_mpi(MPI_COMM_WORLD, ALNICO_DEVICE_CPU, NULL, &comm);
    if (wrong) {
        REQUIRE_STATUS(status, ALNICO_ERROR_ARGUMENT);
        ranks_require_detail("ALNICO_ALLREDUCE is 'bogus' on rank 0");
        REQUIRE(comm == NULL);
        return world_end();
    }
    REQUIRE_STATUS(status, ALNICO_SUCCESS);
    REQUIRE(comm->forced[ALNICO_ALLREDUCE].algorithm == &algorithm_ring);
    REQUIRE(comm->forced[ALNICO_BROADCAST].algorithm == NULL);
    REQUIRE(comm->family->settings.timeout == 7);
    bool shared = !over_mpi && world_size() > 1; /* the tests' ranks are on one host */
    REQUIRE(strcmp(comm->transport->ops->name, shared ? "shm" : "mpi") == 0);
    float value = 1, result;
    REQUIRE_STATUS(alnico_allreduce(&value, &result, 1, ALNICO_FLOAT32, ALNICO_SUM, comm),
                   ALNICO_SUCCESS);
    REQUIRE(result == (float)world_size());
    alnico_comm_destroy(comm);
    return world_end();
}
