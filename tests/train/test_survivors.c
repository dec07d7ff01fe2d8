/* A run of the trainer of which a rank is killed at a random step: with shrinks the others go on and
 * end with equal parameters, as many epochs and a report that says what was lost; without, they end
 * with a status that names it. Ranks are processes. */
#include "tests/support/forks.h"
#include "tests/support/reference.h"

#include "train/trainer/trainer.h"

#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum { RANKS = 4, STEPS = 120 };

static uint64_t seed;
static int rounds = 1;

struct scene {
    bool shrinks, streams;
    size_t every;       /* steps between averages of strategy weights; 0: strategy allreduce */
    int victim, second; /* -1: none */
    uint64_t random;
};

static atomic_bool *training; /* the first step is done; shared by a scene's processes */

/* Some time after the first step. */
static void *die_soon(void *argument)
{
    while (!atomic_load(training))
        usleep(1000);
    usleep((useconds_t) * (const uint64_t *)argument);
    kill(getpid(), SIGKILL);
    return NULL;
}

/* On the lowest rank, after each step, so that the run is longer than what happens in it. */
static void note(void *unused, const struct trainer_progress *progress)
{
    (void)unused;
    (void)progress;
    atomic_store(training, true);
    usleep(3000);
}

static struct trainer_options options_make(const struct scene *s)
{
    return (struct trainer_options){.model = "cnn",
                                    .data = "synthetic:8x8x1",
                                    .kernels = "naive",
                                    .strategy = s->every ? "weights" : "allreduce",
                                    .every = s->every,
                                    .batch = 2,
                                    .steps = STEPS,
                                    .seed = 3,
                                    .tests = 12,
                                    .validate_every = 25,
                                    .shrinks = s->shrinks,
                                    .progress = note,
                                    .rule = s->every ? BUCKETS_OF_SIZE : BUCKETS_OF_COUNT,
                                    .buckets = s->every ? 0 : 3,
                                    .compute = {.threads = 1},
                                    .wire = ALNICO_FLOAT32,
                                    .optimizer = optimizer_defaults(OPTIMIZER_SGD, 4)};
}

static void require_equal(struct rank *rank, const struct scene *s, uint64_t hash)
{
    uint64_t all[RANKS];
    REQUIRE(rank->bootstrap.allgather(rank->bootstrap.context, &hash, all, sizeof hash) == 0);
    for (int i = 0; i < RANKS; i++)
        REQUIRE(i == s->victim || i == s->second || all[i] == hash);
}

static void scene_body(struct rank *rank)
{
    const struct scene *s = rank->argument;
    const struct trainer_options options = options_make(s);
    struct trainer_place place = {.host = forks_comm(rank, NULL)};
    alnico_stream_t stream = NULL;
    if (s->streams) {
        REQUIRE_STATUS(alnico_stream_create(&stream), ALNICO_SUCCESS);
        place.stream = stream;
        place.device = forks_comm(rank, stream);
    }
    const int left = RANKS - 1 - (s->second >= 0);
    const uint64_t us = (s->random >> (rank->rank == s->second ? 32 : 0)) %
                        (rank->rank == s->second ? 400000 : 150000);
    struct trainer_report report;
    pthread_t thread;
    if (rank->rank == s->victim || rank->rank == s->second)
        REQUIRE(pthread_create(&thread, NULL, die_soon, (void *)(uintptr_t)&us) == 0);
    const alnico_status_t status = trainer_run(&options, &place, &report);
    if (rank->rank == s->victim || rank->rank == s->second)
        pthread_join(thread, NULL); /* never returns */
    if (s->shrinks) {
        REQUIRE_STATUS(status, ALNICO_SUCCESS);
        REQUIRE(report.ranks == left && report.lost == RANKS - left);
        REQUIRE(report.steps == (STEPS * RANKS + left / 2) / (size_t)left);
        /* Without an average all steps up to the loss are done anew. */
        REQUIRE(s->every < STEPS || report.own_steps > report.steps);
        require_equal(rank, s, report.hash);
    } else {
        char expected[64];
        snprintf(expected, sizeof expected, "rank %d did not come: its process", s->victim);
        REQUIRE_STATUS(status, ALNICO_ERROR_TIMEOUT);
        ranks_require_detail(expected);
    }
    alnico_comm_destroy(place.device);
    if (stream)
        alnico_stream_destroy(stream);
    alnico_comm_destroy(place.host);
}

static void play(struct scene s)
{
    s.random = reference_random(seed++, 1, 2);
    training =
        mmap(NULL, sizeof *training, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    REQUIRE(training != MAP_FAILED);
    const uint64_t second = s.second >= 0 ? UINT64_C(1) << s.second : 0;
    forks_run_victims(FORKS_SECONDS, RANKS, UINT64_C(1) << s.victim | second, SIGKILL, scene_body,
                      &s);
}

static void test_the_others_go_on(void **state)
{
    (void)state;
    for (int i = 0; i < 2 * rounds; i++)
        play((struct scene){.shrinks = true, .victim = (int)(seed % RANKS), .second = -1});
}

/* From the last step that was kept. */
static void test_on_a_stream(void **state)
{
    (void)state;
    for (int i = 0; i < rounds; i++)
        play((struct scene){.shrinks = true,
                            .streams = true,
                            .victim = (int)(seed % RANKS),
                            .second = i % 2 ? (int)((seed + 1) % RANKS) : -1});
}

/* In each step, seldom, so that the ranks' parameters are apart when one is lost, and never before. */
static void test_averages_of_weights(void **state)
{
    (void)state;
    static const size_t every[] = {1, 7, 2 * STEPS};
    for (int i = 0; i < 4 * rounds; i++)
        play((struct scene){.shrinks = true,
                            .streams = i % 4 == 3,
                            .every = every[i % 3],
                            .victim = (int)(seed % RANKS),
                            .second = -1});
}

static void test_two_may_be_lost(void **state)
{
    (void)state;
    for (int i = 0; i < rounds; i++)
        play((struct scene){
            .shrinks = true, .victim = (int)(seed % RANKS), .second = (int)((seed + 1) % RANKS)});
}

static void test_otherwise_the_run_ends(void **state)
{
    (void)state;
    play((struct scene){.victim = (int)(seed % RANKS), .second = -1});
}

/* Usage: train_survivors [ROUNDS [SEED]] */
int main(int argc, char **argv)
{
    rounds = argc > 1 ? atoi(argv[1]) : 1;
    seed = argc > 2 ? strtoull(argv[2], NULL, 10) : (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)seed);
    setenv("ALNICO_LOG", "error", 1); /* it warns of what was lost */
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_the_others_go_on),       cmocka_unit_test(test_on_a_stream),
        cmocka_unit_test(test_averages_of_weights),    cmocka_unit_test(test_two_may_be_lost),
        cmocka_unit_test(test_otherwise_the_run_ends),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
