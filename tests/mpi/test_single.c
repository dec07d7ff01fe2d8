/* Below MPI_THREAD_MULTIPLE: the inline stream only, an engine without a thread that whoever waits
 * pumps, and progress of all communicators wherever one of them waits. */
#include "tests/support/cases.h"
#include "tests/support/world.h"

#include <string.h>

static uint64_t seed;

static void test_cases(void)
{
    static const size_t counts[] = {33};
    alnico_comm_t comm = world_comm(NULL);
    cases_run_algorithms(comm, counts, 1, seed);
    struct allreduce_case large = {
        .count = 1000003, .type = ALNICO_FLOAT32, .op = ALNICO_SUM, .how = HOW_NONBLOCKING};
    cases_run(comm, &large, seed);
    alnico_comm_destroy(comm);
}

static void test_no_thread_is_started(void)
{
    int before = ranks_threads();
    alnico_comm_t comm = world_comm(NULL);
    float value = 1, sum = 0;
    alnico_request_t request;
    REQUIRE_STATUS(alnico_iallreduce(&value, &sum, 1, ALNICO_FLOAT32, ALNICO_SUM, comm, &request),
                   ALNICO_SUCCESS);
    REQUIRE(ranks_threads() == before);
    bool done = false;
    while (!done)
        REQUIRE_STATUS(alnico_test(&request, &done), ALNICO_SUCCESS);
    REQUIRE(sum == (float)world_size());
    alnico_comm_destroy(comm);
}

static void test_a_real_stream_is_refused(void)
{
    alnico_stream_t stream;
    alnico_comm_t comm = world_comm(NULL), other = comm;
    REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_comm_create_mpi(MPI_COMM_WORLD, ALNICO_DEVICE_CPU, stream, &other),
                   ALNICO_ERROR_UNSUPPORTED);
    ranks_require_detail("MPI_THREAD_MULTIPLE");
    REQUIRE(other == NULL);
    REQUIRE_STATUS(alnico_comm_duplicate(comm, stream, &other), ALNICO_ERROR_UNSUPPORTED);
    ranks_require_detail("MPI_THREAD_MULTIPLE");
    alnico_comm_destroy(comm);
    alnico_stream_destroy(stream);
}

/* Rank 0 waits for `b` first and the others for `a`: each wait has to move the other communicator
 * too. */
static void test_waiting_moves_other_communicators(void)
{
    enum { COUNT = 200000 };
    static float in[COUNT], first[COUNT], second[COUNT];
    alnico_comm_t a = world_comm(NULL), b;
    REQUIRE_STATUS(alnico_comm_duplicate(a, NULL, &b), ALNICO_SUCCESS);
    for (int i = 0; i < COUNT; i++)
        in[i] = 1;
    alnico_request_t request;
    REQUIRE_STATUS(alnico_iallreduce(in, first, COUNT, ALNICO_FLOAT32, ALNICO_SUM, a, &request),
                   ALNICO_SUCCESS);
    if (world_rank())
        REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_allreduce(in, second, COUNT, ALNICO_FLOAT32, ALNICO_SUM, b),
                   ALNICO_SUCCESS);
    if (world_rank() == 0)
        REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
    for (int i = 0; i < COUNT; i++)
        REQUIRE(first[i] == (float)world_size() && second[i] == first[i]);
    alnico_comm_destroy(b);
    alnico_comm_destroy(a);
}

/* Making a communicator moves what is in flight too. */
static void test_splitting_moves_what_is_in_flight(void)
{
    enum { COUNT = 200000 };
    static int32_t in[COUNT], out[COUNT];
    alnico_comm_t comm = world_comm(NULL), part;
    alnico_request_t request;
    REQUIRE_STATUS(alnico_iallreduce(in, out, COUNT, ALNICO_INT32, ALNICO_SUM, comm, &request),
                   ALNICO_SUCCESS);
    if (world_rank() == 0)
        REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_comm_split(comm, 0, 0, NULL, &part), ALNICO_SUCCESS);
    if (world_rank())
        REQUIRE_STATUS(alnico_wait(&request), ALNICO_SUCCESS);
    alnico_comm_destroy(part);
    alnico_comm_destroy(comm);
}

int main(void)
{
    seed = world_begin(MPI_THREAD_SINGLE);
    int level;
    MPI_Query_thread(&level);
    REQUIRE(level < MPI_THREAD_MULTIPLE);
    WORLD_RUN(test_cases);
    WORLD_RUN(test_no_thread_is_started);
    WORLD_RUN(test_a_real_stream_is_refused);
    WORLD_RUN(test_waiting_moves_other_communicators);
    WORLD_RUN(test_splitting_moves_what_is_in_flight);
    return world_end();
}
