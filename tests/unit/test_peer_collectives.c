/* The shared-memory protocol of all collectives, ranks as threads over one area: types and operations, tails, in place,
 * long mixed sequences with roots that change and ranks that dawdle, so that every buffer is used again and again, also by
 * ranks that run ahead of others; barriers; and calls that differ. Allreduce by itself: test_peer.c. */
#include "comm/peer.h"

#include "datatype.h"
#include "ranks.h"
#include "reference.h"

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

enum { WAYS = PEER_MULTIPLYING + 1 };

static uint64_t seed;

static const alnico_collective_t all[] = {ALNICO_ALLREDUCE, ALNICO_REDUCE,         ALNICO_BROADCAST,
                                          ALNICO_ALLGATHER, ALNICO_REDUCE_SCATTER, ALNICO_ALLTOALL,
                                          ALNICO_GATHER,    ALNICO_SCATTER,        ALNICO_BARRIER};
enum { KINDS = sizeof all / sizeof *all };

struct world {
    void *area;
    int rounds;  /* collectives to do */
    size_t most; /* elements of a block at most */
    int late;    /* a rank that dawdles; -1: none */
    alnico_collective_t mine, theirs;
    atomic_int arrived;
};

/* One call, as all ranks know it. */
struct trial {
    struct call call;
    enum peer_way way;
    bool in_place;
    uint64_t salt;
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

static alnico_status_t run(struct peer *peer, const struct call *call, enum peer_way way)
{
    struct peer_run run;
    alnico_status_t status;
    bool moved = false;
    peer_begin(&run, peer, call, way);
    while ((status = peer_poll(&run, &moved)) == ALNICO_PENDING)
        sched_yield();
    return status;
}

/* ---- Inputs and results ---- */

static bool has(const struct trial *t, alnico_collective_t a, alnico_collective_t b)
{
    return t->call.collective == a || t->call.collective == b;
}

static int blocks_sent(const struct trial *t, int size)
{
    return has(t, ALNICO_REDUCE_SCATTER, ALNICO_ALLTOALL) || has(t, ALNICO_SCATTER, ALNICO_SCATTER)
               ? size
               : 1;
}

static int blocks_taken(const struct trial *t, int size)
{
    return has(t, ALNICO_ALLGATHER, ALNICO_ALLTOALL) || has(t, ALNICO_GATHER, ALNICO_GATHER) ? size
                                                                                             : 1;
}

/* What a rank has in the block for `to`. */
static void fill(const struct trial *t, char *block, int from, int to)
{
    uint64_t which = seed + t->salt + 1000003 * (uint64_t)to;
    reference_fill(block, t->call.count, t->call.type, t->call.op, which, from);
}

static void complain(struct rank *rank, const struct trial *t, const char *what)
{
    char text[128];
    fprintf(stderr, "rank %d of %d, %s, way %d%s, seed %llu + %llu: %s\n", rank->rank, rank->size,
            call_describe(&t->call, text, sizeof text), (int)t->way,
            t->in_place ? ", in place" : "", (unsigned long long)seed, (unsigned long long)t->salt,
            what);
    REQUIRE(!"right");
}

static void check_sum(struct rank *rank, const struct trial *t, const char *result)
{
    int ranks[PEER_RANKS], block = blocks_sent(t, rank->size) > 1 ? rank->rank : 0;
    char text[128];
    for (int i = 0; i < rank->size; i++)
        ranks[i] = i;
    if (reference_check(result, t->call.count, t->call.type, t->call.op,
                        seed + t->salt + 1000003 * (uint64_t)block, ranks, rank->size, text,
                        sizeof text))
        complain(rank, t, text);
}

static void check_block(struct rank *rank, const struct trial *t, const char *result, int from)
{
    size_t bytes = t->call.count * datatype_bytes(t->call.type);
    char *expected = malloc(bytes + 1);
    REQUIRE(expected);
    fill(t, expected, from, blocks_sent(t, rank->size) > 1 ? rank->rank : 0);
    if (memcmp(result, expected, bytes) != 0)
        complain(rank, t, "other bytes than were sent");
    free(expected);
}

static void check(struct rank *rank, const struct trial *t, const char *result)
{
    size_t bytes = t->call.count * datatype_bytes(t->call.type);
    if (has(t, ALNICO_BARRIER, ALNICO_BARRIER) ||
        (has(t, ALNICO_REDUCE, ALNICO_GATHER) && rank->rank != t->call.root))
        return;
    if (call_reduces(&t->call))
        check_sum(rank, t, result);
    else if (has(t, ALNICO_BROADCAST, ALNICO_SCATTER))
        check_block(rank, t, result, t->call.root);
    else
        for (int from = 0; from < rank->size; from++)
            check_block(rank, t, result + (size_t)from * bytes, from);
}

/* ---- One call ---- */

/* Both buffers have room for all blocks, and a byte behind. */
struct buffers {
    char *send, *recv;
    size_t end;
};

static char *poisoned(size_t bytes)
{
    char *buffer = malloc(bytes + 1);
    REQUIRE(buffer);
    memset(buffer, 0x5a, bytes + 1);
    return buffer;
}

static void fill_all(struct rank *rank, const struct trial *t, char *send)
{
    size_t bytes = t->call.count * datatype_bytes(t->call.type);
    if (has(t, ALNICO_BROADCAST, ALNICO_BROADCAST) && rank->rank != t->call.root)
        return;
    for (int to = 0; to < blocks_sent(t, rank->size); to++)
        fill(t, send + (size_t)to * bytes, rank->rank, to);
}

/* Where in place has the two: see struct shape. */
static void point(struct rank *rank, const struct trial *t, struct buffers *b, struct call *call)
{
    size_t block = t->call.count * datatype_bytes(t->call.type) * (size_t)rank->rank;
    bool at_root = rank->rank == t->call.root, spread = has(t, ALNICO_GATHER, ALNICO_SCATTER);
    bool in_place = t->in_place && (at_root || !spread);
    call->send = b->send;
    call->recv = b->recv;
    if (has(t, ALNICO_BROADCAST, ALNICO_BROADCAST) ||
        (in_place && !spread && !has(t, ALNICO_ALLGATHER, ALNICO_REDUCE_SCATTER)))
        call->recv = b->send;
    else if (in_place && has(t, ALNICO_ALLGATHER, ALNICO_GATHER))
        call->send = b->recv + block;
    else if (in_place)
        call->recv = b->send + block;
    if (has(t, ALNICO_BARRIER, ALNICO_BARRIER))
        call->send = call->recv = NULL;
    if (has(t, ALNICO_REDUCE, ALNICO_GATHER) && !at_root)
        call->recv = NULL;
    if (has(t, ALNICO_SCATTER, ALNICO_SCATTER) && !at_root)
        call->send = NULL;
}

static void one(struct rank *rank, struct peer *peer, const struct trial *t)
{
    size_t bytes = t->call.count * datatype_bytes(t->call.type);
    struct buffers b = {.end = (size_t)rank->size * bytes};
    b.send = poisoned(b.end);
    b.recv = poisoned(b.end);
    struct call call = t->call;
    point(rank, t, &b, &call);
    fill_all(rank, t, call.send ? (char *)(uintptr_t)call.send : b.send);
    REQUIRE_STATUS(run(peer, &call, t->way), ALNICO_SUCCESS);
    REQUIRE(b.send[b.end] == 0x5a && b.recv[b.end] == 0x5a);
    if (!t->in_place && blocks_taken(t, rank->size) == 1 && b.end > bytes)
        REQUIRE(b.recv[bytes] == 0x5a);
    check(rank, t, call.recv);
    free(b.send);
    free(b.recv);
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
                          .way = (enum peer_way)(i / DATATYPES / OPS % WAYS),
                          .in_place = variant & 2,
                          .salt = (uint64_t)i};
        if (op_supports(t.call.op, t.call.type) && peer_does(t.call.collective, t.way))
            one(rank, peer, &t);
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

/* Nothing, an element, a line and its neighbours, the most of lines, of a piece of few and many ranks, several pieces. */
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
                              .way = (enum peer_way)(variant / 2 / KINDS),
                              .in_place = variant & 1,
                              .salt = ++salt};
            if (call_has_root(&t.call))
                t.call.root = (int)(i % (size_t)rank->size);
            if (t.call.collective == ALNICO_BARRIER)
                t.call.count = 1;
            if (peer_does(t.call.collective, t.way))
                one(rank, peer, &t);
        }
    peer_destroy(peer);
}

static void test_edges(void **state)
{
    (void)state;
    static const int sizes[] = {2, 3, 5};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        in_world(sizes[i], edges_body, (struct world){0});
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
    uint64_t random = reference_random(seed, (uint64_t)i, 7);
    size_t limit = random & 7 ? 60 : world->most; /* mostly small */
    struct trial t = {.salt = (uint64_t)i, .in_place = random >> 3 & 1};
    do {
        random = reference_random(seed, random, 8);
        t.way = (enum peer_way)(random % WAYS);
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
        one(rank, peer, &t);
    }
    peer_destroy(peer);
}

static void test_sequences(void **state)
{
    (void)state;
    for (int size = 2; size <= 6; size++)
        in_world(size, sequence_body,
                 (struct world){.rounds = 300, .most = 20000, .late = size - 1});
}

static void test_many_ranks(void **state)
{
    (void)state;
    static const int sizes[] = {9, 16, 31, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        in_world(sizes[i], sequence_body, (struct world){.rounds = 40, .most = 2000, .late = 3});
}

/* ---- Ranks that run ahead ---- */

/* Broadcasts and reduces only: nobody waits for everybody. Roots stay for a while, so that they and the leaves come to
 * buffers that a slow rank still reads. */
static void ahead_body(struct rank *rank)
{
    const struct world *world = rank->argument;
    struct peer *peer = join(rank);
    for (int i = 0; i < world->rounds; i++) {
        struct trial t = {.call = {.collective = i / 50 & 1 ? ALNICO_REDUCE : ALNICO_BROADCAST,
                                   .count = world->most,
                                   .type = ALNICO_INT32,
                                   .op = ALNICO_SUM,
                                   .root = i / 25 % rank->size},
                          .way = PEER_ONE_SHOT,
                          .salt = (uint64_t)i};
        if (t.call.collective == ALNICO_REDUCE)
            t.way = (enum peer_way)(i / 10 % WAYS);
        if (i % 7 == 0) /* ranks need not call at the same time, nor stay in the same buffer */
            dawdle(rank, i, 1);
        one(rank, peer, &t);
    }
    peer_destroy(peer);
}

static void test_ranks_that_run_ahead(void **state)
{
    (void)state;
    static const size_t counts[] = {1, 100, 5000, 40000};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int late = 0; late < 3; late++)
            in_world(4, ahead_body,
                     (struct world){
                         .rounds = counts[i] > 1000 ? 60 : 400, .most = counts[i], .late = late});
}

/* The roots change with every call. */
static void changing_body(struct rank *rank)
{
    const struct world *world = rank->argument;
    struct peer *peer = join(rank);
    for (int i = 0; i < world->rounds; i++) {
        uint64_t random = reference_random(seed, (uint64_t)i, 9);
        struct trial t = {.call = {.collective = ALNICO_BROADCAST,
                                   .count = world->most,
                                   .type = ALNICO_INT32,
                                   .op = ALNICO_SUM,
                                   .root = (int)(random % (uint64_t)rank->size)},
                          .way = PEER_ONE_SHOT,
                          .salt = (uint64_t)i};
        dawdle(rank, i, 40);
        one(rank, peer, &t);
    }
    peer_destroy(peer);
}

static void test_broadcasts_from_changing_roots(void **state)
{
    (void)state;
    for (int size = 2; size <= 5; size++) {
        in_world(size, changing_body, (struct world){.rounds = 1000, .most = 3, .late = 0});
        in_world(size, changing_body, (struct world){.rounds = 60, .most = 30000, .late = 1});
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
        REQUIRE_STATUS(run(peer, &call, i & 1 ? PEER_MULTIPLYING : PEER_ONE_SHOT), ALNICO_SUCCESS);
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
    REQUIRE_STATUS(run(peer, &call, PEER_ONE_SHOT), ALNICO_ERROR_MISMATCH);
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

int main(void)
{
    seed = (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_and_operation),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_many_ranks),
        cmocka_unit_test(test_ranks_that_run_ahead),
        cmocka_unit_test(test_broadcasts_from_changing_roots),
        cmocka_unit_test(test_barriers_wait_for_everybody),
        cmocka_unit_test(test_calls_that_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
