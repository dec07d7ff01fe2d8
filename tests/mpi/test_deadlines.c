/* Calls under MPI that the other rank does not come to end at the deadline, at most a tenth of it and
 * a tenth of a second later. tests/unit/communicator/test_deadlines.c has what needs no MPI. */
#include "comm/communicator/comm.h"

#include "tests/support/world.h"

#include <stdlib.h>

enum { DEADLINE = 1, COUNT = 1 << 16 };

static alnico_status_t create(alnico_comm_t comm)
{
    alnico_comm_t out;
    (void)comm;
    return alnico_comm_create_mpi(MPI_COMM_WORLD, ALNICO_DEVICE_CPU, NULL, &out);
}

static alnico_status_t duplicate(alnico_comm_t comm)
{
    alnico_comm_t out;
    return alnico_comm_duplicate(comm, NULL, &out);
}

static alnico_status_t split(alnico_comm_t comm)
{
    alnico_comm_t out;
    return alnico_comm_split(comm, 0, -comm->rank, NULL, &out);
}

static alnico_status_t sum(alnico_comm_t comm)
{
    static float values[COUNT], sums[COUNT];
    return alnico_allreduce(values, sums, COUNT, ALNICO_FLOAT32, ALNICO_SUM, comm);
}

static alnico_status_t sum_and_wait(alnico_comm_t comm)
{
    static float value, result;
    alnico_request_t request;
    alnico_status_t status =
        alnico_iallreduce(&value, &result, 1, ALNICO_FLOAT32, ALNICO_SUM, comm, &request);
    return status == ALNICO_SUCCESS ? alnico_wait(&request) : status;
}

static alnico_status_t receive(alnico_comm_t comm)
{
    float value;
    return alnico_recv(&value, 1, ALNICO_FLOAT32, 1 - comm->rank, comm);
}

/* Rank 1 comes when rank 0 has given up, and then waits in vain itself, learns of it, or finds what
 * rank 0 sent. */
static bool is_in_time(alnico_status_t (*call)(alnico_comm_t))
{
    alnico_comm_t comm = world_comm(NULL);
    MPI_Barrier(MPI_COMM_WORLD);
    if (world_rank() == 1)
        MPI_Barrier(MPI_COMM_WORLD);
    double start = ranks_seconds();
    alnico_status_t status = call(comm);
    double waited = ranks_seconds() - start;
    int late = waited >= 1.1 * DEADLINE + 0.1, any_late;
    if (world_rank() == 0) {
        REQUIRE_STATUS(status, ALNICO_ERROR_TIMEOUT);
        REQUIRE(waited >= DEADLINE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Allreduce(&late, &any_late, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    alnico_comm_destroy(comm);
    return !any_late;
}

enum { CHANCES = 3 }; /* a busy machine may hold a rank up */

static void require_in_time(alnico_status_t (*call)(alnico_comm_t))
{
    bool in_time = false;
    for (int i = 0; i < CHANCES && !in_time; i++)
        in_time = is_in_time(call);
    REQUIRE(in_time);
}

static void test_calls_end_at_the_deadline(void)
{
    alnico_status_t (*const calls[])(alnico_comm_t) = {create, duplicate,    split,
                                                       sum,    sum_and_wait, receive};
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        require_in_time(calls[i]);
}

int main(void)
{
    setenv("ALNICO_TIMEOUT", "1", 1); /* before the library reads its environment */
    world_begin(MPI_THREAD_MULTIPLE);
    WORLD_RUN(test_calls_end_at_the_deadline);
    return world_end();
}
