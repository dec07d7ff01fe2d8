/* A made-up CUDA-aware MPI: the real one behind calls that take addresses of a made-up device and
 * say so, or do not. Who decides: MPI on every rank, or ALNICO_CUDA_AWARE of rank 0. */
#include "comm/api/create.h"
#include "comm/backends/host/host.h"

#include "base/status.h"
#include "tests/support/far.h"
#include "tests/support/world.h"

#include <stdlib.h>

static bool says_so;
static int seen; /* buffers of the device that MPI got */

/* Open MPI declares it in a header of its own, MPICH in mpi.h. */
int MPIX_Query_cuda_support(void);
int MPIX_Query_cuda_support(void)
{
    return says_so;
}

int MPI_Isend(const void *buffer, int count, MPI_Datatype type, int to, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    __atomic_fetch_add(&seen, buffer != host_of(buffer), __ATOMIC_RELAXED);
    return PMPI_Isend(host_of(buffer), count, type, to, tag, comm, request);
}

int MPI_Irecv(void *buffer, int count, MPI_Datatype type, int from, int tag, MPI_Comm comm,
              MPI_Request *request)
{
    __atomic_fetch_add(&seen, buffer != host_of(buffer), __ATOMIC_RELAXED);
    return PMPI_Irecv(host_of(buffer), count, type, from, tag, comm, request);
}

static alnico_comm_t make(alnico_stream_t stream, bool says, enum aware setting)
{
    const MPI_Comm world = MPI_COMM_WORLD;
    struct creation made = {.device = far_device(), .stream = stream, .who = "test"};
    alnico_comm_t comm = NULL;
    REQUIRE_STATUS(transport_mpi_create(&world, 60, &made.transport), ALNICO_SUCCESS);
    REQUIRE_STATUS(comm_build(&made, &comm), ALNICO_SUCCESS);
    says_so = says;
    comm->family->settings.aware = setting;
    far_be_aware(comm);
    return comm;
}

/* Sums, and what each rank has of each. */
static void call_all(alnico_comm_t comm, alnico_stream_t stream)
{
    enum { COUNT = 100003 };
    const int rank = world_rank(), size = world_size();
    double *x = calloc((size_t)(2 * size + 1) * COUNT, sizeof *x);
    REQUIRE(x != NULL);
    double *blocks = x + COUNT, *moved = blocks + (size_t)size * COUNT;
    for (int i = 0; i < COUNT; i++)
        x[i] = i + rank;
    for (int b = 0; b < size; b++)
        for (int i = 0; i < COUNT; i++)
            blocks[b * COUNT + i] = 100 * rank + b;
    REQUIRE(far_force(comm, ALNICO_ALLREDUCE, "aware_rabenseifner"));
    REQUIRE(far_force(comm, ALNICO_ALLTOALL, "aware_pairwise"));
    REQUIRE_STATUS(
        alnico_allreduce(ALNICO_IN_PLACE, far_of(x), COUNT, ALNICO_FLOAT64, ALNICO_AVERAGE, comm),
        ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_alltoall(far_of(blocks), far_of(moved), COUNT, ALNICO_FLOAT64, comm),
                   ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_stream_synchronize(stream), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_synchronize(comm), ALNICO_SUCCESS);
    for (int i = 0; i < COUNT; i++) {
        const double error = x[i] - (i + (size - 1) / 2.);
        REQUIRE(error < 1e-9 * (i + 1) && -error < 1e-9 * (i + 1));
    }
    for (int b = 0; b < size; b++)
        for (int i = 0; i < COUNT; i++)
            REQUIRE(moved[b * COUNT + i] == 100 * b + rank);
    free(x);
}

static void test_mpi_gets_the_memory_of_the_device(void)
{
    alnico_stream_t stream;
    REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    alnico_comm_t comm = make(stream, true, AWARE_AUTO);
    REQUIRE(aware_arithmetic(comm) != NULL);
    const int before = __atomic_load_n(&seen, __ATOMIC_RELAXED);
    call_all(comm, stream);
    REQUIRE(__atomic_load_n(&seen, __ATOMIC_RELAXED) > before || world_size() == 1);
    alnico_comm_destroy(comm);
    alnico_stream_destroy(stream);
}

/* One rank's MPI is not aware, or rank 0's setting is different from what MPI says. */
static void test_all_ranks_or_none(void)
{
    const int last = world_size() - 1;
    const struct {
        bool here, there;
        enum aware setting;
        bool works;
    } cases[] = {{true, true, AWARE_AUTO, true},
                 {false, false, AWARE_AUTO, false},
                 {true, false, AWARE_AUTO, false},
                 {true, true, AWARE_NEVER, false},
                 {false, false, AWARE_ALWAYS, true}};
    alnico_stream_t stream;
    REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bool says = world_rank() == last ? cases[i].there : cases[i].here;
        alnico_comm_t comm = make(stream, says, cases[i].setting);
        REQUIRE((aware_arithmetic(comm) != NULL) == cases[i].works);
        alnico_comm_destroy(comm);
    }
    alnico_stream_destroy(stream);
}

int main(void)
{
    world_begin(MPI_THREAD_MULTIPLE);
    WORLD_RUN(test_mpi_gets_the_memory_of_the_device);
    WORLD_RUN(test_all_ranks_or_none);
    return world_end();
}
