/* Shrinking a communicator after each kind of failure: the survivors get a communicator in the old
 * order on which allreduces are right. Ranks are processes, which are killed by SIGKILL
 * before, while and after they shrink, or threads. */
#include "comm/communicator/comm.h"

#include "tests/support/forks.h"
#include "tests/support/reference.h"
#include "tests/support/stage.h"

#include <pthread.h>
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

enum { RANKS = 4, COUNT_MOST = 3000, AT_ONCE = 3 };

static uint64_t seed;
static int rounds = 1, calls = 200;

/* What goes wrong before the others shrink. */
enum failure {
    KILLED,
    KILLED_IN_A_CALL,
    ABORTS,
    MISMATCHES,
    LEAVES,
    STOPPED,
    LATE,
    NOTHING,
    FAILURES
};

struct scene {
    enum failure failure;
    int victim;
    int second; /* dies while it shrinks, if that is not -1 */
    bool streams, tcp;
    uint64_t random;
};

static const double deadline = 1.5;

static bool goes_on(const struct scene *s, int rank)
{
    bool ends = s->failure != ABORTS && s->failure != MISMATCHES && s->failure != NOTHING;
    return rank != s->second && (rank != s->victim || !ends);
}

static alnico_status_t sum(alnico_comm_t comm, float *values, size_t count)
{
    alnico_status_t status =
        alnico_allreduce(ALNICO_IN_PLACE, values, count, ALNICO_FLOAT32, ALNICO_SUM, comm);
    return status == ALNICO_SUCCESS ? alnico_synchronize(comm) : status;
}

/* Each rank adds a number of its own, so that the sum says who takes part. */
static void require_sums(alnico_comm_t comm, int own, float total, uint64_t random)
{
    static _Thread_local float values[COUNT_MOST];
    for (int i = 0; i < calls; i++) {
        size_t count = 1 + reference_random(random, 5, (uint64_t)i) % COUNT_MOST;
        for (size_t k = 0; k < count; k++)
            values[k] = (float)(own * (i % 7 + 1));
        REQUIRE_STATUS(sum(comm, values, count), ALNICO_SUCCESS);
        for (size_t k = 0; k < count; k++)
            REQUIRE(values[k] == total * (float)(i % 7 + 1));
    }
}

/* The ranks of `comm` are those that go on, in the old order; now and after much use. */
static void require_shrunk(alnico_comm_t comm, const struct scene *s, int rank, int size)
{
    int before[RANKS], expected = 0, place = -1;
    float total = 0;
    for (int i = 0; i < size; i++) {
        if (i == rank)
            place = expected;
        expected += goes_on(s, i);
        total += goes_on(s, i) ? (float)(1 << i) : 0;
    }
    REQUIRE(alnico_comm_size(comm) == expected);
    REQUIRE(alnico_comm_rank(comm) == place);
    REQUIRE_STATUS(alnico_allgather(&rank, before, 1, ALNICO_INT32, comm), ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_synchronize(comm), ALNICO_SUCCESS);
    for (int i = 1; i < expected; i++)
        REQUIRE(before[i - 1] < before[i]);
    require_sums(comm, 1 << rank, total, s->random);
}

static void *die_soon(void *argument)
{
    usleep((useconds_t) * (const uint64_t *)argument);
    kill(getpid(), SIGKILL);
    return NULL;
}

static void die_within(uint64_t us, uint64_t random)
{
    static uint64_t chosen;
    pthread_t thread;
    chosen = random % us;
    REQUIRE(pthread_create(&thread, NULL, die_soon, &chosen) == 0);
}

/* Until the failure is this rank's, too. */
static void go_wrong(struct rank *rank, alnico_comm_t comm, const struct scene *s)
{
    static _Thread_local float values[COUNT_MOST];
    bool is_victim = rank->rank == s->victim;
    size_t count = s->failure == MISMATCHES && is_victim ? 11 : 10;
    if (is_victim && s->failure == KILLED)
        kill(getpid(), SIGKILL);
    if (is_victim && s->failure == KILLED_IN_A_CALL)
        die_within(3000, s->random);
    if (is_victim && s->failure == STOPPED)
        kill(getpid(), SIGSTOP);
    if (is_victim && s->failure == LATE)
        usleep((useconds_t)(4e6 * deadline));
    if (is_victim && s->failure == ABORTS)
        REQUIRE_STATUS(alnico_comm_abort(comm), ALNICO_SUCCESS);
    if (s->failure == NOTHING || s->failure == LEAVES)
        return;
    alnico_status_t status = ALNICO_SUCCESS;
    while (status == ALNICO_SUCCESS)
        status = sum(comm, values, count);
}

/* The second one lived until the communicator was made. */
static void shrink_again(alnico_comm_t *comm, alnico_stream_t stream, const struct scene *s)
{
    alnico_comm_t again;
    if (s->second < 0 ||
        (alnico_barrier(*comm) == ALNICO_SUCCESS && alnico_synchronize(*comm) == ALNICO_SUCCESS))
        return;
    REQUIRE_STATUS(alnico_comm_shrink(*comm, stream, &again), ALNICO_SUCCESS);
    alnico_comm_destroy(*comm);
    *comm = again;
}

static double most_seconds(const struct scene *s)
{
    if (s->failure == STOPPED || s->failure == LATE)
        return 5 * deadline;
    return ranks_sanitized() ? 10 : 2;
}

static void scene_body(struct rank *rank)
{
    const struct scene *s = rank->argument;
    alnico_stream_t stream = NULL;
    alnico_comm_t shrunk = NULL;
    if (s->streams)
        REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    alnico_comm_t comm = ranks_comm(rank, stream);
    if (s->failure == MISMATCHES || s->failure == STOPPED || s->failure == LATE)
        comm->family->settings.timeout = deadline;
    float value = 1;
    REQUIRE_STATUS(sum(comm, &value, 1), ALNICO_SUCCESS);
    go_wrong(rank, comm, s);
    if (rank->rank == s->victim && s->failure == LEAVES) {
        alnico_comm_destroy(comm);
        usleep(1500000); /* its process lives on */
        return;
    }
    double start = ranks_seconds();
    if (rank->rank == s->second) /* somewhere in the shrink, which takes about so long */
        die_within(400000, s->random);
    alnico_status_t status = alnico_comm_shrink(comm, stream, &shrunk);
    double waited = ranks_seconds() - start;
    if (rank->rank == s->second)
        for (;;)
            pause();
    if (goes_on(s, rank->rank)) {
        REQUIRE_STATUS(status, ALNICO_SUCCESS);
        REQUIRE(waited < most_seconds(s));
        shrink_again(&shrunk, stream, s);
        require_shrunk(shrunk, s, rank->rank, rank->size);
        REQUIRE(alnico_barrier(comm) != ALNICO_SUCCESS); /* the old one stays what it was */
    }
    if (rank->rank == s->victim && s->failure == LATE) {
        REQUIRE_STATUS(status, ALNICO_ERROR_ABORTED);
        ranks_require_detail("went on without this rank");
    }
    if (s->failure == STOPPED)
        kill(forks_pid(rank, s->victim), SIGKILL);
    alnico_comm_destroy(comm);
    alnico_comm_destroy(shrunk);
    alnico_stream_destroy(stream);
}

static void play(void *argument, int slot)
{
    struct scene *s = argument;
    bool dies = s->failure == KILLED || s->failure == KILLED_IN_A_CALL || s->failure == STOPPED;
    uint64_t victims = dies ? UINT64_C(1) << s->victim : 0;
    (void)slot;
    if (s->second >= 0)
        victims |= UINT64_C(1) << s->second;
    setenv("ALNICO_LOG", "error", 1);
    setenv("ALNICO_TRANSPORT", s->tcp ? "tcp" : "auto", 1);
    forks_run_victims(FORKS_SECONDS, RANKS, victims, SIGKILL, scene_body, s);
}

static void start(struct scene s)
{
    static const struct stage_act act = {play, AT_ONCE};
    s.random = reference_random(seed++, 1, 2);
    stage_play(&act, &s, sizeof s);
}

static void test_the_survivors_of_each_failure_go_on(void **state)
{
    (void)state;
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < FAILURES; i++)
            start((struct scene){.failure = (enum failure)i,
                                 .victim = (int)(seed + (uint64_t)i) % RANKS,
                                 .second = -1,
                                 .streams = (seed + (uint64_t)i) % 2,
                                 .tcp = (seed + (uint64_t)i) / 2 % 2});
    assert_int_equal(stage_end(), 0);
}

static void test_a_second_one_may_die_meanwhile(void **state)
{
    (void)state;
    for (int i = 0; i < 6 * rounds; i++) {
        int victim = (int)(seed + (uint64_t)i) % RANKS;
        start((struct scene){.failure = i % 3 == 2 ? ABORTS : KILLED_IN_A_CALL,
                             .victim = victim,
                             .second = (victim + 1 + i % (RANKS - 1)) % RANKS,
                             .streams = i % 2,
                             .tcp = i / 2 % 2});
    }
    assert_int_equal(stage_end(), 0);
}

static void test_threads_shrink_too(void **state)
{
    (void)state;
    static const enum failure failures[] = {ABORTS, MISMATCHES, NOTHING};
    setenv("ALNICO_LOG", "error", 1);
    for (size_t i = 0; i < sizeof failures / sizeof *failures; i++) {
        struct scene s = {.failure = failures[i], .victim = 1, .second = -1, .streams = i % 2};
        ranks_run(RANKS, scene_body, &s);
    }
    unsetenv("ALNICO_LOG");
}

static void test_bad_arguments_are_refused(void **state)
{
    (void)state;
    alnico_comm_t out;
    assert_int_equal(alnico_comm_shrink(NULL, NULL, &out), ALNICO_ERROR_ARGUMENT);
    ranks_require_detail("alnico_comm_shrink: the communicator is NULL");
    assert_null(out);
    assert_int_equal(alnico_comm_shrink(NULL, NULL, NULL), ALNICO_ERROR_ARGUMENT);
    ranks_require_detail("alnico_comm_shrink: out is NULL");
}

/* Usage: unit_shrink [ROUNDS [SEED [CALLS]]]; a round has 14 scenes, with so many allreduces after
 * each. */
int main(int argc, char **argv)
{
    rounds = argc > 1 ? atoi(argv[1]) : 1;
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL);
    calls = argc > 3 ? atoi(argv[3]) : calls;
    printf("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_survivors_of_each_failure_go_on),
        cmocka_unit_test(test_a_second_one_may_die_meanwhile),
        cmocka_unit_test(test_threads_shrink_too),
        cmocka_unit_test(test_bad_arguments_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
