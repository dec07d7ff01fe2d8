/* Ranks on hosts of their own, as tests/hosts/hosts makes them: collectives over TCP, and what the
 * others learn when a rank is killed, stopped, cut off or late. As root; skipped elsewhere. */
#include "comm/communicator/comm.h"

#include "tests/hosts/namespaces.h"
#include "tests/support/cases.h"
#include "tests/support/forks.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { HOSTS = 8, MOST = 8 };

static uint64_t seed;
static char name[32];

/* Which host each rank is on, and what befalls the victim. */
enum fate { KILLED, STOPPED, CUT_OFF, LATE };

struct layout {
    int size, host[MOST];
    double timeout;
    enum fate fate;
    int victim, phase;
};

static alnico_comm_t make(struct rank *rank)
{
    const struct layout *layout = rank->argument;
    namespaces_enter(name, layout->host[rank->rank], layout->timeout);
    alnico_comm_t comm = forks_comm(rank, NULL);
    REQUIRE(strcmp(comm->transport->ops->name, "hosts") == 0 && comm->hosts > 1);
    return comm;
}

/* ---- All goes well ---- */

static const size_t counts[] = {3, 20000};

static void collectives_body(struct rank *rank)
{
    alnico_comm_t comm = make(rank), part;
    cases_run_all(comm, counts, rank->size <= 4 ? 2 : 1, seed);
    REQUIRE_STATUS(alnico_comm_split(comm, rank->rank % 2, 0, NULL, &part), ALNICO_SUCCESS);
    cases_run_all(part, counts, 1, seed);
    alnico_comm_destroy(part);
    alnico_comm_destroy(comm);
}

static void test_collectives(void **state)
{
    (void)state;
    struct layout layouts[] = {
        {2, {0, 1}, 20, 0, 0, 0},
        {3, {0, 1, 1}, 20, 0, 0, 0},
        {4, {0, 1, 1, 0}, 20, 0, 0, 0},
        {8, {0, 0, 1, 1, 2, 2, 3, 3}, 20, 0, 0, 0},
        {8, {0, 1, 2, 3, 4, 5, 6, 7}, 20, 0, 0, 0},
    };
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++)
        forks_run(layouts[i].size, 1, collectives_body, &layouts[i]);
}

/* Connected, and with nothing to do, a rank costs nothing. */
static void idle_body(struct rank *rank)
{
    alnico_comm_t comm = make(rank);
    const struct timespec pause = {4, 0};
    float one = 1, sum;
    REQUIRE_STATUS(alnico_allreduce(&one, &sum, 1, ALNICO_FLOAT32, ALNICO_SUM, comm),
                   ALNICO_SUCCESS);
    forks_barrier(rank);
    double before = ranks_cpu_seconds();
    nanosleep(&pause, NULL);
    double share = (ranks_cpu_seconds() - before) / 4;
    if (share >= 0.005)
        fprintf(stderr, "rank %d: %.2f %% of a core\n", rank->rank, 100 * share);
    REQUIRE(share < 0.005);
    forks_barrier(rank);
    alnico_comm_destroy(comm);
}

static void test_idle_ranks_cost_nothing(void **state)
{
    (void)state;
    struct layout layout = {8, {0, 0, 1, 1, 2, 2, 3, 3}, 20, 0, 0, 0};
    forks_run(8, 1, idle_body, &layout);
}

/* ---- Far apart ---- */

enum { DELAY_US = 5000, EXCHANGES_TIMED = 10 };

static void far_body(struct rank *rank)
{
    alnico_comm_t comm = make(rank);
    float one = 1, sum = 0;
    REQUIRE_STATUS(alnico_barrier(comm), ALNICO_SUCCESS);
    double start = ranks_seconds();
    for (int i = 0; i < EXCHANGES_TIMED; i++)
        REQUIRE_STATUS(alnico_allreduce(&one, &sum, 1, ALNICO_FLOAT32, ALNICO_SUM, comm),
                       ALNICO_SUCCESS);
    double took = ranks_seconds() - start;
    if (took < 1e-6 * DELAY_US * (EXCHANGES_TIMED - 1) || took > 2)
        fprintf(stderr, "rank %d: %g s\n", rank->rank, took);
    REQUIRE(took >= 1e-6 * DELAY_US * (EXCHANGES_TIMED - 1) && took < 2);
    for (size_t count = 3; count < 1000000; count *= 30) {
        struct allreduce_case c = {.count = count, .type = ALNICO_FLOAT32, .op = ALNICO_SUM};
        cases_run(comm, &c, seed);
    }
    alnico_comm_destroy(comm);
}

/* Hosts of another name, by the switch that delays. */
static void test_hosts_that_are_far_apart(void **state)
{
    (void)state;
    struct layout layout = {3, {0, 1, 1}, 20, 0, 0, 0};
    char near[sizeof name];
    strcpy(near, name);
    snprintf(name, sizeof name, "alnico-far-%d", (int)getpid());
    int status = namespaces_script("delay %s 2 %d %s", name, DELAY_US, DELAY_SWITCH);
    if (status == NAMESPACES_SKIPPED)
        print_message("skipped: no TUN interfaces\n");
    else {
        assert_int_equal(status, 0);
        forks_run(layout.size, 1, far_body, &layout);
        namespaces_script("down %s", name);
    }
    strcpy(name, near);
}

/* ---- Failures ---- */

/* The victim's own end, after which it does nothing more. */
static void meet_fate(struct rank *rank, const struct layout *layout)
{
    double end = ranks_seconds() + 2.5 * layout->timeout;
    const struct timespec late = {
        (time_t)(1.5 * layout->timeout),
        (long)(1e9 * (1.5 * layout->timeout - (double)(time_t)(1.5 * layout->timeout)))};
    switch (layout->fate) {
    case KILLED:
        raise(SIGKILL);
        break;
    case STOPPED:
        raise(SIGSTOP);
        break;
    case CUT_OFF:
        REQUIRE(namespaces_script("link %s %d down", name, layout->host[rank->rank]) == 0);
        while (ranks_seconds() < end)
            nanosleep(&(struct timespec){0, 10000000}, NULL);
        break;
    case LATE:
        nanosleep(&late, NULL);
        break;
    }
}

static alnico_status_t call(alnico_comm_t comm, int what, float *values, size_t count)
{
    switch (what % 4) {
    case 0:
        return alnico_allreduce(ALNICO_IN_PLACE, values, count, ALNICO_FLOAT32, ALNICO_MAXIMUM,
                                comm);
    case 1:
        return alnico_broadcast(values, count, ALNICO_FLOAT32, 0, comm);
    case 2:
        return alnico_allgather(values, values + count, count / 8, ALNICO_FLOAT32, comm);
    default:
        return alnico_barrier(comm);
    }
}

/* Which ranks the error names, besides those in words of its own. */
static void require_named(int victim)
{
    char text[32];
    snprintf(text, sizeof text, "rank %d", victim);
    ranks_require_detail(text);
}

static void failure_body(struct rank *rank)
{
    enum { COUNT = 200000 };
    const struct layout *layout = rank->argument;
    static float values[2 * COUNT];
    alnico_comm_t comm = make(rank);
    alnico_status_t status = ALNICO_SUCCESS;
    bool victim = rank->rank == layout->victim;
    forks_barrier(rank);
    double start = ranks_seconds();
    for (int i = 0; status == ALNICO_SUCCESS; i++) {
        if (victim && i == 5 + layout->phase)
            meet_fate(rank, layout);
        start = status == ALNICO_SUCCESS ? ranks_seconds() : start;
        status = call(comm, layout->phase, values, i % 2 ? 10 : COUNT);
    }
    double took = ranks_seconds() - start;
    if (!victim) {
        if (took > 2 * layout->timeout)
            fprintf(stderr, "rank %d: %g s: %s\n", rank->rank, took, alnico_error_detail());
        REQUIRE(took < 2 * layout->timeout);
        require_named(layout->victim);
    }
    alnico_comm_destroy(comm);
    if (layout->fate == STOPPED && rank->rank == (layout->victim + 1) % rank->size) {
        nanosleep(&(struct timespec){1, 0}, NULL);
        kill(forks_pid(rank, layout->victim), SIGKILL);
    }
}

/* After a while in which nobody sends, the others only wait for the victim: nothing of theirs is on its
 * way to it. They learn by their deadline, or by the end of its process long before that. */
static void quiet_failure_body(struct rank *rank)
{
    const struct layout *layout = rank->argument;
    alnico_comm_t comm = make(rank);
    float value = 1, sum;
    REQUIRE_STATUS(alnico_allreduce(&value, &sum, 1, ALNICO_FLOAT32, ALNICO_SUM, comm),
                   ALNICO_SUCCESS);
    forks_barrier(rank);
    if (rank->rank == layout->victim)
        meet_fate(rank, layout);
    else {
        nanosleep(&(struct timespec){0, 500000000}, NULL);
        double start = ranks_seconds(), most = layout->fate == KILLED ? 1 : 1.5 * layout->timeout;
        REQUIRE_STATUS(layout->phase
                           ? alnico_recv(&value, 1, ALNICO_FLOAT32, layout->victim, comm)
                           : alnico_broadcast(&value, 1, ALNICO_FLOAT32, layout->victim, comm),
                       ALNICO_ERROR_TIMEOUT);
        double took = ranks_seconds() - start;
        if (took > most)
            fprintf(stderr, "rank %d: %g s: %s\n", rank->rank, took, alnico_error_detail());
        REQUIRE(took < most);
        require_named(layout->victim);
    }
    alnico_comm_destroy(comm);
    if (layout->fate == STOPPED && rank->rank == (layout->victim + 1) % rank->size)
        kill(forks_pid(rank, layout->victim), SIGKILL);
}

/* In each of so many operations: see the body. */
static void befall_in(enum fate fate, const struct layout *where, int phases,
                      void (*body)(struct rank *))
{
    for (int phase = 0; phase < phases; phase++) {
        struct layout layout = *where;
        layout.fate = fate;
        layout.phase = phase;
        if (fate == KILLED || fate == STOPPED)
            forks_run_victim(layout.size, layout.victim, SIGKILL, body, &layout);
        else
            forks_run(layout.size, 1, body, &layout);
        if (fate == CUT_OFF)
            assert_int_equal(namespaces_script("link %s %d up", name, layout.host[layout.victim]),
                             0);
    }
}

/* In the middle of it: see call. */
static void befall(enum fate fate, const struct layout *where, int phases)
{
    befall_in(fate, where, phases, failure_body);
}

static const struct layout apart = {4, {0, 1, 2, 3}, 1.5, 0, 2, 0},
                           together = {4, {0, 0, 1, 1}, 1.5, 0, 1, 0},
                           uneven = {4, {0, 1, 1, 1}, 1.5, 0, 0, 0};

static void test_a_rank_that_is_killed(void **state)
{
    (void)state;
    befall(KILLED, &apart, 4);
    befall(KILLED, &together, 1);
}

static void test_a_rank_that_is_stopped(void **state)
{
    (void)state;
    befall(STOPPED, &apart, 4);
    befall(STOPPED, &together, 1);
}

static void test_a_host_that_is_cut_off(void **state)
{
    (void)state;
    befall(CUT_OFF, &apart, 4);
    befall(CUT_OFF, &uneven, 1);
}

static void test_a_rank_that_is_late(void **state)
{
    (void)state;
    befall(LATE, &apart, 4);
    befall(LATE, &together, 1);
}

/* The process that ends is noticed at once, whatever the deadline. */
static void test_a_failure_while_nobody_sends(void **state)
{
    (void)state;
    struct layout patient = together;
    patient.timeout = 600;
    befall_in(KILLED, &patient, 2, quiet_failure_body);
    befall_in(STOPPED, &apart, 2, quiet_failure_body);
    befall_in(CUT_OFF, &apart, 2, quiet_failure_body);
}

static void remove_hosts(void)
{
    namespaces_script("down %s", name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_collectives),
        cmocka_unit_test(test_idle_ranks_cost_nothing),
        cmocka_unit_test(test_hosts_that_are_far_apart),
        cmocka_unit_test(test_a_rank_that_is_killed),
        cmocka_unit_test(test_a_rank_that_is_stopped),
        cmocka_unit_test(test_a_host_that_is_cut_off),
        cmocka_unit_test(test_a_rank_that_is_late),
        cmocka_unit_test(test_a_failure_while_nobody_sends),
    };
    seed = (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    snprintf(name, sizeof name, "alnico-%d", (int)getpid());
    int status = namespaces_script("up %s %d", name, HOSTS);
    if (status != 0)
        return status == NAMESPACES_SKIPPED ? NAMESPACES_SKIPPED : 1;
    int failed = cmocka_run_group_tests(tests, NULL, NULL);
    remove_hosts();
    return failed;
}
