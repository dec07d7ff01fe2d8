/* Ranks that are processes and are late, stopped, killed, or exit in the middle of allreduces over
 * shared memory: every survivor gets in time a status that names operation, communicator and rank,
 * and goes on to destroy the communicator. The deadline is half a second, or three times that where
 * a sanitizer makes all of it slower. */
#include <alnico/alnico.h>

#include "forks.h"
#include "reference.h"

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

static double deadline = 0.5;

enum { SURE = 20 }; /* operations that all ranks finish */

static uint64_t seed; /* another one for each scene */
static int rounds = 1;

enum fault { FAULT_LATE, FAULT_STOPPED, FAULT_KILLED, FAULT_EXITS };

struct scene {
    enum fault fault;
    const char *algorithm;
    int size, victim;
    size_t count;
    bool nonblocking;
};

static alnico_status_t sum(alnico_comm_t comm, const struct scene *s, float *send, float *recv)
{
    if (!s->nonblocking)
        return alnico_allreduce(send, recv, s->count, ALNICO_FLOAT32, ALNICO_SUM, comm);
    alnico_request_t request;
    alnico_status_t status =
        alnico_iallreduce(send, recv, s->count, ALNICO_FLOAT32, ALNICO_SUM, comm, &request);
    return status != ALNICO_SUCCESS ? status : alnico_request_synchronize(&request);
}

/* Ends or stops the process at a random moment, whatever its other thread is doing. */
static void *strike(void *argument)
{
    const struct scene *s = argument;
    uint64_t random = reference_random(seed, (uint64_t)s->fault, s->count + (uint64_t)s->victim);
    struct timespec nap = {0, (long)(random % 5000000)};
    nanosleep(&nap, NULL);
    if (s->fault == FAULT_KILLED)
        kill(getpid(), SIGKILL);
    else if (s->fault == FAULT_STOPPED)
        kill(getpid(), SIGSTOP);
    else
        _Exit(9);
    return NULL;
}

static void check_verdict(const struct scene *s, alnico_comm_t comm, double waited)
{
    char victim[32];
    snprintf(victim, sizeof victim, "rank %d did not come", s->victim);
    ranks_require_detail(victim);
    ranks_require_detail("alnico_allreduce, operation ");
    ranks_require_detail("of communicator ");
    bool ended = s->fault == FAULT_KILLED || s->fault == FAULT_EXITS;
    if (ended)
        ranks_require_detail("its process has ended");
    REQUIRE(waited < (ranks_sanitized() ? 4 : ended ? 0.9 : 2) * deadline);
    float value = 0;
    REQUIRE_STATUS(alnico_allreduce(&value, &value, 1, ALNICO_FLOAT32, ALNICO_SUM, comm),
                   ALNICO_ERROR_TIMEOUT); /* latched */
    ranks_require_detail(victim);
}

/* Calls until it fails. *waited becomes the seconds of the failing call. */
static alnico_status_t call_on(alnico_comm_t comm, const struct scene *s, float *send, float *recv,
                               double *waited)
{
    alnico_status_t status = ALNICO_SUCCESS;
    while (status == ALNICO_SUCCESS) {
        double start = ranks_seconds();
        status = sum(comm, s, send, recv);
        *waited = ranks_seconds() - start;
        REQUIRE(status != ALNICO_SUCCESS || recv[s->count - 1] == (float)s->size);
    }
    return status;
}

static void scene_body(struct rank *rank)
{
    const struct scene *s = rank->argument;
    alnico_comm_t comm = forks_comm(rank, NULL);
    REQUIRE_STATUS(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, s->algorithm), ALNICO_SUCCESS);
    float *send = malloc(s->count * sizeof *send), *recv = malloc(s->count * sizeof *recv);
    REQUIRE(send && recv);
    for (size_t i = 0; i < s->count; i++)
        send[i] = 1;
    for (int i = 0; i < SURE; i++)
        REQUIRE_STATUS(sum(comm, s, send, recv), ALNICO_SUCCESS);
    forks_barrier(rank);
    bool is_victim = rank->rank == s->victim;
    pthread_t thread;
    if (is_victim && s->fault == FAULT_LATE)
        usleep((useconds_t)(2.2 * deadline * 1e6));
    else if (is_victim)
        REQUIRE(pthread_create(&thread, NULL, strike, rank->argument) == 0);
    double waited;
    REQUIRE_STATUS(call_on(comm, s, send, recv, &waited), ALNICO_ERROR_TIMEOUT);
    if (!is_victim)
        check_verdict(s, comm, waited);
    if (!is_victim && s->fault == FAULT_STOPPED)
        kill(forks_pid(rank, s->victim), SIGCONT);
    if (is_victim && s->fault != FAULT_LATE)
        pthread_join(thread, NULL);
    alnico_comm_destroy(comm);
    free(send);
    free(recv);
}

static void play(struct scene scene)
{
    seed++;
    if (scene.fault == FAULT_KILLED || scene.fault == FAULT_EXITS)
        forks_run_victim(scene.size, scene.victim, scene.fault == FAULT_KILLED ? SIGKILL : 0,
                         scene_body, &scene);
    else
        forks_run(scene.size, 1, scene_body, &scene);
}

static void play_all(const struct scene *scenes, size_t count)
{
    for (int round = 0; round < rounds; round++)
        for (size_t i = 0; i < count; i++)
            play(scenes[i]);
}

#define PLAY(scenes) play_all((scenes), sizeof(scenes) / sizeof *(scenes))

/* Over messages, small and large, over the peer backend, and what the table says. */
static void test_a_killed_rank_is_named_at_once(void **state)
{
    (void)state;
    static const struct scene scenes[] = {
        {FAULT_KILLED, "recursive_doubling", 3, 1, 20, false},
        {FAULT_KILLED, "ring", 4, 2, 200000, false},
        {FAULT_KILLED, "rabenseifner", 2, 0, 100000, true},
        {FAULT_KILLED, "one_shot", 3, 2, 100, false},
        {FAULT_KILLED, "two_shot", 4, 1, 100000, true},
        {FAULT_KILLED, NULL, 3, 0, 1000, false},
    };
    PLAY(scenes);
}

static void test_a_rank_that_exits_is_named_at_once(void **state)
{
    (void)state;
    static const struct scene scenes[] = {
        {FAULT_EXITS, "binomial", 4, 3, 5000, true},
        {FAULT_EXITS, "rabenseifner", 3, 2, 100000, false},
        {FAULT_EXITS, "one_shot", 2, 0, 1000, true},
        {FAULT_EXITS, "two_shot", 3, 1, 200000, false},
    };
    PLAY(scenes);
}

/* Some survivor lets it go on after the verdict; it then fails too. */
static void test_a_stopped_rank_is_named(void **state)
{
    (void)state;
    static const struct scene scenes[] = {
        {FAULT_STOPPED, "recursive_doubling", 3, 0, 20, false},
        {FAULT_STOPPED, "ring", 2, 1, 200000, true},
        {FAULT_STOPPED, "one_shot", 3, 1, 100, true},
        {FAULT_STOPPED, "two_shot", 3, 2, 100000, false},
    };
    PLAY(scenes);
}

static void test_a_late_rank_is_named(void **state)
{
    (void)state;
    static const struct scene scenes[] = {
        {FAULT_LATE, "ring", 3, 1, 50000, false},
        {FAULT_LATE, "two_shot", 3, 0, 50000, true},
    };
    PLAY(scenes);
}

/* ---- In a message that both sides copy ---- */

static alnico_status_t pass_on(alnico_comm_t comm, int rank, float *buffer, size_t count)
{
    return rank == 0 ? alnico_send(buffer, count, ALNICO_FLOAT32, 1, comm)
                     : alnico_recv(buffer, count, ALNICO_FLOAT32, 0, comm);
}

static void message_body(struct rank *rank)
{
    const struct scene *s = rank->argument;
    alnico_comm_t comm = forks_comm(rank, NULL);
    float *buffer = calloc(s->count, sizeof *buffer);
    bool is_victim = rank->rank == s->victim;
    pthread_t thread;
    REQUIRE(buffer);
    for (int i = 0; i < SURE; i++)
        REQUIRE_STATUS(pass_on(comm, rank->rank, buffer, s->count), ALNICO_SUCCESS);
    forks_barrier(rank);
    if (is_victim)
        REQUIRE(pthread_create(&thread, NULL, strike, rank->argument) == 0);
    alnico_status_t status = ALNICO_SUCCESS;
    double start = 0;
    while (status == ALNICO_SUCCESS) {
        start = ranks_seconds();
        status = pass_on(comm, rank->rank, buffer, s->count);
    }
    double waited = ranks_seconds() - start;
    REQUIRE_STATUS(status, ALNICO_ERROR_TIMEOUT);
    REQUIRE(is_victim || waited < (ranks_sanitized() ? 6 : 3) * deadline);
    if (!is_victim && s->fault == FAULT_STOPPED)
        kill(forks_pid(rank, s->victim), SIGCONT);
    if (is_victim)
        pthread_join(thread, NULL);
    alnico_comm_destroy(comm);
    free(buffer);
}

static void test_either_side_of_a_long_message_fails(void **state)
{
    (void)state;
    for (int i = 0; i < 8 * rounds; i++) {
        struct scene scene = {i % 4 < 2 ? FAULT_KILLED : FAULT_STOPPED,
                              NULL,
                              2,
                              i % 2,
                              (size_t)1 << (16 + i % 4),
                              false};
        seed++;
        if (scene.fault == FAULT_KILLED)
            forks_run_victim(2, scene.victim, SIGKILL, message_body, &scene);
        else
            forks_run(2, 1, message_body, &scene);
    }
}

/* ---- One that dies where communicators are made or set ---- */

/* It is dead before the others call. */
static void dead_body(struct rank *rank)
{
    alnico_comm_t comm = forks_comm(rank, NULL), other = comm;
    int call = *(const int *)rank->argument;
    forks_barrier(rank);
    if (rank->rank == 1)
        kill(getpid(), SIGKILL);
    double start = ranks_seconds();
    if (call == 0)
        REQUIRE_STATUS(alnico_comm_split(comm, 0, 0, NULL, &other), ALNICO_ERROR_TIMEOUT);
    else if (call == 1)
        REQUIRE_STATUS(alnico_comm_duplicate(comm, NULL, &other), ALNICO_ERROR_TIMEOUT);
    else
        REQUIRE_STATUS(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, "ring"),
                       ALNICO_ERROR_TIMEOUT);
    ranks_require_detail("rank 1 did not come: its process has ended");
    REQUIRE(ranks_seconds() - start < (ranks_sanitized() ? 2 : 0.9) * deadline);
    REQUIRE(call == 2 ? other == comm : other == NULL);
    alnico_comm_destroy(comm);
}

static void test_a_dead_rank_is_named_by_what_sets_communicators(void **state)
{
    (void)state;
    for (int call = 0; call < 3; call++)
        forks_run_victim(4, 1, SIGKILL, dead_body, &call);
}

static alnico_status_t make_and_drop(alnico_comm_t comm)
{
    alnico_comm_t twin = NULL, part = NULL;
    alnico_status_t status = alnico_comm_duplicate(comm, NULL, &twin);
    if (status == ALNICO_SUCCESS)
        status = alnico_comm_split(twin, 0, -alnico_comm_rank(comm), NULL, &part);
    alnico_comm_destroy(part);
    alnico_comm_destroy(twin);
    return status;
}

/* It dies at any moment of making them. */
static void making_body(struct rank *rank)
{
    const struct scene *s = rank->argument;
    alnico_comm_t comm = forks_comm(rank, NULL);
    pthread_t thread;
    forks_barrier(rank);
    if (rank->rank == s->victim)
        REQUIRE(pthread_create(&thread, NULL, strike, rank->argument) == 0);
    double start = 0;
    alnico_status_t status = ALNICO_SUCCESS;
    while (status == ALNICO_SUCCESS) {
        start = ranks_seconds();
        status = make_and_drop(comm);
    }
    REQUIRE_STATUS(status, ALNICO_ERROR_TIMEOUT);
    REQUIRE(ranks_seconds() - start < (ranks_sanitized() ? 6 : 4) * deadline); /* two calls */
    alnico_comm_destroy(comm);
}

static void test_a_rank_killed_while_communicators_are_made(void **state)
{
    (void)state;
    for (int i = 0; i < 4 * rounds; i++) {
        struct scene scene = {FAULT_KILLED, NULL, 3, i % 3, 1, false};
        seed++;
        forks_run_victim(3, scene.victim, SIGKILL, making_body, &scene);
    }
}

/* ---- One that calls another size ---- */

static void sizes_body(struct rank *rank)
{
    alnico_comm_t comm = forks_comm(rank, NULL);
    const char *algorithm = rank->argument;
    REQUIRE_STATUS(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, algorithm), ALNICO_SUCCESS);
    float values[16] = {0};
    REQUIRE_STATUS(alnico_allreduce(ALNICO_IN_PLACE, values, rank->rank == 1 ? 11 : 10,
                                    ALNICO_FLOAT32, ALNICO_SUM, comm),
                   ALNICO_ERROR_MISMATCH);
    ranks_require_detail("operation 1 of communicator");
    if (strcmp(algorithm, "one_shot") != 0) /* whose marks say that they differ, not how */
        ranks_require_detail("allreduce of 11 elements of float32, sum");
    alnico_comm_destroy(comm);
}

static void test_another_size_is_a_mismatch(void **state)
{
    (void)state;
    forks_run(3, 1, sizes_body, "recursive_doubling");
    forks_run(3, 1, sizes_body, "ring");
    forks_run(3, 1, sizes_body, "one_shot");
}

/* Usage: unit_shm_faults [ROUNDS [SEED]] */
int main(int argc, char **argv)
{
    char text[16];
    deadline *= ranks_sanitized() ? 3 : 1;
    snprintf(text, sizeof text, "%g", deadline);
    setenv("ALNICO_TIMEOUT", text, 1); /* before the library reads its environment */
    rounds = argc > 1 ? atoi(argv[1]) : 1;
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_killed_rank_is_named_at_once),
        cmocka_unit_test(test_a_rank_that_exits_is_named_at_once),
        cmocka_unit_test(test_a_stopped_rank_is_named),
        cmocka_unit_test(test_a_late_rank_is_named),
        cmocka_unit_test(test_either_side_of_a_long_message_fails),
        cmocka_unit_test(test_a_dead_rank_is_named_by_what_sets_communicators),
        cmocka_unit_test(test_a_rank_killed_while_communicators_are_made),
        cmocka_unit_test(test_another_size_is_a_mismatch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
