/* What goes wrong on communicators whose ranks are threads: ranks that are missing or late, that
 * abort or call another size, and every bad argument. The deadline is two seconds here: who gives up
 * then waits for longer than a busy machine holds up the others' threads, so that none is taken for
 * the missing one. */
#include <alnico/alnico.h>
#ifdef ALNICO_HAVE_MPI
#include <alnico/mpi.h>
#endif

#include "comm/communicator/comm.h"
#include "device/device.h"
#include "tests/support/ranks.h"

#include <limits.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static const double deadline = 2;

/* Making it may take longer. */
static alnico_comm_t impatient_comm(struct rank *rank, void *stream)
{
    alnico_comm_t comm = ranks_comm(rank, stream);
    comm->family->settings.timeout = deadline;
    return comm;
}

static void sleep_for(double deadlines)
{
    usleep((useconds_t)(deadlines * deadline * 1e6));
}

static alnico_status_t sum(alnico_comm_t comm, size_t count)
{
    float values[64] = {0}, sums[64];
    return alnico_allreduce(values, sums, count, ALNICO_FLOAT32, ALNICO_SUM, comm);
}

/* ---- Several groups of ranks at once: they mostly sleep ---- */

struct scene {
    int size;
    void (*body)(struct rank *);
    void *argument;
};

static void *scene_run(void *argument)
{
    const struct scene *s = argument;
    ranks_run(s->size, s->body, s->argument);
    return NULL;
}

static void play(struct scene *scenes, size_t count)
{
    pthread_t threads[16];
    assert_true(count <= sizeof threads / sizeof *threads);
    for (size_t i = 0; i < count; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, scene_run, &scenes[i]), 0);
    for (size_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

#define PLAY(scenes) play((scenes), sizeof(scenes) / sizeof *(scenes))

/* ---- A rank that never comes ---- */

struct absence {
    const char *algorithm;
    int missing;
    bool nonblocking;
};

static alnico_status_t sum_in_the_background(alnico_comm_t comm)
{
    static _Thread_local float values[64], sums[64];
    alnico_request_t request;
    REQUIRE_STATUS(alnico_iallreduce(values, sums, 64, ALNICO_FLOAT32, ALNICO_SUM, comm, &request),
                   ALNICO_SUCCESS);
    alnico_status_t status = alnico_request_synchronize(&request);
    REQUIRE(request == NULL);
    return status;
}

static void absence_body(struct rank *rank)
{
    const struct absence *a = rank->argument;
    alnico_comm_t comm = impatient_comm(rank, NULL);
    REQUIRE_STATUS(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, a->algorithm), ALNICO_SUCCESS);
    REQUIRE_STATUS(sum(comm, 64), ALNICO_SUCCESS);
    double start = ranks_seconds();
    ranks_barrier(rank); /* nobody's deadline begins before `start` */
    if (rank->rank != a->missing) {
        char expected[32];
        alnico_status_t status = a->nonblocking ? sum_in_the_background(comm) : sum(comm, 64);
        double waited = ranks_seconds() - start;
        REQUIRE_STATUS(status, ALNICO_ERROR_TIMEOUT);
        snprintf(expected, sizeof expected, "rank %d did not come", a->missing);
        ranks_require_detail(expected);
        ranks_require_detail("alnico_allreduce, operation 2 of communicator");
        REQUIRE(waited > deadline && waited < 2 * deadline);
        REQUIRE_STATUS(sum(comm, 1), ALNICO_ERROR_TIMEOUT); /* latched */
        ranks_require_detail(expected);
        REQUIRE_STATUS(alnico_comm_status(comm), ALNICO_ERROR_TIMEOUT);
    }
    ranks_barrier(rank);
    alnico_comm_destroy(comm);
}

static void test_a_missing_rank_is_named_by_all(void **state)
{
    (void)state;
    static struct absence cases[] = {
        {"recursive_doubling", 3, false},
        {"ring", 1, true},
        {"rabenseifner", 0, false},
        {"binomial", 2, true},
        {"one_shot", 1, false},
        {"two_shot", 3, true},
        {"recursive_multiplying", 2, false},
    };
    struct scene scenes[] = {
        {4, absence_body, &cases[0]}, {5, absence_body, &cases[1]}, {6, absence_body, &cases[2]},
        {3, absence_body, &cases[3]}, {4, absence_body, &cases[4]}, {4, absence_body, &cases[5]},
        {5, absence_body, &cases[6]},
    };
    PLAY(scenes);
}

/* The one that comes too late learns it from those who gave up, and not by its own deadline. What
 * they left in shared memory may still complete one call. */
static void late_body(struct rank *rank)
{
    alnico_comm_t comm = impatient_comm(rank, NULL);
    const char *algorithm = rank->argument;
    REQUIRE_STATUS(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, algorithm), ALNICO_SUCCESS);
    if (rank->rank == 2) {
        ranks_barrier(rank); /* the others have given up */
        double start = ranks_seconds();
        if (strcmp(algorithm, "one_shot") == 0)
            REQUIRE_STATUS(sum(comm, 64), ALNICO_SUCCESS);
        REQUIRE_STATUS(sum(comm, 64), ALNICO_ERROR_TIMEOUT);
        REQUIRE(ranks_seconds() - start < 0.9 * deadline);
    } else {
        REQUIRE_STATUS(sum(comm, 64), ALNICO_ERROR_TIMEOUT);
        ranks_require_detail("rank 2 did not come");
        ranks_barrier(rank);
    }
    ranks_barrier(rank);
    alnico_comm_destroy(comm);
}

static void patient_body(struct rank *rank)
{
    alnico_comm_t comm = impatient_comm(rank, NULL);
    if (rank->rank == 0)
        sleep_for(0.25); /* late, but within the deadline */
    REQUIRE_STATUS(sum(comm, 64), ALNICO_SUCCESS);
    REQUIRE_STATUS(sum(comm, 1), ALNICO_SUCCESS);
    alnico_comm_destroy(comm);
}

static void test_within_the_deadline_nothing_fails(void **state)
{
    (void)state;
    ranks_run(4, patient_body, NULL);
}

/* Rank 1 lets each of three wait for more than half of the deadline. What is queued behind another
 * has its own deadline, which begins when its turn comes. */
static void queue_body(struct rank *rank)
{
    alnico_comm_t comm = impatient_comm(rank, NULL);
    float values[3] = {1, 2, 3}, sums[3];
    alnico_request_t request[3];
    REQUIRE_STATUS(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, rank->argument),
                   ALNICO_SUCCESS);
    for (int i = 0; i < 3; i++) {
        if (rank->rank == 1)
            sleep_for(0.6);
        REQUIRE_STATUS(alnico_iallreduce(&values[i], &sums[i], 1, ALNICO_FLOAT32, ALNICO_SUM, comm,
                                         &request[i]),
                       ALNICO_SUCCESS);
    }
    for (int i = 0; i < 3; i++) {
        REQUIRE_STATUS(alnico_request_synchronize(&request[i]), ALNICO_SUCCESS);
        REQUIRE(sums[i] == 2 * values[i]);
    }
    alnico_comm_destroy(comm);
}

static void split_body(struct rank *rank)
{
    alnico_comm_t comm = impatient_comm(rank, NULL), part = comm;
    if (rank->rank != 1) {
        REQUIRE_STATUS(alnico_comm_split(comm, 0, 0, NULL, &part), ALNICO_ERROR_TIMEOUT);
        ranks_require_detail("alnico_comm_split: rank 1 did not come");
        REQUIRE(part == NULL);
        REQUIRE_STATUS(alnico_comm_status(comm), ALNICO_ERROR_TIMEOUT); /* latched */
    }
    ranks_barrier(rank);
    alnico_comm_destroy(comm);
}

/* Were it not latched, the late rank would find what the others sent, force the algorithm alone, and
 * leave them its answer to the call that they have given up. */
static void late_setting_body(struct rank *rank)
{
    alnico_comm_t comm = impatient_comm(rank, NULL);
    if (rank->rank == 1)
        ranks_barrier(rank);
    alnico_status_t status = alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, "ring");
    if (rank->rank == 0) {
        REQUIRE_STATUS(status, ALNICO_ERROR_TIMEOUT);
        ranks_require_detail("alnico_comm_set_algorithm: rank 1 did not come");
        ranks_barrier(rank);
    }
    ranks_barrier(rank);
    if (rank->rank == 0)
        REQUIRE_STATUS(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, "ring"),
                       ALNICO_ERROR_TIMEOUT);
    alnico_comm_destroy(comm);
}

/* Who comes late finds what the others sent, but not them. */
static void late_copy_body(struct rank *rank)
{
    alnico_comm_t comm = impatient_comm(rank, NULL), copy = comm;
    bool late = rank->rank == *(const int *)rank->argument;
    if (late)
        ranks_barrier(rank);
    double start = ranks_seconds();
    REQUIRE_STATUS(alnico_comm_duplicate(comm, NULL, &copy), ALNICO_ERROR_TIMEOUT);
    char expected[64];
    snprintf(expected, sizeof expected, "rank %d did not come within 2 s",
             *(const int *)rank->argument);
    ranks_require_detail(late ? "gave up before" : expected);
    REQUIRE(ranks_seconds() - start < 2 * deadline);
    REQUIRE(copy == NULL);
    REQUIRE_STATUS(alnico_comm_status(comm), ALNICO_ERROR_TIMEOUT); /* latched */
    if (!late)
        ranks_barrier(rank);
    ranks_barrier(rank);
    alnico_comm_destroy(comm);
}

/* ---- Disagreement ---- */

static void sizes_body(struct rank *rank)
{
    alnico_comm_t comm = impatient_comm(rank, NULL);
    double start = ranks_seconds();
    REQUIRE_STATUS(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, rank->argument),
                   ALNICO_SUCCESS);
    REQUIRE_STATUS(sum(comm, rank->rank == 1 ? 11 : 10), ALNICO_ERROR_MISMATCH);
    ranks_require_detail("operation 1 of communicator");
    if (strcmp(rank->argument, "one_shot") == 0) /* the mark says it at once */
        REQUIRE(ranks_seconds() - start < 0.9 * deadline);
    else
        ranks_require_detail("allreduce of 11 elements of float32, sum");
    alnico_comm_destroy(comm);
}

/* ---- Abort ---- */

static void *abort_soon(void *comm)
{
    sleep_for(0.1);
    REQUIRE_STATUS(alnico_comm_abort(comm), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_comm_abort(comm), ALNICO_SUCCESS);
    return NULL;
}

/* Rank 0 is freed by another thread of its own, and tells the rest. */
static void abort_body(struct rank *rank)
{
    alnico_comm_t comm = impatient_comm(rank, NULL);
    double start = ranks_seconds();
    if (rank->rank == 0) {
        pthread_t thread;
        REQUIRE(pthread_create(&thread, NULL, abort_soon, comm) == 0);
        REQUIRE_STATUS(sum(comm, 64), ALNICO_ERROR_ABORTED);
        pthread_join(thread, NULL);
        REQUIRE(ranks_seconds() - start < 0.8 * deadline);
        REQUIRE_STATUS(sum(comm, 64), ALNICO_ERROR_ABORTED);
    } else if (rank->rank == 1 && !rank->argument) {
        REQUIRE_STATUS(sum(comm, 64), ALNICO_ERROR_ABORTED);
        ranks_require_detail("rank 0 gave up");
        REQUIRE(ranks_seconds() - start < 0.9 * deadline);
    }
    ranks_barrier(rank); /* rank 2 never comes */
    alnico_comm_destroy(comm);
}

static void test_abort_frees_and_tells(void **state)
{
    (void)state;
    ranks_run(3, abort_body, NULL);
}

/* While ranks compare what they call, too. */
static void test_abort_ends_a_comparison(void **state)
{
    (void)state;
    setenv("ALNICO_CHECK", "1", 1);
    ranks_run(3, abort_body, "check");
    unsetenv("ALNICO_CHECK");
}

/* Rank 0 is in no operation, and stays for long after. */
static void abort_idle_body(struct rank *rank)
{
    alnico_comm_t comm = impatient_comm(rank, NULL);
    if (rank->rank == 0) {
        REQUIRE_STATUS(alnico_comm_abort(comm), ALNICO_SUCCESS);
    } else {
        double start = ranks_seconds();
        REQUIRE_STATUS(sum(comm, 64), ALNICO_ERROR_ABORTED);
        ranks_require_detail("rank 0 gave up");
        REQUIRE(ranks_seconds() - start < 0.9 * deadline);
    }
    ranks_barrier(rank);
    alnico_comm_destroy(comm);
}

static void test_abort_of_an_idle_rank_is_told(void **state)
{
    (void)state;
    ranks_run(3, abort_idle_body, NULL);
}

static void abort_stream_body(struct rank *rank)
{
    alnico_stream_t stream;
    REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    alnico_comm_t comm = impatient_comm(rank, stream);
    float values[8] = {0};
    if (rank->rank == 0) {
        REQUIRE_STATUS(alnico_allreduce(values, values, 8, ALNICO_FLOAT32, ALNICO_SUM, comm),
                       ALNICO_SUCCESS); /* asynchronous: it cannot know yet */
        REQUIRE_STATUS(alnico_comm_abort(comm), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_stream_synchronize(stream), ALNICO_SUCCESS); /* the stream is freed */
        REQUIRE_STATUS(alnico_synchronize(comm), ALNICO_ERROR_ABORTED);
        ranks_require_detail("was aborted by this rank 0");
    }
    ranks_barrier(rank);
    alnico_comm_destroy(comm);
    alnico_stream_destroy(stream);
}

static void test_abort_frees_the_stream(void **state)
{
    (void)state;
    ranks_run(2, abort_stream_body, NULL);
}

/* An error on a stream comes out of the next call. */
static void latched_body(struct rank *rank)
{
    alnico_stream_t stream;
    REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    alnico_comm_t comm = impatient_comm(rank, stream);
    float values[8] = {0};
    if (rank->rank == 0) {
        REQUIRE_STATUS(alnico_allreduce(values, values, 8, ALNICO_FLOAT32, ALNICO_SUM, comm),
                       ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_stream_synchronize(stream), ALNICO_SUCCESS);
        REQUIRE_STATUS(alnico_allreduce(values, values, 8, ALNICO_FLOAT32, ALNICO_SUM, comm),
                       ALNICO_ERROR_TIMEOUT);
        ranks_require_detail("rank 1 did not come");
    }
    ranks_barrier(rank);
    alnico_comm_destroy(comm);
    alnico_stream_destroy(stream);
}

static void test_late_ranks_splits_counts_and_streams(void **state)
{
    (void)state;
    static int first = 0, second = 1;
    struct scene scenes[] = {
        {2, queue_body, "one_shot"},
        {2, queue_body, "two_shot"},
        {2, late_copy_body, &first},
        {3, late_copy_body, &second},
        {3, late_body, "recursive_doubling"},
        {3, late_body, "one_shot"},
        {4, split_body, NULL},
        {2, late_setting_body, NULL},
        {2, latched_body, NULL},
        {2, sizes_body, "rabenseifner"},
        {2, sizes_body, "one_shot"},
        {3, sizes_body, "rabenseifner"},
        {3, sizes_body, "one_shot"},
        {4, sizes_body, "rabenseifner"},
        {4, sizes_body, "one_shot"},
    };
    PLAY(scenes);
}

/* ---- Bad arguments: each names the call, the argument and its value, and does nothing ---- */

#define REFUSED(expr, text)                                                                        \
    do {                                                                                           \
        REQUIRE_STATUS(expr, ALNICO_ERROR_ARGUMENT);                                               \
        ranks_require_detail(text);                                                                \
    } while (0)

static void collective_arguments(alnico_comm_t comm)
{
    float a[8] = {0}, b[8];
    alnico_request_t request = NULL;
    bool done;
    REFUSED(alnico_allreduce(a, b, 8, ALNICO_FLOAT32, ALNICO_SUM, NULL),
            "alnico_allreduce: the communicator is NULL");
    REFUSED(alnico_allreduce(NULL, b, 8, ALNICO_FLOAT32, ALNICO_SUM, comm),
            "send is NULL with count 8");
    REFUSED(alnico_allreduce(a, NULL, 8, ALNICO_FLOAT32, ALNICO_SUM, comm),
            "recv is NULL with count 8");
    REFUSED(alnico_allreduce(ALNICO_IN_PLACE, NULL, 8, ALNICO_FLOAT32, ALNICO_SUM, comm),
            "is NULL");
    REFUSED(alnico_allreduce(a, b, 8, (alnico_datatype_t)12, ALNICO_SUM, comm), "unknown type 12");
    REFUSED(alnico_allreduce(a, b, 8, (alnico_datatype_t)-1, ALNICO_SUM, comm), "unknown type -1");
    REFUSED(alnico_allreduce(a, b, 8, ALNICO_FLOAT32, (alnico_op_t)11, comm),
            "unknown operation 11");
    REFUSED(alnico_allreduce(a, b, 8, ALNICO_FLOAT32, ALNICO_BITWISE_AND, comm),
            "type float32 does not have the operation bitwise_and");
    REFUSED(alnico_allreduce(a, b, SIZE_MAX / 4, ALNICO_FLOAT32, ALNICO_SUM, comm), "overflows");
    REFUSED(alnico_allreduce(a, b, SIZE_MAX, ALNICO_INT8, ALNICO_SUM, comm), "overflows");
    REFUSED(alnico_allreduce(a, a + 3, 5, ALNICO_FLOAT32, ALNICO_SUM, comm), "overlap");
    REFUSED(alnico_allreduce((char *)a + 1, b, 4, ALNICO_FLOAT32, ALNICO_SUM, comm), "not aligned");
    REFUSED(alnico_allreduce(a, (char *)b + 2, 4, ALNICO_FLOAT32, ALNICO_SUM, comm), "not aligned");
    REFUSED(alnico_iallreduce(a, b, 8, ALNICO_FLOAT32, ALNICO_SUM, comm, NULL), "request is NULL");
    REFUSED(alnico_iallreduce(NULL, b, 8, ALNICO_FLOAT32, ALNICO_SUM, comm, &request),
            "alnico_iallreduce: send is NULL");
    REFUSED(alnico_wait(NULL), "request is NULL");
    REFUSED(alnico_wait(&request), "*request is NULL");
    REFUSED(alnico_request_synchronize(&request), "*request is NULL");
    REFUSED(alnico_test(&request, &done), "*request is NULL");
    REFUSED(alnico_test(&request, NULL), "done is NULL");
    REQUIRE_STATUS(alnico_allreduce(NULL, NULL, 0, ALNICO_FLOAT32, ALNICO_SUM, comm),
                   ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_allreduce(a, b, 8, ALNICO_FLOAT32, ALNICO_SUM, comm), ALNICO_SUCCESS);
}

static void creation_arguments(struct rank *rank, alnico_comm_t comm)
{
    alnico_comm_t out = comm;
    alnico_bootstrap_t b = rank->bootstrap;
    REFUSED(alnico_comm_create(NULL, ALNICO_DEVICE_CPU, NULL, &out), "bootstrap is NULL");
    REQUIRE(out == NULL);
    REFUSED(alnico_comm_create(&b, ALNICO_DEVICE_CPU, NULL, NULL), "out is NULL");
    REFUSED(alnico_comm_create(&b, (alnico_device_t)7, NULL, &out), "unknown device 7");
    if (!device_find(ALNICO_DEVICE_CUDA)) {
        char reason[256];
        snprintf(reason, sizeof reason, "alnico_comm_create: %s", alnico_error_detail());
        REQUIRE(strstr(reason, "CUDA") != NULL);
        REQUIRE_STATUS(alnico_comm_create(&b, ALNICO_DEVICE_CUDA, NULL, &out),
                       ALNICO_ERROR_UNSUPPORTED);
        ranks_require_detail(reason);
    }
    b.size = 0;
    REFUSED(alnico_comm_create(&b, ALNICO_DEVICE_CPU, NULL, &out), "size 0 is not positive");
    b = rank->bootstrap;
    b.rank = b.size;
    REFUSED(alnico_comm_create(&b, ALNICO_DEVICE_CPU, NULL, &out), "rank 2 is not in 0 to 1");
    b.rank = -1;
    REFUSED(alnico_comm_create(&b, ALNICO_DEVICE_CPU, NULL, &out), "rank -1 is not in 0 to 1");
    b = rank->bootstrap;
    b.allgather = NULL;
    REFUSED(alnico_comm_create(&b, ALNICO_DEVICE_CPU, NULL, &out), "allgather is NULL");
#ifdef ALNICO_HAVE_MPI
    REFUSED(alnico_comm_create_mpi(MPI_COMM_WORLD, ALNICO_DEVICE_CPU, NULL, &out),
            "MPI is not initialised");
#endif
    REFUSED(alnico_comm_duplicate(comm, NULL, NULL), "out is NULL");
    REFUSED(alnico_comm_split(NULL, 0, 0, NULL, &out), "the communicator is NULL");
}

static void other_arguments(alnico_comm_t comm)
{
    REFUSED(alnico_comm_set_algorithm(comm, (alnico_collective_t)99, "ring"),
            "unknown collective 99");
    REFUSED(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, "bogus"),
            "'bogus' is not an algorithm of allreduce");
    REFUSED(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, ""), "'' is not");
    REFUSED(alnico_comm_abort(NULL), "the communicator is NULL");
    REFUSED(alnico_comm_status(NULL), "the communicator is NULL");
    REFUSED(alnico_synchronize(NULL), "the communicator is NULL");
    REQUIRE(alnico_comm_rank(NULL) == -1);
    REQUIRE(alnico_comm_size(NULL) == -1);
    REFUSED(alnico_stream_create(NULL), "out is NULL");
    REFUSED(alnico_stream_enqueue(NULL, NULL, NULL), "function is NULL");
    alnico_comm_destroy(NULL);
    alnico_stream_destroy(NULL);
}

static void arguments_body(struct rank *rank)
{
    alnico_comm_t comm = ranks_comm(rank, NULL);
    collective_arguments(comm);
    creation_arguments(rank, comm);
    other_arguments(comm);
    alnico_comm_destroy(comm);
    float value = 0;
    ranks_barrier(rank);
    REFUSED(alnico_allreduce(&value, &value, 1, ALNICO_FLOAT32, ALNICO_SUM, comm), "was destroyed");
    REQUIRE(alnico_comm_rank(comm) == -1);
    alnico_comm_destroy(comm); /* logged, and nothing happens */
    ranks_barrier(rank);
}

static void test_every_bad_argument(void **state)
{
    (void)state;
    ranks_run(2, arguments_body, NULL);
}

static void algorithm_body(struct rank *rank)
{
    alnico_comm_t comm = ranks_comm(rank, NULL);
    REQUIRE_STATUS(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, rank->rank ? NULL : "ring"),
                   ALNICO_ERROR_MISMATCH);
    REQUIRE_STATUS(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, rank->rank ? "ring" : "bogus"),
                   ALNICO_ERROR_ARGUMENT);
    REQUIRE_STATUS(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, rank->rank ? "bogus" : "ring"),
                   ALNICO_SUCCESS); /* rank 0's counts */
    REQUIRE_STATUS(alnico_comm_set_algorithm(
                       comm, rank->rank == 1 ? ALNICO_BROADCAST : ALNICO_ALLREDUCE, "binomial"),
                   ALNICO_ERROR_MISMATCH);
    ranks_require_detail("rank 0 sets allreduce, and rank 1 broadcast");
    REQUIRE_STATUS(sum(comm, 64), ALNICO_SUCCESS);
    alnico_comm_destroy(comm);
}

static void test_algorithms_are_rank_zeros(void **state)
{
    (void)state;
    ranks_run(3, algorithm_body, NULL);
}

static int broken_allgather(void *context, const void *mine, void *all, size_t bytes)
{
    (void)context;
    (void)mine;
    (void)all;
    (void)bytes;
    return 42;
}

static void test_a_failing_bootstrap(void **state)
{
    (void)state;
    alnico_bootstrap_t b = {0, 2, broken_allgather, NULL};
    alnico_comm_t comm;
    REQUIRE_STATUS(alnico_comm_create(&b, ALNICO_DEVICE_CPU, NULL, &comm), ALNICO_ERROR_SYSTEM);
    ranks_require_detail("allgather returned 42");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_missing_rank_is_named_by_all),
        cmocka_unit_test(test_late_ranks_splits_counts_and_streams),
        cmocka_unit_test(test_within_the_deadline_nothing_fails),
        cmocka_unit_test(test_abort_frees_and_tells),
        cmocka_unit_test(test_abort_ends_a_comparison),
        cmocka_unit_test(test_abort_of_an_idle_rank_is_told),
        cmocka_unit_test(test_abort_frees_the_stream),
        cmocka_unit_test(test_every_bad_argument),
        cmocka_unit_test(test_algorithms_are_rank_zeros),
        cmocka_unit_test(test_a_failing_bootstrap),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
