/* Ranks that are killed by SIGKILL while the deadline is the default of 600 s: whatever the others
 * call, by whichever backend, and wherever the rank was, they get a status that names it within a
 * second. One table has the calls. Ranks are processes; several scenes run at once. */
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

enum { RANKS = 3, SMALL = 20, LARGE = 60000, AT_ONCE = 4 };

static uint64_t seed;
static int rounds = 1;
static _Atomic double *killed_at; /* of the scene; shared by its processes */

/* Where the victim is when it dies: it does not call, or calls again and again. */
enum phase { BEFORE, DURING, PHASES };

/* How the others call. */
enum way { BLOCKING, NONBLOCKING, ON_A_STREAM, WAYS };

struct buffers {
    float *send, *recv;
    size_t count, counts[RANKS], at[RANKS];
};

typedef alnico_status_t call(alnico_comm_t comm, const struct buffers *b, alnico_request_t *r);

#define F32 ALNICO_FLOAT32
#define EITHER(name, ...)                                                                          \
    (r ? alnico_i##name(__VA_ARGS__, comm, r) : alnico_##name(__VA_ARGS__, comm))
#define CALL(name, ...)                                                                            \
    static alnico_status_t name(alnico_comm_t comm, const struct buffers *b, alnico_request_t *r)  \
    {                                                                                              \
        (void)b;                                                                                   \
        return EITHER(name, __VA_ARGS__);                                                          \
    }

CALL(allreduce, b->send, b->recv, b->count, F32, ALNICO_SUM)
CALL(reduce, b->send, b->recv, b->count, F32, ALNICO_SUM, 0)
CALL(broadcast, b->send, b->count, F32, 0)
CALL(allgather, b->send, b->recv, b->count, F32)
CALL(allgatherv, b->send, b->count, b->recv, b->counts, NULL, F32)
CALL(reduce_scatter, b->recv, b->send, b->count, F32, ALNICO_SUM)
CALL(reduce_scatterv, b->recv, b->send, b->counts, F32, ALNICO_SUM)
CALL(gather, b->send, b->recv, b->count, F32, 0)
CALL(gatherv, b->send, b->count, b->recv, b->counts, NULL, F32, 0)
CALL(scatter, b->recv, b->send, b->count, F32, 0)
CALL(scatterv, b->recv, b->counts, NULL, b->send, b->count, F32, 0)
CALL(alltoall, b->send, b->recv, b->count / RANKS, F32)
CALL(alltoallv, b->send, b->at, NULL, b->recv, b->at, NULL, F32)

static alnico_status_t barrier(alnico_comm_t comm, const struct buffers *b, alnico_request_t *r)
{
    (void)b;
    return r ? alnico_ibarrier(comm, r) : alnico_barrier(comm);
}

/* Around the ring, so that everybody waits for the victim sooner or later. */
static alnico_status_t sendrecv(alnico_comm_t comm, const struct buffers *b, alnico_request_t *r)
{
    int rank = alnico_comm_rank(comm);
    return EITHER(sendrecv, b->send, b->count, (rank + 1) % RANKS, b->recv, b->count,
                  (rank + RANKS - 1) % RANKS, F32);
}

static alnico_status_t group(alnico_comm_t comm, const struct buffers *b, alnico_request_t *r)
{
    alnico_status_t status = alnico_group_begin(comm);
    for (int i = 0; i < RANKS && status == ALNICO_SUCCESS; i++)
        if (i != alnico_comm_rank(comm)) {
            alnico_send(b->send, b->count, F32, i, comm);
            alnico_recv(b->recv + (size_t)i * b->count, b->count, F32, i, comm);
        }
    return status == ALNICO_SUCCESS ? alnico_group_end(comm, r) : status;
}

/* Calls that block and have no stream. */
static alnico_status_t duplicate(alnico_comm_t comm, const struct buffers *b, alnico_request_t *r)
{
    alnico_comm_t other;
    (void)b, (void)r;
    alnico_status_t status = alnico_comm_duplicate(comm, NULL, &other);
    alnico_comm_destroy(other);
    return status;
}

static alnico_status_t split(alnico_comm_t comm, const struct buffers *b, alnico_request_t *r)
{
    alnico_comm_t other;
    (void)b, (void)r;
    alnico_status_t status = alnico_comm_split(comm, 0, -alnico_comm_rank(comm), NULL, &other);
    alnico_comm_destroy(other);
    return status;
}

static alnico_status_t set_algorithm(alnico_comm_t comm, const struct buffers *b,
                                     alnico_request_t *r)
{
    (void)b, (void)r;
    return alnico_comm_set_algorithm(comm, ALNICO_ALLREDUCE, NULL);
}

static alnico_status_t enroll(alnico_comm_t comm, const struct buffers *b, alnico_request_t *r)
{
    alnico_registration_t registration;
    (void)r;
    alnico_status_t status =
        alnico_comm_register(comm, b->send, b->count * sizeof(float), &registration);
    return status == ALNICO_SUCCESS ? alnico_comm_deregister(comm, registration) : status;
}

struct row {
    const char *name;
    call *call;
    alnico_collective_t collective;
    const char *algorithm; /* NULL: as the table chooses */
    int ways;              /* the first so many of them */
};

static const struct row rows[] = {
    {"allreduce", allreduce, ALNICO_ALLREDUCE, NULL, WAYS},
    {"allreduce", allreduce, ALNICO_ALLREDUCE, "recursive_doubling", WAYS},
    {"allreduce", allreduce, ALNICO_ALLREDUCE, "ring", WAYS},
    {"allreduce", allreduce, ALNICO_ALLREDUCE, "one_shot", WAYS},
    {"allreduce", allreduce, ALNICO_ALLREDUCE, "two_shot", WAYS},
    {"allreduce", allreduce, ALNICO_ALLREDUCE, "recursive_multiplying", WAYS},
    {"reduce", reduce, ALNICO_REDUCE, NULL, WAYS},
    {"reduce", reduce, ALNICO_REDUCE, "binomial", WAYS},
    {"broadcast", broadcast, ALNICO_BROADCAST, NULL, WAYS},
    {"broadcast", broadcast, ALNICO_BROADCAST, "binomial", WAYS},
    {"allgather", allgather, ALNICO_ALLGATHER, NULL, WAYS},
    {"allgather", allgather, ALNICO_ALLGATHER, "ring", WAYS},
    {"allgatherv", allgatherv, ALNICO_ALLGATHERV, NULL, WAYS},
    {"allgatherv", allgatherv, ALNICO_ALLGATHERV, "ring", WAYS},
    {"reduce_scatter", reduce_scatter, ALNICO_REDUCE_SCATTER, NULL, WAYS},
    {"reduce_scatter", reduce_scatter, ALNICO_REDUCE_SCATTER, "ring", WAYS},
    {"reduce_scatterv", reduce_scatterv, ALNICO_REDUCE_SCATTERV, NULL, WAYS},
    {"gather", gather, ALNICO_GATHER, NULL, WAYS},
    {"gather", gather, ALNICO_GATHER, "binomial", WAYS},
    {"gatherv", gatherv, ALNICO_GATHERV, NULL, WAYS},
    {"scatter", scatter, ALNICO_SCATTER, NULL, WAYS},
    {"scatter", scatter, ALNICO_SCATTER, "binomial", WAYS},
    {"scatterv", scatterv, ALNICO_SCATTERV, NULL, WAYS},
    {"alltoall", alltoall, ALNICO_ALLTOALL, NULL, WAYS},
    {"alltoall", alltoall, ALNICO_ALLTOALL, "pairwise", WAYS},
    {"alltoallv", alltoallv, ALNICO_ALLTOALLV, NULL, WAYS},
    {"barrier", barrier, ALNICO_BARRIER, NULL, WAYS},
    {"barrier", barrier, ALNICO_BARRIER, "dissemination", WAYS},
    {"sendrecv", sendrecv, ALNICO_SENDRECV, NULL, WAYS},
    {"group", group, ALNICO_SENDRECV, NULL, WAYS},
    {"duplicate", duplicate, ALNICO_ALLREDUCE, NULL, 1},
    {"split", split, ALNICO_ALLREDUCE, NULL, 1},
    {"set_algorithm", set_algorithm, ALNICO_ALLREDUCE, NULL, 1},
    {"register", enroll, ALNICO_ALLREDUCE, NULL, 1},
};

enum { ROWS = sizeof rows / sizeof *rows };

struct scene {
    const struct row *row;
    enum phase phase;
    enum way way;
    int victim;
    size_t count;
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

static struct buffers make_buffers(size_t count)
{
    struct buffers b = {calloc(RANKS * count, sizeof(float)),
                        calloc(RANKS * count, sizeof(float)),
                        count,
                        {0},
                        {0}};
    REQUIRE(b.send && b.recv);
    for (int i = 0; i < RANKS; i++) {
        b.counts[i] = count;
        b.at[i] = count / RANKS;
    }
    return b;
}

/* Calls once. Who waits for a stream only learns what its operations came to afterwards. */
static alnico_status_t call_once(alnico_comm_t comm, const struct scene *s, const struct buffers *b)
{
    alnico_request_t request;
    if (s->way == BLOCKING)
        return s->row->call(comm, b, NULL);
    if (s->way == ON_A_STREAM) {
        alnico_status_t status = s->row->call(comm, b, NULL);
        return status == ALNICO_SUCCESS ? alnico_synchronize(comm) : status;
    }
    alnico_status_t status = s->row->call(comm, b, &request);
    return status == ALNICO_SUCCESS ? alnico_request_synchronize(&request) : status;
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
    if (s->way == ON_A_STREAM)
        REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
    alnico_comm_t comm = forks_comm(rank, stream);
    struct buffers b = make_buffers(s->count);
    if (s->row->algorithm)
        REQUIRE_STATUS(alnico_comm_set_algorithm(comm, s->row->collective, s->row->algorithm),
                       ALNICO_SUCCESS);
    REQUIRE_STATUS(call_once(comm, s, &b), ALNICO_SUCCESS);
    forks_barrier(rank);
    if (rank->rank == s->victim && s->phase == BEFORE)
        die();
    if (rank->rank == s->victim)
        REQUIRE(pthread_create(&thread, NULL, die_soon, rank->argument) == 0);
    alnico_status_t status = ALNICO_SUCCESS;
    double called = 0;
    while (status == ALNICO_SUCCESS) {
        called = ranks_seconds();
        status = call_once(comm, s, &b);
    }
    double heard = ranks_seconds();
    if (rank->rank == s->victim)
        pthread_join(thread, NULL); /* never returns */
    REQUIRE_STATUS(status, ALNICO_ERROR_TIMEOUT);
    require_verdict(s, called, heard);
    alnico_comm_destroy(comm);
    REQUIRE(ranks_seconds() - heard < 1);
    alnico_stream_destroy(stream);
    free(b.send);
    free(b.recv);
}

static void play(struct scene *scene, void (*body)(struct rank *))
{
    killed_at =
        mmap(NULL, sizeof *killed_at, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(killed_at != MAP_FAILED);
    forks_run_victim(RANKS, scene->victim, SIGKILL, body, scene);
}

/* So many scenes at once, a process each; the others wait for their turn. */
static struct {
    int running, failed;
} stage;

static void stage_wait(int most)
{
    int status;
    for (; stage.running > most; stage.running--) {
        REQUIRE(wait(&status) > 0);
        stage.failed += status != 0;
    }
}

static void stage_play(struct scene scene, void (*body)(struct rank *))
{
    scene.random = reference_random(seed++, 1, 2);
    fflush(NULL);
    stage_wait(AT_ONCE - 1);
    stage.running++;
    if (forks_process() > 0)
        return;
    play(&scene, body);
    _Exit(0);
}

static void stage_end(void)
{
    stage_wait(0);
    assert_int_equal(stage.failed, 0);
}

/* Each call in both phases; way, length and victim go around, so that rounds meet all of them. */
static void test_a_killed_rank_is_named_within_a_second(void **state)
{
    (void)state;
    for (int round = 0; round < rounds; round++)
        for (int i = 0; i < ROWS * PHASES; i++) {
            uint64_t random = reference_random(seed, 3, (uint64_t)i);
            stage_play((struct scene){.row = &rows[i % ROWS],
                                      .phase = (enum phase)(i / ROWS),
                                      .way = (enum way)(random % (uint64_t)rows[i % ROWS].ways),
                                      .victim = (int)(random / 8 % RANKS),
                                      .count = random / 64 % 2 ? LARGE : SMALL},
                       scene_body);
        }
    stage_end();
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
            stage_play((struct scene){.phase = i < 5 ? BEFORE : DURING,
                                      .victim = i % RANKS,
                                      .count = (size_t)i},
                       creation_body);
    stage_end();
}

/* ---- In the end of one ---- */

/* Nobody waits for the operations that are in flight but the destroy. */
static void destroy_body(struct rank *rank)
{
    const struct scene *s = rank->argument;
    alnico_request_t requests[2];
    alnico_comm_t comm = forks_comm(rank, NULL);
    struct buffers b = make_buffers(s->count);
    REQUIRE_STATUS(alnico_barrier(comm), ALNICO_SUCCESS);
    forks_barrier(rank);
    if (rank->rank == s->victim)
        die();
    for (int i = 0; i < 2; i++)
        REQUIRE_STATUS(s->row->call(comm, &b, &requests[i]), ALNICO_SUCCESS);
    double start = ranks_seconds();
    alnico_comm_destroy(comm);
    REQUIRE(ranks_seconds() - start < (ranks_sanitized() ? 5 : 1));
    free(b.send);
    free(b.recv);
}

static void test_destroy_waits_for_no_dead_rank(void **state)
{
    (void)state;
    setenv("ALNICO_LOG", "error", 1); /* it warns of requests that failed */
    for (int i = 0; i < 4; i++)
        stage_play((struct scene){.row = &rows[i], .victim = i % RANKS, .count = SMALL},
                   destroy_body);
    stage_end();
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
