/* The shared-memory protocol by itself: ranks as threads over one area, all types and operations,
 * small and large, both ways, in sequences that use every buffer again and again; and calls that
 * differ. */
#include "comm/backends/peer/peer.h"

#include "base/datatype.h"
#include "tests/support/ranks.h"
#include "tests/support/reference.h"
#include "tests/unit/backends/peer_trial.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { WAYS = PEER_CPU_MULTIPLYING + 1 };

static uint64_t seed;

struct world {
    void *area;
    int rounds;  /* allreduces to do */
    size_t most; /* elements at most */
    int late;    /* a rank that dawdles; -1: none */
    int way;     /* of calls that differ */
};

static struct peer *join(struct rank *rank)
{
    struct peer *peer;
    const struct world *world = rank->argument;
    REQUIRE_STATUS(peer_create(world->area, rank->rank, rank->size, &peer), ALNICO_SUCCESS);
    return peer;
}

static void check(struct rank *rank, const struct call *call, uint64_t salt)
{
    int ranks[PEER_RANKS];
    char text[128];
    for (int i = 0; i < rank->size; i++)
        ranks[i] = i;
    if (reference_check(call->recv, call->count, call->type, call->op, seed + salt, ranks,
                        rank->size, text, sizeof text)) {
        fprintf(stderr, "rank %d of %d, %s, %s, seed %llu + %llu: %s\n", rank->rank, rank->size,
                datatype_name(call->type), op_name(call->op), (unsigned long long)seed,
                (unsigned long long)salt, text);
        REQUIRE(!"right");
    }
}

static void one(struct rank *rank, struct peer *peer, size_t count, alnico_datatype_t type,
                alnico_op_t op, enum peer_algorithm way, bool in_place, uint64_t salt)
{
    size_t bytes = count * datatype_bytes(type);
    char *send = malloc(bytes + 1), *recv = malloc(bytes + 1);
    REQUIRE(send && recv);
    memset(recv, 0x5a, bytes + 1);
    reference_fill(in_place ? recv : send, count, type, op, seed + salt, rank->rank);
    struct call call = {.collective = ALNICO_ALLREDUCE,
                        .send = in_place ? recv : send,
                        .recv = recv,
                        .count = count,
                        .type = type,
                        .op = op};
    REQUIRE_STATUS(trial_run(peer, &call, way), ALNICO_SUCCESS);
    REQUIRE(recv[bytes] == 0x5a);
    check(rank, &call, salt);
    free(send);
    free(recv);
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

static void every_type_body(struct rank *rank)
{
    struct peer *peer = join(rank);
    uint64_t salt = 0;
    for (int type = 0; type < DATATYPES; type++)
        for (int op = 0; op < OPS; op++)
            for (int variant = 0; variant < 2 * WAYS; variant++)
                if (op_supports((alnico_op_t)op, (alnico_datatype_t)type))
                    one(rank, peer, 77, (alnico_datatype_t)type, (alnico_op_t)op,
                        (enum peer_algorithm)(variant / 2), variant & 1, ++salt);
    peer_destroy(peer);
}

static void test_every_type_and_operation(void **state)
{
    (void)state;
    for (int size = 2; size <= 5; size += size == 2 ? 1 : 2)
        in_world(size, every_type_body, (struct world){0});
}

/* ---- Sequences of all sizes ---- */

static size_t random_count(uint64_t random, size_t most)
{
    size_t limit = random & 3 ? 1000 : most; /* mostly small */
    return (random >> 8) % (limit + 1);
}

/* Every way once, then any. */
static void sequence_body(struct rank *rank)
{
    const struct world *world = rank->argument;
    struct peer *peer = join(rank);
    for (int i = 0; i < world->rounds; i++) {
        uint64_t random = reference_random(seed, (uint64_t)i, 1);
        if (rank->rank == world->late && i % 50 == 0)
            nanosleep(&(struct timespec){0, 200000}, NULL);
        one(rank, peer, random_count(random, world->most), ALNICO_FLOAT32, ALNICO_SUM,
            (enum peer_algorithm)(i < WAYS ? (uint64_t)i : (random >> 4) % WAYS), random & 4,
            (uint64_t)i);
    }
    peer_destroy(peer);
}

static void test_sequences(void **state)
{
    (void)state;
    for (int size = 2; size <= 6; size++)
        in_world(size, sequence_body,
                 (struct world){.rounds = ranks_repetitions(80), .most = 60000, .late = size - 1});
}

static void test_many_ranks(void **state)
{
    (void)state;
    static const int sizes[] = {7, 8, 9, 12, 16, 17, 31, 33, 48, 63, 64};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++)
        in_world(sizes[i], sequence_body, (struct world){.rounds = 6, .most = 3000, .late = 0});
}

/* More than one stage of every rank, and pieces with blocks for some ranks only. */
static void pieces_body(struct rank *rank)
{
    static const size_t counts[] = {40000, 17, 70000, 1, 250};
    struct peer *peer = join(rank);
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int variant = 0; variant < 4; variant++)
            one(rank, peer, counts[i], ALNICO_INT32, ALNICO_SUM,
                variant & 1 ? PEER_CPU_TWO_SHOT : PEER_CPU_ONE_SHOT, variant & 2, i);
    peer_destroy(peer);
}

static void test_pieces_between_many_ranks(void **state)
{
    (void)state;
    static const int sizes[] = {9, 16};
    for (int i = 0; i < ranks_repetitions(2); i++)
        in_world(sizes[i], pieces_body, (struct world){0});
}

/* The edges: nothing, one element, a line and its neighbours, the last small one, a piece and its
 * neighbours. */
static void edges_body(struct rank *rank)
{
    static const size_t counts[] = {0,   1,   13,  14,    15,    28,    29,
                                    895, 896, 897, 16383, 16384, 16385, 40000};
    struct peer *peer = join(rank);
    uint64_t salt = 0;
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        for (int variant = 0; variant < 2 * WAYS; variant++)
            one(rank, peer, counts[i], ALNICO_INT32, ALNICO_SUM, (enum peer_algorithm)(variant / 2),
                variant & 1, ++salt);
    peer_destroy(peer);
}

static void test_edges(void **state)
{
    (void)state;
    in_world(2, edges_body, (struct world){0});
    in_world(3, edges_body, (struct world){0});
}

/* ---- The same bits, and one rounding ---- */

/* 1 + 2^-11 three times: rounded after each step to 16 bits the small parts are lost, in float32
 * they are not. */
static void rounding_body(struct rank *rank)
{
    struct peer *peer = join(rank);
    uint16_t one_half = 0x3c00, ulp_half = 0x1000; /* 1 and 2^-11 */
    uint16_t in = rank->rank ? ulp_half : one_half, out;
    for (int way = 0; way < WAYS; way++) {
        struct call call = {.collective = ALNICO_ALLREDUCE,
                            .send = &in,
                            .recv = &out,
                            .count = 1,
                            .type = ALNICO_FLOAT16,
                            .op = ALNICO_SUM};
        REQUIRE_STATUS(trial_run(peer, &call, (enum peer_algorithm)way), ALNICO_SUCCESS);
        REQUIRE(out == 0x3c01); /* 1 + 2 * 2^-11 = the next number after 1 */
    }
    peer_destroy(peer);
}

static void test_halves_are_rounded_once(void **state)
{
    (void)state;
    in_world(3, rounding_body, (struct world){0});
}

/* ---- Calls that differ ---- */

static void mismatch_body(struct rank *rank)
{
    const struct world *world = rank->argument;
    struct peer *peer = join(rank);
    static float in[50000], out[4][50000];
    struct call call = {.collective = ALNICO_ALLREDUCE,
                        .send = in,
                        .recv = out[rank->rank],
                        .count = world->most,
                        .type = ALNICO_FLOAT32,
                        .op = ALNICO_SUM};
    if (rank->rank == 1) {
        call.count += world->rounds == 0;
        call.op = world->rounds == 1 ? ALNICO_MAXIMUM : ALNICO_SUM;
        call.type = world->rounds == 2 ? ALNICO_INT32 : ALNICO_FLOAT32;
    }
    enum peer_algorithm way =
        world->rounds == 3 && rank->rank == 1 ? PEER_CPU_TWO_SHOT : (enum peer_algorithm)world->way;
    REQUIRE_STATUS(trial_run(peer, &call, way), ALNICO_ERROR_MISMATCH);
    peer_destroy(peer);
}

static void test_calls_that_differ(void **state)
{
    (void)state;
    for (int what = 0; what < 3; what++)
        for (int way = 0; way < WAYS; way++) {
            size_t least = way == PEER_CPU_TWO_SHOT ? 1000 : 10;
            in_world(2, mismatch_body, (struct world){.rounds = what, .most = least, .way = way});
            in_world(2, mismatch_body, (struct world){.rounds = what, .most = 20000, .way = way});
        }
    in_world(2, mismatch_body, (struct world){.rounds = 3, .most = 20000});
}

int main(void)
{
    seed = (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_type_and_operation),
        cmocka_unit_test(test_sequences),
        cmocka_unit_test(test_many_ranks),
        cmocka_unit_test(test_pieces_between_many_ranks),
        cmocka_unit_test(test_edges),
        cmocka_unit_test(test_halves_are_rounded_once),
        cmocka_unit_test(test_calls_that_differ),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
