/* The warning of destroy about operations that failed and that nobody waited for: one, with their
 * number and names. And what a thousand communicators leave over. */
#include "comm/communicator/comm.h"
#include "tests/support/ranks.h"

#include <dirent.h>
#include <malloc.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

static char written[1 << 14];

/* Runs two ranks; what they write to stderr is then in `written`. */
static void run(void (*body)(struct rank *))
{
    FILE *file = tmpfile();
    int terminal = dup(STDERR_FILENO);
    assert_true(file && terminal >= 0);
    dup2(fileno(file), STDERR_FILENO);
    ranks_run(2, body, NULL);
    dup2(terminal, STDERR_FILENO);
    close(terminal);
    rewind(file);
    written[fread(written, 1, sizeof written - 1, file)] = '\0';
    fclose(file);
}

static void require_one_warning(const char *text)
{
    const char *warning = strstr(written, "alnico warning: ");
    assert_non_null(warning);
    assert_null(strstr(warning + 1, "alnico warning: "));
    if (!strstr(warning, text))
        fail_msg("no '%s' in: %s", text, warning);
}

static alnico_comm_t impatient_comm(struct rank *rank, void *stream)
{
    alnico_comm_t comm = ranks_comm(rank, stream);
    comm->family->settings.timeout = 0.2;
    return comm;
}

static void start(alnico_comm_t comm, alnico_request_t *requests, int count)
{
    static float values[5000], sums[5000];
    for (int i = 0; i < count - 1; i++)
        REQUIRE_STATUS(alnico_iallreduce(values, sums, 5000 - (size_t)i, ALNICO_FLOAT32, ALNICO_SUM,
                                         comm, &requests[i]),
                       ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_irecv(values, 1, ALNICO_FLOAT32, 1, comm, &requests[count - 1]),
                   ALNICO_SUCCESS);
}

/* Rank 1 comes to none of five. */
static void forget_body(struct rank *rank)
{
    alnico_comm_t comm = impatient_comm(rank, NULL);
    alnico_request_t requests[5];
    if (rank->rank == 0) {
        start(comm, requests, 5);
        alnico_comm_destroy(comm);
    }
    ranks_barrier(rank);
    if (rank->rank == 1)
        alnico_comm_destroy(comm);
}

static void test_requests_that_failed_are_named(void **state)
{
    (void)state;
    run(forget_body);
    require_one_warning("alnico_comm_destroy: 5 operations (alnico_iallreduce of ");
    require_one_warning(" elements of float32, sum; ");
    require_one_warning("; and 2 more) of communicator ");
    require_one_warning(", rank 0, did not complete: ");
    require_one_warning("rank 1 did not come within 0.2 s");
}

/* An operation that was waited for is not named again. */
static void wait_body(struct rank *rank)
{
    alnico_comm_t comm = impatient_comm(rank, NULL);
    alnico_request_t requests[2];
    if (rank->rank == 0) {
        start(comm, requests, 2);
        REQUIRE_STATUS(alnico_wait(&requests[0]), ALNICO_ERROR_TIMEOUT);
        if (rank->argument)
            REQUIRE_STATUS(alnico_wait(&requests[1]), ALNICO_ERROR_TIMEOUT);
        alnico_comm_destroy(comm);
    }
    ranks_barrier(rank);
    if (rank->rank == 1)
        alnico_comm_destroy(comm);
}

static void wait_for_all_body(struct rank *rank)
{
    rank->argument = rank;
    wait_body(rank);
}

static void test_only_what_nobody_waited_for_is(void **state)
{
    (void)state;
    run(wait_body);
    require_one_warning("alnico_comm_destroy: 1 operation (alnico_isendrecv) of communicator ");
    run(wait_for_all_body);
    assert_null(strstr(written, "warning"));
}

/* A call on a stream has no request. */
static void stream_body(struct rank *rank)
{
    alnico_stream_t stream;
    REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    alnico_comm_t comm = impatient_comm(rank, stream);
    if (rank->rank == 0) {
        REQUIRE_STATUS(alnico_barrier(comm), ALNICO_SUCCESS);
        alnico_comm_destroy(comm);
    }
    ranks_barrier(rank);
    if (rank->rank == 1)
        alnico_comm_destroy(comm);
    alnico_stream_destroy(stream);
}

static void test_what_fails_meanwhile_is_told(void **state)
{
    (void)state;
    run(stream_body);
    require_one_warning("alnico_comm_destroy: operations of communicator ");
    require_one_warning("alnico_barrier, operation 1 of communicator ");
}

static void abort_body(struct rank *rank)
{
    alnico_comm_t comm = impatient_comm(rank, NULL);
    alnico_request_t requests[3];
    if (rank->rank == 0) {
        start(comm, requests, 3);
        REQUIRE_STATUS(alnico_comm_abort(comm), ALNICO_SUCCESS);
        alnico_comm_destroy(comm);
    }
    ranks_barrier(rank);
    if (rank->rank == 1)
        alnico_comm_destroy(comm);
}

static void test_who_aborts_knows(void **state)
{
    (void)state;
    run(abort_body);
    assert_null(strstr(written, "warning"));
}

enum { LIVES = 1000 };

/* A communicator of an id, one over a callback, a duplicate of it with memory registered on this rank alone, and
 * a part; each is used. */
static void live(struct rank *rank, int i)
{
    static char areas[2][256];
    alnico_registration_t registration;
    alnico_comm_t comms[3];
    float x = 1;
    if (i % 10 == 0) {
        alnico_id_t id = ranks_share_id(rank);
        REQUIRE_STATUS(
            alnico_comm_create_id(&id, rank->rank, rank->size, ALNICO_DEVICE_CPU, NULL, &comms[0]),
            ALNICO_SUCCESS);
    } else {
        comms[0] = ranks_comm(rank, NULL);
    }
    REQUIRE_STATUS(alnico_comm_duplicate(comms[0], NULL, &comms[1]), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_comm_split(comms[1], rank->rank, 0, NULL, &comms[2]), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_comm_register_local(comms[1], areas[rank->rank], 256, &registration),
                   ALNICO_SUCCESS);
    for (int c = 0; c < 3; c++)
        REQUIRE_STATUS(
            alnico_allreduce(ALNICO_IN_PLACE, &x, 1, ALNICO_FLOAT32, ALNICO_AVERAGE, comms[c]),
            ALNICO_SUCCESS);
    REQUIRE(x == 1);
    for (int c = 0; c < 3; c++)
        alnico_comm_destroy(comms[(c + i) % 3]);
}

static void lives_body(struct rank *rank)
{
    for (int i = 0; i < *(int *)rank->argument; i++)
        live(rank, i);
}

static int open_descriptors(void)
{
    int count = 0;
    DIR *folder = opendir("/proc/self/fd");
    assert_non_null(folder);
    while (readdir(folder))
        count++;
    closedir(folder);
    return count;
}

static void test_nothing_is_left_over(void **state)
{
    (void)state;
    int first = 30, lives = ranks_repetitions(LIVES);
    ranks_run(2, lives_body, &first);
    malloc_trim(0);
    size_t bytes = mallinfo2().uordblks;
    int descriptors = open_descriptors(), threads = ranks_threads();
    ranks_run(2, lives_body, &lives);
    size_t grown = mallinfo2().uordblks > bytes ? mallinfo2().uordblks - bytes : 0;
    print_message("%d lives of 3 communicators: %zu bytes more\n", lives, grown);
    assert_in_range(open_descriptors(), 0, descriptors + 4); /* listeners end a little later */
    assert_in_range(ranks_threads(), 0, threads + 2);
    assert_in_range(grown, 0, 32768);
}

int main(void)
{
    mallopt(M_ARENA_MAX, 1); /* all of it is counted */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_requests_that_failed_are_named),
        cmocka_unit_test(test_only_what_nobody_waited_for_is),
        cmocka_unit_test(test_what_fails_meanwhile_is_told),
        cmocka_unit_test(test_who_aborts_knows),
        cmocka_unit_test(test_nothing_is_left_over),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
