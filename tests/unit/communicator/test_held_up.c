/* A rank that is held up for longer than the deadline, in the worst moment: it has looked for the
 * others in vain, and looks at the clock only after they have come and gone. */
#include "comm/communicator/comm.h"

#include "tests/support/ranks.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdlib.h>

#include <cmocka.h>

/* Rank 0's clock. */
static struct {
    struct transport_ops ops;
    struct rank *rank;
    int looks; /* until it is held up */
    double away;
} clock_of;

static double held_up(struct transport *transport)
{
    (void)transport;
    if (clock_of.looks > 0 && --clock_of.looks == 0) {
        ranks_barrier(clock_of.rank); /* now the other rank comes, ... */
        ranks_barrier(clock_of.rank); /* ... and is done */
        clock_of.away = 1000;
    }
    return 1e-9 * (double)backoff_now_ns() + clock_of.away;
}

static void hold_up(struct rank *rank, alnico_comm_t comm)
{
    clock_of.ops = *comm->transport->ops;
    clock_of.ops.now = held_up;
    clock_of.rank = rank;
    clock_of.looks = 3;
    clock_of.away = 0;
    comm->transport->ops = &clock_of.ops;
}

static void body(struct rank *rank, alnico_status_t (*call)(alnico_comm_t), const char *algorithm)
{
    alnico_comm_t comm = ranks_comm(rank, NULL);
    REQUIRE_STATUS(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, algorithm), ALNICO_SUCCESS);
    if (rank->rank == 0)
        hold_up(rank, comm);
    else
        ranks_barrier(rank);
    REQUIRE_STATUS(call(comm), ALNICO_SUCCESS);
    if (rank->rank == 1)
        ranks_barrier(rank);
    REQUIRE(clock_of.looks == 0);
    ranks_barrier(rank);
    alnico_comm_destroy(comm);
}

static alnico_status_t sum(alnico_comm_t comm)
{
    float value = 1, result = 0;
    alnico_status_t status = alnico_allreduce(&value, &result, 1, ALNICO_FLOAT32, ALNICO_SUM, comm);
    REQUIRE(status != ALNICO_SUCCESS || (result > 1.5F && result < 2.5F));
    return status;
}

static void sum_body(struct rank *rank)
{
    body(rank, sum, rank->argument);
}

static void test_an_operation_that_has_come_is_not_given_up(void **state)
{
    (void)state;
    ranks_run(2, sum_body, "one_shot");
    ranks_run(2, sum_body, "recursive_doubling");
}

static alnico_status_t set(alnico_comm_t comm)
{
    return alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, NULL);
}

static void set_body(struct rank *rank)
{
    body(rank, set, NULL);
}

static void test_an_exchange_that_has_come_is_not_given_up(void **state)
{
    (void)state;
    ranks_run(2, set_body, NULL);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_an_operation_that_has_come_is_not_given_up),
        cmocka_unit_test(test_an_exchange_that_has_come_is_not_given_up),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
