/* What goes wrong over MPI: a rank that never comes, aborts, other sizes, bad MPI arguments. The
 * deadline is two seconds: who gives up then waits for longer than a busy machine holds up the
 * others, so that none is taken for the missing one. */
#include "comm/communicator/comm.h"

#include "tests/support/reference.h"
#include "tests/support/world.h"

#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

enum { DEADLINE = 2, LARGE = 1 << 16 };

static uint64_t seed;

static alnico_status_t sum(alnico_comm_t comm, size_t count)
{
    static double values[LARGE], sums[LARGE];
    return alnico_allreduce(values, sums, count, ALNICO_FLOAT64, ALNICO_SUM, comm);
}

/* Large ones are a rendezvous, which has the other side's memory in use. */
static const struct {
    const char *algorithm;
    size_t count;
} misses[] = {{"recursive_doubling", 4}, {"binomial", 4}, {"ring", LARGE}, {"rabenseifner", LARGE}};

enum { MISSES = sizeof misses / sizeof *misses };

static void require_miss(alnico_comm_t comm, alnico_status_t status, double start)
{
    char expected[64];
    REQUIRE_STATUS(status, ALNICO_ERROR_TIMEOUT);
    snprintf(expected, sizeof expected, "rank %d did not come within %d s", world_size() - 1,
             DEADLINE);
    ranks_require_detail(expected);
    ranks_require_detail("alnico_allreduce, operation 2 of communicator");
    REQUIRE(ranks_seconds() - start < 2 * DEADLINE);
    REQUIRE_STATUS(alnico_comm_status(comm), ALNICO_ERROR_TIMEOUT);
}

/* One on each communicator at the same time: `blocking` by a call that waits, the others not. */
static void miss(alnico_comm_t *comm, int blocking)
{
    static double values[LARGE], sums[MISSES][LARGE];
    alnico_request_t request[MISSES];
    double start = ranks_seconds();
    for (int i = 0; i < MISSES; i++)
        if (i != blocking)
            REQUIRE_STATUS(alnico_iallreduce(values, sums[i], misses[i].count, ALNICO_FLOAT64,
                                             ALNICO_SUM, comm[i], &request[i]),
                           ALNICO_SUCCESS);
    require_miss(comm[blocking], sum(comm[blocking], misses[blocking].count), start);
    for (int i = 0; i < MISSES; i++)
        if (i != blocking)
            require_miss(comm[i], alnico_request_synchronize(&request[i]), start);
}

static void test_a_missing_rank_is_named(void)
{
    alnico_comm_t comm[MISSES];
    for (int i = 0; i < MISSES; i++) {
        comm[i] = world_comm(NULL);
        REQUIRE_STATUS(alnico_comm_set_algorithm(comm[i], ALNICO_ALLREDUCE, misses[i].algorithm),
                       ALNICO_SUCCESS);
        REQUIRE_STATUS(sum(comm[i], 1), ALNICO_SUCCESS);
    }
    if (world_rank() != world_size() - 1)
        miss(comm, (int)(seed % MISSES));
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < MISSES; i++)
        alnico_comm_destroy(comm[i]);
}

/* ---- A rank that is stopped (SIGSTOP), anywhere. One that ends is MPI's: mpirun then ends all.
 * ---- */

static void stop_here(int number)
{
    (void)number;
    kill(getpid(), SIGSTOP);
}

static void stop_soon(void)
{
    struct itimerval soon = {
        .it_value = {0, 1 + (suseconds_t)(reference_random(seed++, 1, 2) % 9999)}};
    signal(SIGALRM, stop_here);
    setitimer(ITIMER_REAL, &soon, NULL);
}

/* An integer that all ranks share, 0 at first, without messages. */
static atomic_int *share(MPI_Win *window)
{
    atomic_int *shared;
    MPI_Aint bytes = world_rank() == 0 ? sizeof *shared : 0;
    int unit;
    MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &shared, window);
    MPI_Win_shared_query(*window, 0, &bytes, &unit, &shared);
    if (world_rank() == 0)
        atomic_store(shared, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    return shared;
}

/* Over MPI alone others may be named before it: MPI has one queue for what all send to a rank, and
 * whoever is stopped while it enters something holds up what comes behind. */
static void require_victim(int victim)
{
    const char *transport = getenv("ALNICO_TRANSPORT");
    bool others_too = transport && strcmp(transport, "mpi") == 0;
    char expected[64];
    snprintf(expected, sizeof expected, "%s%d did not come", others_too ? " " : "rank ", victim);
    ranks_require_detail(expected);
}

/* For the same reason nobody sends anything before it goes on. */
static void stop(const char *algorithm, size_t count)
{
    alnico_comm_t comm = world_comm(NULL);
    int victim = world_size() - 1, pid = getpid();
    double start = 0;
    MPI_Win window;
    atomic_int *judged = share(&window);
    alnico_status_t status = ALNICO_SUCCESS;
    REQUIRE_STATUS(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, algorithm), ALNICO_SUCCESS);
    MPI_Bcast(&pid, 1, MPI_INT, victim, MPI_COMM_WORLD);
    if (world_rank() == victim)
        stop_soon();
    while (status == ALNICO_SUCCESS) {
        start = ranks_seconds();
        status = sum(comm, count);
    }
    REQUIRE_STATUS(status, ALNICO_ERROR_TIMEOUT);
    if (world_rank() != victim) {
        REQUIRE(ranks_seconds() - start < 2 * DEADLINE);
        require_victim(victim);
        if (atomic_fetch_add(judged, 1) == victim - 1)
            kill(pid, SIGCONT); /* it learns that the others gave up */
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_free(&window);
    alnico_comm_destroy(comm);
}

static void test_a_stopped_rank_is_named(void)
{
    stop("recursive_doubling", 4);
    stop("ring", LARGE);
}

/* What its sender gave up is not received later, from a buffer that is the user's again. */
static void test_a_late_receiver_gets_nothing(void)
{
    static double values[LARGE];
    alnico_comm_t comm = world_comm(NULL);
    int late = world_size() - 1;
    if (world_rank() == 0) {
        REQUIRE_STATUS(alnico_send(values, LARGE, ALNICO_FLOAT64, late, comm),
                       ALNICO_ERROR_TIMEOUT);
        for (size_t i = 0; i < LARGE; i++)
            values[i] = 77;
        MPI_Send(&late, 1, MPI_INT, late, 0, MPI_COMM_WORLD);
    } else if (world_rank() == late) {
        MPI_Recv(&late, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        REQUIRE_STATUS(alnico_recv(values, LARGE, ALNICO_FLOAT64, 0, comm), ALNICO_ERROR_TIMEOUT);
        ranks_require_detail("rank 0 gave up before");
    }
    MPI_Barrier(MPI_COMM_WORLD);
    alnico_comm_destroy(comm);
}

/* ---- Making a communicator ---- */

static void require_no_part(alnico_status_t status, double start)
{
    REQUIRE_STATUS(status, ALNICO_ERROR_TIMEOUT);
    REQUIRE(ranks_seconds() - start < 2 * DEADLINE);
}

/* Who comes late finds what the others sent, but not them. In another order it is a part. */
static void test_a_late_rank_makes_no_part(void)
{
    alnico_comm_t comm = world_comm(NULL), part;
    bool late = world_rank() == world_size() - 1;
    if (late)
        MPI_Barrier(MPI_COMM_WORLD);
    double start = ranks_seconds();
    require_no_part(alnico_comm_split(comm, 0, -world_rank(), NULL, &part), start);
    REQUIRE_STATUS(alnico_comm_status(comm), ALNICO_ERROR_TIMEOUT); /* latched */
    if (!late)
        MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    alnico_comm_destroy(comm);
}

static alnico_status_t (*subset)(struct transport *, struct rendezvous *, struct transport **);

static alnico_status_t late_subset(struct transport *transport, struct rendezvous *r,
                                   struct transport **out)
{
    MPI_Barrier(MPI_COMM_WORLD);
    return subset(transport, r, out);
}

/* A rank that is held up when all have agreed to make it. */
static void test_a_duplicate_waits_until_its_deadline(void)
{
    alnico_comm_t comm = world_comm(NULL), copy;
    bool late = world_rank() == world_size() - 1;
    struct transport_ops ops = *comm->transport->ops;
    subset = ops.subset;
    ops.subset = late_subset;
    if (late)
        comm->transport->ops = &ops;
    double start = ranks_seconds();
    alnico_status_t status = alnico_comm_duplicate(comm, NULL, &copy);
    if (late)
        REQUIRE(status == ALNICO_ERROR_TIMEOUT);
    else
        require_no_part(status, start);
    if (!late)
        MPI_Barrier(MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    alnico_comm_destroy(comm);
}

/* ---- Without shared memory ---- */

static bool refuses;
static useconds_t held_up; /* for so many microseconds */

/* In place of the C library's: a kernel may have none. */
int memfd_create(const char *name, unsigned flags)
{
    if (held_up)
        usleep(held_up);
    if (!refuses)
        return (int)syscall(SYS_memfd_create, name, flags);
    errno = ENOSYS;
    return -1;
}

static void test_without_shared_memory_mpi_carries_messages(void)
{
    refuses = true;
    alnico_comm_t comm = world_comm(NULL), copy;
    REQUIRE(strcmp(comm->transport->ops->name, "mpi") == 0 && !comm->state[BACKEND_PEER]);
    REQUIRE_STATUS(alnico_comm_duplicate(comm, NULL, &copy), ALNICO_SUCCESS);
    REQUIRE_STATUS(sum(comm, LARGE), ALNICO_SUCCESS);
    REQUIRE_STATUS(sum(copy, LARGE), ALNICO_SUCCESS);
    alnico_comm_destroy(copy);
    alnico_comm_destroy(comm);
    refuses = false;
}

/* Those who wait for the shared memory listen for reports over MPI, which is then left. */
static void test_ranks_that_listened_leave_mpi(void)
{
    held_up = 400000;
    alnico_comm_t comm = world_comm(NULL);
    held_up = 0;
    REQUIRE_STATUS(sum(comm, LARGE), ALNICO_SUCCESS);
    alnico_comm_destroy(comm);
}

static void test_different_counts_are_a_mismatch(void)
{
    alnico_comm_t comm = world_comm(NULL);
    alnico_status_t status = sum(comm, world_rank() == 1 ? 11 : 10);
    REQUIRE_STATUS(status, world_size() == 1 ? ALNICO_SUCCESS : ALNICO_ERROR_MISMATCH);
    alnico_comm_destroy(comm);
}

/* Who finds nothing wrong himself learns it in the next operation. */
static void require_mismatch(alnico_comm_t comm, alnico_status_t status)
{
    if (status == ALNICO_SUCCESS)
        status = alnico_barrier(comm);
    REQUIRE_STATUS(status, ALNICO_ERROR_MISMATCH);
}

static void differ_in_length(size_t sent, size_t received)
{
    static char bytes[8 * LARGE];
    alnico_comm_t comm = world_comm(NULL);
    alnico_status_t status = ALNICO_SUCCESS;
    if (world_rank() == 0)
        status = alnico_send(bytes, sent, ALNICO_INT8, 1, comm);
    if (world_rank() == 1) {
        status = alnico_recv(bytes, received, ALNICO_INT8, 0, comm);
        REQUIRE_STATUS(status, ALNICO_ERROR_MISMATCH);
    }
    require_mismatch(comm, status);
    MPI_Barrier(MPI_COMM_WORLD);
    alnico_comm_destroy(comm);
}

static void test_a_message_of_another_length_is_a_mismatch(void)
{
    differ_in_length(6, 5);
    differ_in_length(5, 6);
    differ_in_length(8 * LARGE, 5);
    differ_in_length(8 * LARGE, 4 * LARGE);
    differ_in_length(4 * LARGE, 8 * LARGE);
}

static const struct {
    alnico_collective_t collective;
    const char *algorithm;
} vectors[] = {{ALNICO_GATHERV, "linear"},
               {ALNICO_SCATTERV, "linear"},
               {ALNICO_ALLTOALLV, "pairwise"},
               {ALNICO_ALLGATHERV, "ring"},
               {ALNICO_REDUCE_SCATTERV, "pairwise"}};

/* Every block has three elements, but one has two in the eyes of rank 0 or, of what it gets from
 * rank 0, of rank 1. */
static alnico_status_t call_vector(alnico_comm_t comm, alnico_collective_t collective)
{
    static int32_t in[64], out[64];
    size_t three[8] = {3, 3, 3, 3, 3, 3, 3, 3}, odd[8] = {3, 3, 3, 3, 3, 3, 3, 3};
    int rank = world_rank();
    switch (collective) {
    case ALNICO_GATHERV:
        odd[1] = rank == 0 ? 2 : 3;
        return alnico_gatherv(in, 3, out, odd, NULL, ALNICO_INT32, 0, comm);
    case ALNICO_SCATTERV:
        return alnico_scatterv(in, odd, NULL, out, rank == 1 ? 2 : 3, ALNICO_INT32, 0, comm);
    case ALNICO_ALLTOALLV:
        odd[0] = rank == 1 ? 2 : 3;
        return alnico_alltoallv(in, three, NULL, out, odd, NULL, ALNICO_INT32, comm);
    case ALNICO_ALLGATHERV:
        odd[1] = rank == 0 ? 2 : 3;
        return alnico_allgatherv(in, 3, out, odd, NULL, ALNICO_INT32, comm);
    default:
        odd[0] = rank == 0 ? 2 : 3;
        return alnico_reduce_scatterv(in, out, odd, ALNICO_INT32, ALNICO_SUM, comm);
    }
}

static void test_a_block_of_another_length_is_a_mismatch(void)
{
    for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
        alnico_comm_t comm = world_comm(NULL);
        alnico_collective_t collective = vectors[i].collective;
        REQUIRE_STATUS(alnico_comm_set_algorithm(comm, collective, vectors[i].algorithm),
                       ALNICO_SUCCESS);
        require_mismatch(comm, call_vector(comm, collective));
        MPI_Barrier(MPI_COMM_WORLD);
        alnico_comm_destroy(comm);
    }
}

/* ---- MPI_COMM_WORLD's error handler is the user's ---- */

static int errors_heard;

static void hear_error(MPI_Comm *comm, int *code, ...)
{
    (void)comm;
    (void)code;
    errors_heard++;
}

static void require_handler(MPI_Errhandler expected)
{
    MPI_Errhandler present;
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &present);
    REQUIRE(present == expected);
    MPI_Errhandler_free(&present);
}

static void test_the_users_errors_reach_his_handler(void)
{
    MPI_Errhandler handler, fatal = MPI_ERRORS_ARE_FATAL;
    MPI_Comm_create_errhandler(hear_error, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    alnico_comm_t comm = world_comm(NULL);
    if (world_size() > 1)
        differ_in_length(6, 5);
    REQUIRE(errors_heard == 0);
    for (int i = 1; i <= 2; i++) {
        MPI_Comm_call_errhandler(MPI_COMM_WORLD, MPI_ERR_OTHER);
        REQUIRE(errors_heard == i);
    }
    alnico_comm_destroy(comm);
    require_handler(handler);
    comm = world_comm(NULL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, fatal);
    alnico_comm_destroy(comm);
    require_handler(fatal);
    MPI_Errhandler_free(&handler);
}

static void test_abort_tells_the_others(void)
{
    alnico_comm_t comm = world_comm(NULL);
    if (world_rank() == 0) {
        REQUIRE_STATUS(alnico_comm_abort(comm), ALNICO_SUCCESS);
        REQUIRE_STATUS(sum(comm, 1), ALNICO_ERROR_ABORTED);
    } else {
        usleep(50000);
        double start = ranks_seconds();
        if (world_rank() == 1)
            REQUIRE_STATUS(sum(comm, 1), ALNICO_ERROR_ABORTED);
        REQUIRE(ranks_seconds() - start < 0.9 * DEADLINE);
    }
    alnico_comm_destroy(comm);
}

static void test_bad_mpi_arguments(void)
{
    alnico_comm_t comm;
    REQUIRE_STATUS(alnico_comm_create_mpi(MPI_COMM_NULL, ALNICO_DEVICE_CPU, NULL, &comm),
                   ALNICO_ERROR_ARGUMENT);
    ranks_require_detail("mpi_comm is MPI_COMM_NULL");
    REQUIRE_STATUS(alnico_comm_create_mpi(MPI_COMM_WORLD, ALNICO_DEVICE_CPU, NULL, NULL),
                   ALNICO_ERROR_ARGUMENT);
    ranks_require_detail("out is NULL");
    REQUIRE_STATUS(alnico_comm_create_mpi(MPI_COMM_WORLD, ALNICO_DEVICE_CUDA, NULL, &comm),
                   ALNICO_ERROR_UNSUPPORTED);
    if (world_size() < 2)
        return;
    MPI_Comm half, inter;
    int side = world_rank() == 0;
    MPI_Comm_split(MPI_COMM_WORLD, side, 0, &half);
    MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, side ? 1 : 0, 9, &inter);
    REQUIRE_STATUS(alnico_comm_create_mpi(inter, ALNICO_DEVICE_CPU, NULL, &comm),
                   ALNICO_ERROR_ARGUMENT);
    ranks_require_detail("intercommunicator");
    MPI_Comm_free(&inter);
    MPI_Comm_free(&half);
}

int main(void)
{
    setenv("ALNICO_TIMEOUT", "2", 1); /* before the library reads its environment */
    seed = world_begin(MPI_THREAD_MULTIPLE);
    if (world_size() > 1) {
        WORLD_RUN(test_a_missing_rank_is_named);
        WORLD_RUN(test_a_stopped_rank_is_named);
        WORLD_RUN(test_a_late_receiver_gets_nothing);
        WORLD_RUN(test_abort_tells_the_others);
        WORLD_RUN(test_without_shared_memory_mpi_carries_messages);
        WORLD_RUN(test_ranks_that_listened_leave_mpi);
        WORLD_RUN(test_a_late_rank_makes_no_part);
        WORLD_RUN(test_a_duplicate_waits_until_its_deadline);
        WORLD_RUN(test_a_message_of_another_length_is_a_mismatch);
        WORLD_RUN(test_a_block_of_another_length_is_a_mismatch);
    }
    WORLD_RUN(test_the_users_errors_reach_his_handler);
    WORLD_RUN(test_different_counts_are_a_mismatch);
    WORLD_RUN(test_bad_mpi_arguments);
    return world_end();
}
