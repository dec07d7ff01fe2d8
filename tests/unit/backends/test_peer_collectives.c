/* The shared-memory protocol of all collectives, ranks as threads over one area: types and
 * operations, tails, in place, long mixed sequences with roots that change and ranks that dawdle,
 * so that every buffer is used again and again, also by ranks that run ahead of others; barriers;
 * and calls and counts that differ. Allreduce by itself: test_peer.c. */
#include "comm/backends/peer/peer.h"

#include "base/datatype.h"
#include "tests/support/reference.h"
#include "tests/unit/backends/peer_trial.h"

#include <sched.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { WAYS = PEER_CPU_MULTIPLYING + 1 };

static const alnico_collective_t all[] = {
    ALNICO_ALLREDUCE,  ALNICO_REDUCE,         ALNICO_BROADCAST,       ALNICO_ALLGATHER,
    ALNICO_ALLGATHERV, ALNICO_REDUCE_SCATTER, ALNICO_REDUCE_SCATTERV, ALNICO_ALLTOALL,
    ALNICO_GATHER,     ALNICO_SCATTER,        ALNICO_GATHERV,         ALNICO_SCATTERV,
    ALNICO_ALLTOALLV,  ALNICO_BARRIER};
enum { KINDS = sizeof all / sizeof *all };

struct world {
    void *area;
    int rounds;  /* collectives to do */
    size_t most; /* elements of a block at most */
    int late;    /* a rank that dawdles; -1: none */
    alnico_collective_t mine, theirs;
    atomic_int arrived;
};

static struct peer *join(struct rank *rank)
{
    struct peer *peer;
    const struct world *world = rank->argument;
    REQUIRE_STATUS(peer_create(world->area, rank->rank, rank->size, &peer), ALNICO_SUCCESS);
    return peer;
}

static void in_world(int size, void (*body)(struct rank *), struct world world)
{
    world.area = aligned_alloc(4096, peer_bytes(size));
    assert_non_null(world.area);
    memset(world.area, 0, peer_bytes(size));
    ranks_run(size, body, &world);
    free(world.area);
}

/* ---- Every type and operation ---- */

/* Reduce and reduce_scatter, in and out of place, in lines and in pieces. */
static void every_type_body(struct rank *rank)
{
    static const size_t counts[] = {1, 13, 77, 700};
    struct peer *peer = join(rank);
    for (int i = 0; i < DATATYPES * OPS * WAYS * 16; i++) {
        int variant = i / DATATYPES / OPS / WAYS;
        bool rooted = variant & 1;
        struct trial t = {.call = {.collective = rooted ? ALNICO_REDUCE : ALNICO_REDUCE_SCATTER,
                                   .count = counts[variant >> 2],
                                   .type = (alnico_datatype_t)(i % DATATYPES),
                                   .op = (alnico_op_t)(i / DATATYPES % OPS),
                                   .root = rooted ? i % rank->size : 0},
                          .way = (enum peer_algorithm)(i / DATATYPES / OPS % WAYS),
                          .in_place = variant & 2,
                          .salt = (uint64_t)i};
        if (op_supports(t.call.op, t.call.type) && peer_does(t.call.collective, t.way))
            trial_one(rank, peer, &t);
    }
    peer_destroy(peer);
}

static void test_every_type_and_operation(void **state)
{
    (void)state;
    for (int size = 2; size <= 5; size += size == 2 ? 1 : 2)
        in_world(size, every_type_body, (struct world){0});
}

/* ---- Edges ---- */

/* Nothing, an element, a line and its neighbours, the most of lines, of a piece of few and many
 * ranks, several pieces. */
static void edges_body(struct rank *rank)
{
    static const size_t counts[] = {0,   1,   2,    13,   14,   15,   37,   56,    57,    111,
                                    112, 113, 1023, 2047, 2049, 4097, 8192, 16384, 16385, 40001};
    struct peer *peer = join(rank);
    uint64_t salt = 0;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int variant = 0; variant < KINDS * WAYS * 2; variant++) {
            struct trial t = {.call = {.collective = all[variant / 2 % KINDS],
                                       .count = counts[i],
                                       .type = ALNICO_INT32,
                                       .op = ALNICO_SUM},
                              .way = (enum peer_algorithm)(variant / 2 / KINDS),
                              .in_place = variant & 1,
                              .salt = ++salt};
            if (call_has_root(&t.call))
                t.call.root = (int)(i % (size_t)rank->size);
            if (t.call.collective == ALNICO_BARRIER)
                t.call.count = 1;
            if (peer_does(t.call.collective, t.way))
                trial_one(rank, peer, &t);
        }
    peer_destroy(peer);
}

static void test_edges(void **state)
{
    (void)state;
    static const int sizes[] = {3, 2, 5};
    for (int i = 0; i < ranks_repetitions(sizeof sizes / sizeof *sizes); i++)
        in_world(sizes[i], edges_body, (struct world){0});
}

/* What begins with many ranks: a scatter's blocks in many lines, up to half a line each, and a
 * gather's groups, with blocks that take several turns. */
static void wide_body(struct rank *rank)
{
    static const size_t counts[] = {1, 2, 7, 8, 14, 15, 56, 57, 113, 450};
    struct peer *peer = join(rank);
    for (int i = 0; i < (int)(sizeof counts / sizeof *counts) * 8; i++) {
        struct trial t = {.call = {.collective = i & 1 ? ALNICO_GATHER : ALNICO_SCATTER,
                                   .count = counts[i / 8],
                                   .type = ALNICO_INT32,
                                   .op = ALNICO_SUM,
                                   .root = i % 5 * (rank->size - 1) / 4},
                          .way = i & 2 ? PEER_CPU_MULTIPLYING : PEER_CPU_ONE_SHOT,
                          .in_place = i & 4,
                          .salt = (uint64_t)i};
        if (peer_does(t.call.collective, t.way))
            trial_one(rank, peer, &t);
    }
    peer_destroy(peer);
}

static void test_many_ranks_at_the_edges(void **state)
{
    (void)state;
    static const int sizes[] = {17, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        in_world(sizes[i], wide_body, (struct world){0});
}

/* ---- Sequences of all collectives ---- */

static void dawdle(struct rank *rank, int i, int every)
{
    const struct world *world = rank->argument;
    if (rank->rank == world->late && i % every == 0)
        nanosleep(&(struct timespec){0, 300000}, NULL);
}

static struct trial random_trial(struct rank *rank, int i)
{
    const struct world *world = rank->argument;
    static const alnico_datatype_t types[] = {ALNICO_FLOAT32, ALNICO_INT8, ALNICO_FLOAT16,
                                              ALNICO_INT64};
    uint64_t random = reference_random(trial_seed, (uint64_t)i, 7);
    size_t limit = random & 7 ? 60 : world->most; /* mostly small */
    struct trial t = {.salt = (uint64_t)i, .in_place = random >> 3 & 1};
    do {
        random = reference_random(trial_seed, random, 8);
        t.way = (enum peer_algorithm)(random % WAYS);
        t.call.collective = all[random / WAYS % KINDS];
    } while (!peer_does(t.call.collective, t.way));
    t.call.count = t.call.collective == ALNICO_BARRIER ? 1 : (random >> 20) % (limit + 1);
    t.call.type = types[random >> 16 & 3];
    t.call.op = ALNICO_SUM;
    t.call.root = call_has_root(&t.call) ? (int)((random >> 12) % (uint64_t)rank->size) : 0;
    return t;
}

static void sequence_body(struct rank *rank)
{
    const struct world *world = rank->argument;
    struct peer *peer = join(rank);
    for (int i = 0; i < world->rounds; i++) {
        struct trial t = random_trial(rank, i);
        dawdle(rank, i, 20);
        trial_one(rank, peer, &t);
    }
    peer_destroy(peer);
}

static void test_sequences(void **state)
{
    (void)state;
    for (int size = 2; size <= 6; size++)
        in_world(size, sequence_body,
                 (struct world){.rounds = ranks_repetitions(300), .most = 20000, .late = size - 1});
}

static void test_many_ranks(void **state)
{
    (void)state;
    static const int sizes[] = {9, 16, 31, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        in_world(sizes[i], sequence_body,
                 (struct world){.rounds = ranks_repetitions(40), .most = 2000, .late = 3});
}

/* ---- Ranks that run ahead ---- */

/* Broadcasts, reduces and gathers only: nobody waits for everybody. Roots stay for a while, so that
 * they and the leaves come to buffers that a slow rank still reads. */
static void ahead_body(struct rank *rank)
{
    static const alnico_collective_t kinds[] = {ALNICO_BROADCAST, ALNICO_REDUCE, ALNICO_GATHER};
    const struct world *world = rank->argument;
    struct peer *peer = join(rank);
    for (int i = 0; i < world->rounds; i++) {
        struct trial t = {.call = {.collective = kinds[i / 50 % 3],
                                   .count = world->most,
                                   .type = ALNICO_INT32,
                                   .op = ALNICO_SUM,
                                   .root = i / 25 % rank->size},
                          .way = (enum peer_algorithm)(i / 10 % WAYS),
                          .salt = (uint64_t)i};
        if (!peer_does(t.call.collective, t.way))
            t.way = PEER_CPU_ONE_SHOT;
        if (i % 7 == 0) /* ranks need not call at the same time, nor stay in the same buffer */
            dawdle(rank, i, 1);
        trial_one(rank, peer, &t);
    }
    peer_destroy(peer);
}

static void test_ranks_that_run_ahead(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 100, 5000, 40000};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int late = 0; late < ranks_repetitions(3); late++)
            in_world(4, ahead_body,
                     (struct world){
                         .rounds = counts[i] > 1000 ? 150 : 600, .most = counts[i], .late = late});
}

/* The roots change with every call. */
static void changing_body(struct rank *rank)
{
    const struct world *world = rank->argument;
    struct peer *peer = join(rank);
    for (int i = 0; i < world->rounds; i++) {
        uint64_t random = reference_random(trial_seed, (uint64_t)i, 9);
        struct trial t = {.call = {.collective = ALNICO_BROADCAST,
                                   .count = world->most,
                                   .type = ALNICO_INT32,
                                   .op = ALNICO_SUM,
                                   .root = (int)(random % (uint64_t)rank->size)},
                          .way = PEER_CPU_ONE_SHOT,
                          .salt = (uint64_t)i};
        dawdle(rank, i, 40);
        trial_one(rank, peer, &t);
    }
    peer_destroy(peer);
}

static void test_broadcasts_from_changing_roots(void **state)
{
    (void)state;
    for (int size = 2; size <= 5; size++) {
        in_world(size, changing_body,
                 (struct world){.rounds = ranks_repetitions(1000), .most = 3, .late = 0});
        in_world(size, changing_body,
                 (struct world){.rounds = ranks_repetitions(60), .most = 30000, .late = 1});
    }
}

/* ---- Barriers ---- */

static void barrier_body(struct rank *rank)
{
    struct world *world = rank->argument;
    struct peer *peer = join(rank);
    struct call call = {.collective = ALNICO_BARRIER, .count = 1, .type = ALNICO_UINT8};
    for (int i = 0; i < world->rounds; i++) {
        dawdle(rank, i, 10);
        atomic_fetch_add_explicit(&world->arrived, 1, memory_order_relaxed);
        REQUIRE_STATUS(trial_run(peer, &call, i & 1 ? PEER_CPU_MULTIPLYING : PEER_CPU_ONE_SHOT),
                       ALNICO_SUCCESS);
        int arrived = atomic_load_explicit(&world->arrived, memory_order_relaxed);
        REQUIRE(arrived >= (i + 1) * rank->size);
    }
    peer_destroy(peer);
}

static void test_barriers_wait_for_everybody(void **state)
{
    (void)state;
    static const int sizes[] = {2, 3, 4, 7, 10};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        in_world(sizes[i], barrier_body, (struct world){.rounds = 200, .late = sizes[i] - 1});
}

/* ---- Calls that differ ---- */

static void mismatch_body(struct rank *rank)
{
    const struct world *world = rank->argument;
    struct peer *peer = join(rank);
    static float in[4][20000], out[4][20000];
    struct call call = {.collective = rank->rank ? world->theirs : world->mine,
                        .send = in[rank->rank],
                        .recv = out[rank->rank],
                        .count = world->most,
                        .type = ALNICO_FLOAT32,
                        .op = ALNICO_SUM};
    REQUIRE_STATUS(trial_run(peer, &call, PEER_CPU_ONE_SHOT), ALNICO_ERROR_MISMATCH);
    peer_destroy(peer);
}

static void test_calls_that_differ(void **state)
{
    (void)state;
    static const alnico_collective_t pairs[][2] = {
        {ALNICO_ALLREDUCE, ALNICO_ALLGATHER},
        {ALNICO_ALLTOALL, ALNICO_REDUCE_SCATTER},
        {ALNICO_ALLGATHER, ALNICO_ALLTOALL},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
        for (size_t count = 10; count <= 10000; count *= 1000)
            in_world(2, mismatch_body,
                     (struct world){.most = count, .mine = pairs[i][0], .theirs = pairs[i][1]});
}

/* Each expects more of the other than that has. */
static void counts_body(struct rank *rank)
{
    const struct world *world = rank->argument;
    struct peer *peer = join(rank);
    static float in[2][20000], out[2][20000];
    size_t at[2] = {0, world->most}, sent[2] = {world->most, world->most},
           taken[2] = {world->most, world->most};
    taken[1 - rank->rank]++;
    bool even = world->mine == ALNICO_ALLGATHERV, to_root = world->mine == ALNICO_GATHERV;
    bool takes_all = even || rank->rank == 0 || !to_root;
    struct call call = {.collective = world->mine,
                        .send = in[rank->rank],
                        .recv = out[rank->rank],
                        .count = world->most,
                        .type = ALNICO_FLOAT32,
                        .send_counts = even || to_root ? NULL : sent,
                        .send_at = even || to_root ? NULL : at,
                        .recv_counts = takes_all ? taken : NULL,
                        .recv_at = takes_all ? at : NULL};
    REQUIRE_STATUS(trial_run(peer, &call, PEER_CPU_ONE_SHOT),
                   takes_all ? ALNICO_ERROR_MISMATCH : ALNICO_SUCCESS);
    peer_destroy(peer);
}

static void test_counts_that_differ(void **state)
{
    (void)state;
    static const alnico_collective_t kinds[] = {ALNICO_ALLGATHERV, ALNICO_GATHERV,
                                                ALNICO_ALLTOALLV};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++)
        for (size_t count = 7; count <= 7000; count *= 1000)
            in_world(2, counts_body, (struct world){.most = count, .mine = kinds[i]});
}

/* Rank 0 has gone on to a call that rank 1 never makes before rank 1 comes to the one they share. */
static void two_calls(struct peer *ahead, struct peer *behind, alnico_collective_t kind)
{
    int32_t in[21] = {0}, out[21];
    struct call shared = {.collective = kind,
                          .send = in,
                          .recv = out,
                          .count = 20,
                          .type = ALNICO_INT32,
                          .op = ALNICO_SUM,
                          .root = kind == ALNICO_REDUCE},
                other = shared;
    other.count = 21;
    assert_int_equal(trial_run(ahead, &shared, PEER_CPU_ONE_SHOT), ALNICO_SUCCESS);
    assert_int_equal(trial_run(ahead, &other, PEER_CPU_ONE_SHOT), ALNICO_SUCCESS);
    assert_int_equal(trial_run(behind, &shared, PEER_CPU_ONE_SHOT), ALNICO_SUCCESS);
    assert_int_equal(trial_run(behind, &shared, PEER_CPU_ONE_SHOT), ALNICO_ERROR_MISMATCH);
}

static void test_a_call_that_differs_ahead(void **state)
{
    (void)state;
    for (int i = 0; i < 2; i++) {
        struct peer *ahead, *behind;
        void *area = aligned_alloc(4096, peer_bytes(2));
        assert_non_null(area);
        memset(area, 0, peer_bytes(2));
        assert_int_equal(peer_create(area, 0, 2, &ahead), ALNICO_SUCCESS);
        assert_int_equal(peer_create(area, 1, 2, &behind), ALNICO_SUCCESS);
        two_calls(ahead, behind, i ? ALNICO_REDUCE : ALNICO_BROADCAST);
        peer_destroy(ahead);
        peer_destroy(behind);
        free(area);
    }
}

int main(void)
{
    const char *text = getenv("ALNICO_TEST_SEED");
    trial_seed = text ? strtoull(text, NULL, 10) : (uint64_t)time(NULL);
    printf("seed: ALNICO_TEST_SEED=%llu\n", (unsigned long long)trial_seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_and_operation),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_many_ranks),
        cmocka_unit_test(test_many_ranks_at_the_edges),
        cmocka_unit_test(test_ranks_that_run_ahead),
        cmocka_unit_test(test_broadcasts_from_changing_roots),
        cmocka_unit_test(test_barriers_wait_for_everybody),
        cmocka_unit_test(test_calls_that_differ),
        cmocka_unit_test(test_counts_that_differ),
        cmocka_unit_test(test_a_call_that_differs_ahead),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
