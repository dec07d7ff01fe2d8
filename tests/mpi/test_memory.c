/* Memory that runs out while communicators are made from MPI's, duplicated, split and used; over
 * MPI's messages too, where ALNICO_TRANSPORT says so. */
#include "tests/support/scarcity.h"
#include "tests/support/world.h"

#include <stdlib.h>

static int allgather(void *context, const void *mine, void *all, size_t bytes)
{
    (void)context;
    return MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
}

static alnico_status_t create(struct rank *rank, alnico_comm_t base, void **out)
{
    (void)rank, (void)base;
    return alnico_comm_create_mpi(MPI_COMM_WORLD, ALNICO_DEVICE_CPU, NULL, (alnico_comm_t *)out);
}

static alnico_comm_t base_comm(struct rank *rank)
{
    (void)rank;
    return world_comm(NULL);
}

static void test_memory_runs_out(void)
{
    struct rank rank = {world_rank(), world_size(), {0}, NULL};
    rank.bootstrap = (alnico_bootstrap_t){rank.rank, rank.size, allgather, NULL};
    const struct scarce_call creation = {.name = "alnico_comm_create_mpi",
                                         .named = "alnico_comm_create_mpi",
                                         .collective = true,
                                         .alike = true,
                                         .call = create,
                                         .undo = scarce_destroy};
    scarce_try(&rank, &creation, 1);
    scarce_try(&rank, &creation, SCARCE_ALL);
    scarce_try_calls(&rank, base_comm, 1);
}

int main(void)
{
    setenv("ALNICO_TIMEOUT", "20", 1);
    world_begin(MPI_THREAD_MULTIPLE);
    WORLD_RUN(test_memory_runs_out);
    return world_end();
}
