/* The watchdog: while nobody calls on a communicator, the end of a rank's process becomes its error
 * and aborts its backends within a second; a rank that leaves before its process ends is none. */
#include "comm/communicator/comm.h"

#include "tests/support/forks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 3, VICTIM = 1 };

static atomic_int aborts; /* of this process */

static void count_abort(alnico_comm_t comm)
{
    (void)comm;
    atomic_fetch_add(&aborts, 1);
}

static const struct backend_ops counting = {.abort = count_abort};

/* A communicator that is watched, with one more backend. */
static alnico_comm_t watched_comm(struct rank *rank)
{
    alnico_comm_t comm = forks_comm(rank, NULL);
    int last = 0;
    while (comm->backends[last])
        last++;
    REQUIRE(last < BACKENDS);
    comm->backends[last] = &counting;
    REQUIRE_STATUS(watchdog_add(&comm->family->watchdog, comm), ALNICO_SUCCESS);
    return comm;
}

static bool is_broken_within(alnico_comm_t comm, double seconds)
{
    double end = ranks_seconds() + seconds;
    while (atomic_load(&comm->latch.status) == ALNICO_SUCCESS && ranks_seconds() < end)
        usleep(1000);
    return atomic_load(&comm->latch.status) != ALNICO_SUCCESS;
}

static void killed_body(struct rank *rank)
{
    alnico_comm_t first = watched_comm(rank), second = watched_comm(rank);
    forks_barrier(rank);
    if (rank->rank == VICTIM)
        kill(getpid(), SIGKILL);
    REQUIRE(is_broken_within(first, ranks_sanitized() ? 5 : 1));
    REQUIRE(is_broken_within(second, ranks_sanitized() ? 5 : 1));
    REQUIRE_STATUS(alnico_barrier(first), ALNICO_ERROR_TIMEOUT);
    ranks_require_detail("rank 1 did not come: its process has ended");
    REQUIRE_STATUS(alnico_barrier(second), ALNICO_ERROR_TIMEOUT);
    alnico_comm_destroy(first);
    alnico_comm_destroy(second);
    REQUIRE(atomic_load(&aborts) >= 2);
}

static void test_a_killed_rank_is_noticed_without_a_call(void **state)
{
    (void)state;
    forks_run_victim(RANKS, VICTIM, SIGKILL, killed_body, NULL);
}

static void leaving_body(struct rank *rank)
{
    alnico_comm_t comm = watched_comm(rank);
    forks_barrier(rank);
    if (rank->rank != VICTIM) {
        REQUIRE(!is_broken_within(comm, 0.7));
        REQUIRE(atomic_load(&aborts) == 0);
    }
    alnico_comm_destroy(comm);
}

static void test_a_rank_that_left_is_not_missed(void **state)
{
    (void)state;
    forks_run(RANKS, 1, leaving_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_killed_rank_is_noticed_without_a_call),
        cmocka_unit_test(test_a_rank_that_left_is_not_missed),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
