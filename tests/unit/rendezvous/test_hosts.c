/* Messages of ranks that are told to be on several hosts: within one through shared memory, between two
 * over TCP; from anybody, parts, deaths, and communicators. */
#include "comm/rendezvous/hosts.h"

#include "comm/api/create.h"
#include "comm/rendezvous/out_of_band.h"

#include "tests/support/cases.h"
#include "tests/support/forks.h"
#include "tests/support/traffic.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { MOST = 8 };

static uint64_t seed;

/* Which host each rank is on. */
struct layout {
    int size;
    uint64_t host[MOST];
};

static const struct layout layouts[] = {
    {2, {7, 9}},    {3, {1, 1, 2}}, {4, {1, 1, 2, 2}},       {5, {3, 4, 3, 4, 3}},
    {3, {5, 5, 5}}, {1, {1}},       {6, {1, 2, 3, 4, 5, 6}}, {8, {1, 1, 1, 1, 1, 2, 2, 3}},
};

static struct transport *make(struct rank *rank, const struct layout *layout)
{
    const struct tcp_options options = {.interface = "127.0.0.1"};
    struct rendezvous r = ranks_rendezvous(rank, 20);
    struct transport *t;
    REQUIRE_STATUS(transport_hosts_create(&r, layout->host, &options, &t), ALNICO_SUCCESS);
    REQUIRE(t->rank == rank->rank && t->size == layout->size);
    return t;
}

static void traffic_body(struct rank *rank)
{
    struct transport *t = make(rank, rank->argument);
    struct traffic traffic = {t, 50, 12, 200000, seed, true};
    traffic_run(&traffic);
    t->ops->destroy(t);
}

static void test_traffic(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof layouts / sizeof *layouts; i++) {
        struct layout layout = layouts[i];
        forks_run(layout.size, 1, traffic_body, &layout);
        if (layout.size % 2 == 0)
            forks_run(layout.size / 2, 2, traffic_body, &layout);
        ranks_run(layout.size, traffic_body, &layout);
    }
}

/* Rank 0 gets a message of every other rank, some before it asks, and a second time. */
static void any_body(struct rank *rank)
{
    struct transport *t = make(rank, rank->argument);
    for (int round = 0; round < 20; round++) {
        int mine[2] = {rank->rank, round}, got[2];
        bool seen[MOST] = {false};
        struct transfer transfer;
        if (rank->rank > 0) {
            transfer = traffic_send(t, 0, 5, mine, sizeof mine);
            REQUIRE_STATUS(traffic_finish(t, &transfer), ALNICO_SUCCESS);
        }
        for (int i = 1; rank->rank == 0 && i < rank->size; i++) {
            transfer = traffic_receive(t, TRANSPORT_ANY, 5, got, sizeof got);
            REQUIRE_STATUS(traffic_finish(t, &transfer), ALNICO_SUCCESS);
            REQUIRE(got[0] > 0 && got[0] < rank->size && !seen[got[0]] && got[1] == round);
            seen[got[0]] = true;
        }
        forks_barrier(rank);
    }
    int never;
    struct transfer transfer = traffic_receive(t, TRANSPORT_ANY, 5, &never, sizeof never);
    REQUIRE(t->ops->test(t, &transfer) == ALNICO_PENDING && t->ops->cancel(t, &transfer));
    t->ops->destroy(t);
}

static void test_from_anybody(void **state)
{
    (void)state;
    struct layout layout = {5, {1, 1, 2, 2, 1}};
    forks_run(5, 1, any_body, &layout);
}

/* One of the same host and one of another see its end. */
static void death_body(struct rank *rank)
{
    struct transport *t = make(rank, rank->argument);
    forks_barrier(rank);
    if (rank->rank == 1)
        raise(SIGKILL);
    for (double end = ranks_seconds() + 5; !t->ops->gone(t, 1);)
        REQUIRE(ranks_seconds() < end);
    REQUIRE(!t->ops->gone(t, 2 - rank->rank));
    forks_barrier(rank);
    t->broken = true;
    t->ops->destroy(t);
}

static void test_a_process_that_is_killed(void **state)
{
    (void)state;
    struct layout layout = {3, {1, 1, 2}};
    forks_run_victim(3, 1, SIGKILL, death_body, &layout);
}

/* ---- Communicators ---- */

static const size_t counts[] = {3, 5000, 20000};

static alnico_comm_t make_comm(struct rank *rank, const struct layout *layout)
{
    struct creation made = {
        .transport = make(rank, layout), .device = device_find(ALNICO_DEVICE_CPU), .who = "test"};
    alnico_comm_t comm = NULL;
    REQUIRE_STATUS(comm_build(&made, &comm), ALNICO_SUCCESS);
    return comm;
}

/* By messages, whatever the table prefers on what is one host in truth. */
static void run_cases(alnico_comm_t comm, int number)
{
    REQUIRE_STATUS(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, "rabenseifner"),
                   ALNICO_SUCCESS);
    cases_run_all(comm, counts, number, seed);
}

static void comm_body(struct rank *rank)
{
    alnico_comm_t comm = make_comm(rank, rank->argument), copy, part;
    run_cases(comm, rank->size == 3 ? 3 : 1);
    REQUIRE_STATUS(alnico_comm_duplicate(comm, NULL, &copy), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_comm_split(comm, rank->rank % 2, -rank->rank, NULL, &part),
                   ALNICO_SUCCESS);
    alnico_comm_destroy(comm);
    run_cases(copy, 1);
    run_cases(part, 1);
    alnico_comm_destroy(part);
    alnico_comm_destroy(copy);
}

static void test_communicators(void **state)
{
    (void)state;
    struct layout three = layouts[1], four = layouts[2];
    forks_run(3, 1, comm_body, &three);
    forks_run(4, 1, comm_body, &four);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_traffic),
        cmocka_unit_test(test_from_anybody),
        cmocka_unit_test(test_a_process_that_is_killed),
        cmocka_unit_test(test_communicators),
    };
    seed = (uint64_t)time(NULL);
    print_message("seed %llu\n", (unsigned long long)seed);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
