/* Ranks that are killed by SIGKILL while the deadline is the default of 600 s: whatever the others
 * call, by whichever backend, and wherever the rank was, they get a status that names it within a
 * second. One table has the calls. Ranks are processes; several scenes run at once. */
#include "tests/support/calls.h"
#include "tests/support/forks.h"
#include "tests/support/reference.h"
#include "tests/support/stage.h"

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
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 3, SMALL = 20, LARGE = 60000, AT_ONCE = 4 };

static uint64_t seed;
static int rounds = 1;
static _Atomic double *killed_at; /* of the scene; shared by its processes */

/* Where the victim is when it dies: it does not call, or calls again and again. */
enum phase { BEFORE, DURING, PHASES };

struct scene {
    const struct calls_row *row;
    enum phase phase;
    enum calls_way way;
    int victim;
    size_t count;
    void (*body)(struct rank *);
    uint64_t random;
};

static void die(void)
{
    atomic_store(killed_at, ranks_seconds());
    kill(getpid(), SIGKILL);
}

static void *die_soon(void *argument)
{
    const struct scene *s = argument;
    usleep((useconds_t)(s->random % 20000));
    die();
    return NULL;
}

/* Nobody waits for the victim before its messages find no more room: the wait is that of the call
 * that began at `called`. */
static void require_verdict(const struct scene *s, double called, double heard)
{
    char expected[80];
    const double killed = atomic_load(killed_at), most = ranks_sanitized() ? 5 : 1;
    const double seconds = heard - (called > killed ? called : killed);
    snprintf(expected, sizeof expected, "rank %d did not come: its process has ended", s->victim);
    ranks_require_detail(expected);
    if (seconds >= most)
        fprintf(stderr, "%s by %s, phase %d, way %d, %zu elements, victim %d: %.2f s\n",
                s->row->name, s->row->algorithm ? s->row->algorithm : "the table", s->phase, s->way,
                s->count, s->victim, seconds);
    REQUIRE(seconds < most);
}

static void scene_body(struct rank *rank)
{
    const struct scene *s = rank->argument;
    alnico_stream_t stream = NULL;
    pthread_t thread;
    if (s->way == CALLS_ON_A_STREAM)
        REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    alnico_comm_t comm = forks_comm(rank, stream);
    struct calls_buffers b = calls_buffers_make(RANKS, s->count);
    calls_prepare(comm, s->row);
    REQUIRE_STATUS(calls_once(comm, s->row, s->way, &b), ALNICO_SUCCESS);
    forks_barrier(rank);
    if (rank->rank == s->victim && s->phase == BEFORE)
        die();
    if (rank->rank == s->victim)
        REQUIRE(pthread_create(&thread, NULL, die_soon, rank->argument) == 0);
    alnico_status_t status = ALNICO_SUCCESS;
    double called = 0;
    while (status == ALNICO_SUCCESS) {
        called = ranks_seconds();
        status = calls_once(comm, s->row, s->way, &b);
    }
    double heard = ranks_seconds();
    if (rank->rank == s->victim)
        pthread_join(thread, NULL); /* never returns */
    REQUIRE_STATUS(status, ALNICO_ERROR_TIMEOUT);
    require_verdict(s, called, heard);
    alnico_comm_destroy(comm);
    REQUIRE(ranks_seconds() - heard < 1);
    alnico_stream_destroy(stream);
    calls_buffers_free(&b);
}

static void play(void *argument, int slot)
{
    struct scene *scene = argument;
    (void)slot;
    killed_at =
        mmap(NULL, sizeof *killed_at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(killed_at != MAP_FAILED);
    forks_run_victim(RANKS, scene->victim, SIGKILL, scene->body, scene);
}

static void start(struct scene scene)
{
    static const struct stage_act act = {play, AT_ONCE};
    scene.random = reference_random(seed++, 1, 2);
    stage_play(&act, &scene, sizeof scene);
}

/* Each call in both phases; way, length and victim go around, so that rounds meet all of them. */
static void test_a_killed_rank_is_named_within_a_second(void **state)
{
    (void)state;
    const int count = calls_count();
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < count * PHASES; i++) {
            uint64_t random = reference_random(seed, 3, (uint64_t)i);
            const struct calls_row *row = &calls_rows[i % count];
            start((struct scene){.row = row,
                                 .phase = (enum phase)(i / count),
                                 .way = (enum calls_way)(random % (uint64_t)row->ways),
                                 .victim = (int)(random / 8 % RANKS),
                                 .count = random / 64 % 2 ? LARGE : SMALL,
                                 .body = scene_body});
        }
    assert_int_equal(stage_end(), 0);
}

/* ---- In the creation of a communicator ---- */

static _Thread_local int calls_left;
static _Thread_local alnico_bootstrap_t real;

/* It fails once a rank has died, as a bootstrap has to. */
static int counting_allgather(void *context, const void *mine, void *all, size_t bytes)
{
    (void)context;
    if (calls_left-- == 0)
        die();
    int result = real.allgather(real.context, mine, all, bytes);
    return atomic_load(killed_at) > 0 ? 1 : result;
}

/* The victim dies in the callback, or after its last call of it at a random moment. */
static void creation_body(struct rank *rank)
{
    const struct scene *s = rank->argument;
    bool is_victim = rank->rank == s->victim;
    pthread_t thread;
    real = rank->bootstrap;
    calls_left = is_victim && s->phase == BEFORE ? (int)s->count : -1;
    if (is_victim && s->phase == DURING)
        REQUIRE(pthread_create(&thread, NULL, die_soon, rank->argument) == 0);
    const alnico_bootstrap_t b = {rank->rank, rank->size, counting_allgather, NULL};
    alnico_status_t status = ALNICO_SUCCESS;
    while (status == ALNICO_SUCCESS) {
        alnico_comm_t comm;
        status = alnico_comm_create(&b, ALNICO_DEVICE_CPU, NULL, &comm);
        alnico_comm_destroy(comm);
    }
    double seconds = ranks_seconds() - atomic_load(killed_at);
    if (is_victim)
        pthread_join(thread, NULL);
    REQUIRE(seconds < (ranks_sanitized() ? 5 : 1));
    char expected[16];
    snprintf(expected, sizeof expected, "rank %d", s->victim);
    if (status == ALNICO_ERROR_TIMEOUT)
        ranks_require_detail(expected);
}

static void test_a_rank_killed_in_creation_is_noticed_within_a_second(void **state)
{
    (void)state;
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < 12; i++)
            start((struct scene){.phase = i < 5 ? BEFORE : DURING,
                                 .victim = i % RANKS,
                                 .count = (size_t)i,
                                 .body = creation_body});
    assert_int_equal(stage_end(), 0);
}

/* ---- In the end of one ---- */

/* Nobody waits for the operations that are in flight but the destroy. */
static void destroy_body(struct rank *rank)
{
    const struct scene *s = rank->argument;
    alnico_request_t requests[2];
    alnico_comm_t comm = forks_comm(rank, NULL);
    struct calls_buffers b = calls_buffers_make(RANKS, s->count);
    REQUIRE_STATUS(alnico_barrier(comm), ALNICO_SUCCESS);
    forks_barrier(rank);
    if (rank->rank == s->victim)
        die();
    for (int i = 0; i < 2; i++)
        REQUIRE_STATUS(s->row->call(comm, &b, &requests[i]), ALNICO_SUCCESS);
    double start = ranks_seconds();
    alnico_comm_destroy(comm);
    REQUIRE(ranks_seconds() - start < (ranks_sanitized() ? 5 : 1));
    calls_buffers_free(&b);
}

static void test_destroy_waits_for_no_dead_rank(void **state)
{
    (void)state;
    setenv("ALNICO_LOG", "error", 1); /* it warns of requests that failed */
    for (int i = 0; i < 4; i++)
        start((struct scene){
            .row = &calls_rows[i], .victim = i % RANKS, .count = SMALL, .body = destroy_body});
    assert_int_equal(stage_end(), 0);
    unsetenv("ALNICO_LOG");
}

/* Usage: unit_deaths [ROUNDS [SEED]]; a round has about 80 deaths. */
int main(int argc, char **argv)
{
    rounds = argc > 1 ? atoi(argv[1]) : 1;
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)seed);
    unsetenv("ALNICO_TIMEOUT");
    if (argc > 3)
        cmocka_set_test_filter(argv[3]);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_a_killed_rank_is_named_within_a_second),
        cmocka_unit_test(test_a_rank_killed_in_creation_is_noticed_within_a_second),
        cmocka_unit_test(test_destroy_waits_for_no_dead_rank),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
