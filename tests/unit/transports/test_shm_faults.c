/* Ranks that are processes and are late, stopped, killed, or exit in the middle of allreduces over
 * shared memory: every survivor gets in time a status that names operation, communicator and rank,
 * and goes on to destroy the communicator. The deadline is two seconds, or three where a sanitizer
 * makes all of it slower: who gives up then waits for longer than a busy machine holds up another
 * survivor, so that none is taken for the victim. The scenes of a test run at once: they mostly
 * sleep. */
#include "comm/communicator/comm.h"

#include "tests/support/forks.h"
#include "tests/support/reference.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static double deadline = 2;

enum { SURE = 20 }; /* operations that all ranks finish */

static uint64_t seed;        /* another one for each scene */
static atomic_int *verdicts; /* of the scene's survivors; shared by its processes */
static int rounds = 1;

enum fault { FAULT_NONE, FAULT_LATE, FAULT_STOPPED, FAULT_KILLED, FAULT_EXITS };

struct scene {
    enum fault fault;
    const char *algorithm;
    int size, victim;
    size_t count;
    bool nonblocking;
};

/* Making it may take longer. */
static alnico_comm_t impatient_comm(struct rank *rank)
{
    alnico_comm_t comm = forks_comm(rank, NULL);
    comm->family->settings.timeout = deadline;
    return comm;
}

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

/* After its verdict. The last survivor lets a stopped one go on, which then fails too: before that,
 * somebody could still hear from it. A late one comes when all have given up. */
static void survive(struct rank *rank, const struct scene *s)
{
    bool last = atomic_fetch_add(verdicts, 1) == s->size - 2;
    if (s->fault == FAULT_STOPPED && last)
        kill(forks_pid(rank, s->victim), SIGCONT);
    if (s->fault == FAULT_LATE)
        forks_barrier(rank);
}

static void scene_body(struct rank *rank)
{
    const struct scene *s = rank->argument;
    alnico_comm_t comm = impatient_comm(rank);
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
        forks_barrier(rank);
    else if (is_victim)
        REQUIRE(pthread_create(&thread, NULL, strike, rank->argument) == 0);
    double waited;
    REQUIRE_STATUS(call_on(comm, s, send, recv, &waited), ALNICO_ERROR_TIMEOUT);
    if (!is_victim) {
        check_verdict(s, comm, waited);
        survive(rank, s);
    }
    if (is_victim && s->fault != FAULT_LATE)
        pthread_join(thread, NULL);
    alnico_comm_destroy(comm);
    free(send);
    free(recv);
}

static void play(struct scene scene, void (*body)(struct rank *))
{
    verdicts =
        mmap(NULL, sizeof *verdicts, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(verdicts != MAP_FAILED);
    if (scene.fault == FAULT_KILLED || scene.fault == FAULT_EXITS)
        forks_run_victim(scene.size, scene.victim, scene.fault == FAULT_KILLED ? SIGKILL : 0, body,
                         &scene);
    else
        forks_run(scene.size, 1, body, &scene);
}

/* A process each. */
static void play_at_once(const struct scene *scenes, size_t count, void (*body)(struct rank *))
{
    int failed = 0, status;
    fflush(NULL);
    for (size_t i = 0; i < count; i++) {
        seed++;
        if (forks_process() > 0)
            continue;
        play(scenes[i], body);
        _Exit(0);
    }
    for (size_t i = 0; i < count; i++) {
        REQUIRE(wait(&status) > 0);
        failed += status != 0;
    }
    assert_int_equal(failed, 0);
}

static void play_all(const struct scene *scenes, size_t count, void (*body)(struct rank *))
{
    for (int round = 0; round < rounds; round++)
        play_at_once(scenes, count, body);
}

#define PLAY(scenes, body) play_all((scenes), sizeof(scenes) / sizeof *(scenes), (body))

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
    PLAY(scenes, scene_body);
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
    PLAY(scenes, scene_body);
}

static void test_a_stopped_rank_is_named(void **state)
{
    (void)state;
    static const struct scene scenes[] = {
        {FAULT_STOPPED, "recursive_doubling", 3, 0, 20, false},
        {FAULT_STOPPED, "ring", 2, 1, 200000, true},
        {FAULT_STOPPED, "one_shot", 3, 1, 100, true},
        {FAULT_STOPPED, "two_shot", 3, 2, 100000, false},
    };
    PLAY(scenes, scene_body);
}

static void test_a_late_rank_is_named(void **state)
{
    (void)state;
    static const struct scene scenes[] = {
        {FAULT_LATE, "ring", 3, 1, 50000, false},
        {FAULT_LATE, "two_shot", 3, 0, 50000, true},
    };
    PLAY(scenes, scene_body);
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
    alnico_comm_t comm = impatient_comm(rank);
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
    struct scene scenes[8];
    for (int i = 0; i < 8; i++)
        scenes[i] = (struct scene){i % 4 < 2 ? FAULT_KILLED : FAULT_STOPPED,
                                   NULL,
                                   2,
                                   i % 2,
                                   (size_t)1 << (16 + i % 4),
                                   false};
    PLAY(scenes, message_body);
}

/* ---- One that dies where communicators are made or set ---- */

/* It is dead before the others call. */
static void dead_body(struct rank *rank)
{
    alnico_comm_t comm = impatient_comm(rank), other = comm;
    const struct scene *s = rank->argument;
    size_t call = s->count;
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
    static const struct scene scenes[] = {
        {FAULT_KILLED, NULL, 4, 1, 0, false},
        {FAULT_KILLED, NULL, 4, 1, 1, false},
        {FAULT_KILLED, NULL, 4, 1, 2, false},
    };
    PLAY(scenes, dead_body);
}

/* Who is held up past the deadline looks who lives before it names somebody. */
static void held_up_body(struct rank *rank)
{
    alnico_comm_t comm = impatient_comm(rank);
    forks_barrier(rank);
    if (rank->rank == 1)
        kill(getpid(), SIGKILL);
    while (!comm->transport->ops->gone(comm->transport, 1))
        usleep(1000);
    comm->family->settings.timeout = 1e-9;
    REQUIRE_STATUS(alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, "ring"), ALNICO_ERROR_TIMEOUT);
    ranks_require_detail("rank 1 did not come: its process has ended");
    alnico_comm_destroy(comm);
}

static void test_a_dead_rank_is_named_at_the_deadline_too(void **state)
{
    (void)state;
    static const struct scene scenes[] = {{FAULT_KILLED, NULL, 4, 1, 0, false}};
    PLAY(scenes, held_up_body);
}

/* The ranks of `reversed` are those of `comm` in the other order, and its parts have them in the first
 * one. *reverse: the call that failed was on `reversed`. */
static alnico_status_t make_and_drop(alnico_comm_t comm, const char **call, bool *reverse)
{
    alnico_comm_t twin = NULL, reversed = NULL, part = NULL;
    *reverse = false;
    *call = "alnico_comm_duplicate";
    alnico_status_t status = alnico_comm_duplicate(comm, NULL, &twin);
    if (status == ALNICO_SUCCESS) {
        *call = "alnico_comm_split";
        status = alnico_comm_split(twin, 0, -alnico_comm_rank(comm), NULL, &reversed);
    }
    if (status == ALNICO_SUCCESS) {
        *reverse = true;
        status = alnico_comm_split(reversed, 0, alnico_comm_rank(comm), NULL, &part);
    }
    alnico_comm_destroy(part);
    alnico_comm_destroy(reversed);
    alnico_comm_destroy(twin);
    return status;
}

/* At a random moment of several rounds. */
static void *strike_later(void *argument)
{
    const struct scene *s = argument;
    usleep((useconds_t)(reference_random(seed, 7, s->count) % 20000));
    kill(getpid(), SIGKILL);
    return NULL;
}

/* It dies at any moment of making them. */
static void making_body(struct rank *rank)
{
    const struct scene *s = rank->argument;
    alnico_comm_t comm = impatient_comm(rank);
    pthread_t thread;
    forks_barrier(rank);
    if (rank->rank == s->victim)
        REQUIRE(pthread_create(&thread, NULL, strike_later, rank->argument) == 0);
    double start = 0;
    const char *call = NULL;
    bool reverse = false;
    alnico_status_t status = ALNICO_SUCCESS;
    while (status == ALNICO_SUCCESS) {
        start = ranks_seconds();
        status = make_and_drop(comm, &call, &reverse);
    }
    REQUIRE_STATUS(status, ALNICO_ERROR_TIMEOUT);
    char victim[80];
    snprintf(victim, sizeof victim, "%s: rank %d did not come: its process has ended", call,
             reverse ? rank->size - 1 - s->victim : s->victim);
    ranks_require_detail(victim);
    REQUIRE(ranks_seconds() - start < (ranks_sanitized() ? 6 : 4) * deadline); /* two calls */
    alnico_comm_destroy(comm);
}

static void test_a_rank_killed_while_communicators_are_made(void **state)
{
    (void)state;
    enum { SCENES = 18 };
    struct scene scenes[SCENES];
    for (int i = 0; i < SCENES; i++)
        scenes[i] = (struct scene){FAULT_KILLED, NULL, 3, i % 3, (size_t)i, false};
    char text[16];
    snprintf(text, sizeof text, "%g", deadline);
    setenv("ALNICO_TIMEOUT", text, 1); /* where ranks meet nothing else is known */
    PLAY(scenes, making_body);
    unsetenv("ALNICO_TIMEOUT");
}

/* ---- One that calls another size ---- */

static void sizes_body(struct rank *rank)
{
    alnico_comm_t comm = impatient_comm(rank);
    const char *algorithm = ((const struct scene *)rank->argument)->algorithm;
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
    static const struct scene scenes[] = {
        {FAULT_NONE, "recursive_doubling", 3, -1, 0, false},
        {FAULT_NONE, "ring", 3, -1, 0, false},
        {FAULT_NONE, "one_shot", 3, -1, 0, false},
    };
    PLAY(scenes, sizes_body);
}

struct failing {
    alnico_bootstrap_t real;
    int calls; /* that still work */
};

static int failing_allgather(void *context, const void *mine, void *all, size_t bytes)
{
    struct failing *f = context;
    return f->calls-- > 0 ? f->real.allgather(f->real.context, mine, all, bytes) : 42;
}

static void failing_body(struct rank *rank)
{
    struct failing f = {rank->bootstrap, *(int *)rank->argument};
    const alnico_bootstrap_t b = {rank->rank, rank->size, failing_allgather, &f};
    alnico_comm_t comm;
    REQUIRE_STATUS(alnico_comm_create(&b, ALNICO_DEVICE_CPU, NULL, &comm), ALNICO_ERROR_SYSTEM);
    ranks_require_detail("alnico_comm_create: the bootstrap's allgather returned 42 on rank ");
}

/* And not taken for ranks that share no memory. */
static void test_a_bootstrap_that_fails_later_is_named(void **state)
{
    (void)state;
    for (int calls = 0; calls < 3; calls++)
        forks_run(2, 1, failing_body, &calls);
}

/* Usage: unit_shm_faults [ROUNDS [SEED]] */
int main(int argc, char **argv)
{
    deadline *= ranks_sanitized() ? 1.5 : 1;
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
        cmocka_unit_test(test_a_dead_rank_is_named_at_the_deadline_too),
        cmocka_unit_test(test_a_rank_killed_while_communicators_are_made),
        cmocka_unit_test(test_another_size_is_a_mismatch),
        cmocka_unit_test(test_a_bootstrap_that_fails_later_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
