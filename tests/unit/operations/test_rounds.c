/* The executor with every algorithm over the local transport, all ranks polled by one thread in a
 * random order: results against exact integers, the same bits on all ranks, and what happens on
 * errors. */
#include "comm/operations/rounds.h"

#include "tests/support/reference.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static uint64_t seed;

struct world {
    int size;
    struct host_map *map; /* three hosts in turns */
    struct transport **transports;
    struct rounds *rounds;
};

static void world_create(struct world *w, int size)
{
    struct local_hub *hub = local_hub_create(size);
    assert_non_null(hub);
    w->size = size;
    w->transports = calloc((size_t)size, sizeof(struct transport *));
    w->rounds = calloc((size_t)size, sizeof *w->rounds);
    assert_true(w->transports && w->rounds);
    uint64_t *identities = calloc((size_t)size, sizeof *identities);
    assert_non_null(identities);
    for (int r = 0; r < size; r++)
        identities[r] = (uint64_t)(r % 3);
    w->map = host_map_create(identities, size);
    assert_non_null(w->map);
    free(identities);
    for (int r = 0; r < size; r++) {
        assert_int_equal(transport_local_create(hub, r, &w->transports[r]), ALNICO_SUCCESS);
        w->transports[r]->sends_first = r % 2; /* either order meets either */
    }
}

static void world_destroy(struct world *w)
{
    for (int r = 0; r < w->size; r++)
        w->transports[r]->ops->destroy(w->transports[r]);
    free(w->transports);
    free(w->rounds);
    free(w->map);
}

static void setup(struct world *w, int r, const struct algorithm *algorithm, size_t count,
                  alnico_datatype_t type)
{
    struct rounds *x = &w->rounds[r];
    *x = (struct rounds){.algorithm = algorithm,
                         .shape = {.rank = r, .size = w->size, .map = w->map, .count = count},
                         .transport = w->transports[r],
                         .tag = 5,
                         .device = &device_cpu,
                         .type = type,
                         .op = ALNICO_SUM};
    x->buffer[BUFFER_RECV] = calloc(count + 1, 8);
    x->arrivals = calloc(count + 1 + (algorithm->work ? algorithm->work(&x->shape) : 0), 8);
    assert_true(x->buffer[BUFFER_RECV] && x->arrivals);
    x->buffer[BUFFER_WORK] = x->arrivals + 8 * (count + 1);
    reference_fill(x->buffer[BUFFER_RECV], count, type, ALNICO_SUM, seed, r);
    rounds_begin(x);
}

static void teardown(struct rounds *x)
{
    free(x->buffer[BUFFER_RECV]);
    free(x->arrivals);
}

/* Polls all ranks, beginning somewhere else each time, until all have ended. */
static void drive(struct world *w)
{
    int ended = 0;
    bool *done = calloc((size_t)w->size, sizeof *done);
    assert_non_null(done);
    for (uint64_t turn = 0; ended < w->size; turn++) {
        bool moved = false;
        int first = (int)(reference_random(seed, turn, 0) % (uint64_t)w->size);
        for (int i = 0; i < w->size; i++) {
            int r = (first + i) % w->size;
            if (done[r])
                continue;
            alnico_status_t status = rounds_poll(&w->rounds[r], &moved);
            assert_true(status == ALNICO_SUCCESS || status == ALNICO_PENDING);
            done[r] = status == ALNICO_SUCCESS;
            ended += done[r];
            moved |= done[r];
        }
        assert_true(moved || turn < 4); /* posting alone is no move; standing still is a deadlock */
    }
    free(done);
}

static void check(struct world *w, size_t count, alnico_datatype_t type)
{
    char text[128] = "";
    int *ranks = calloc((size_t)w->size, sizeof *ranks);
    size_t bytes = type == ALNICO_FLOAT32 ? 4 : 8;
    for (int r = 0; r < w->size; r++)
        ranks[r] = r;
    const char *first = w->rounds[0].buffer[BUFFER_RECV];
    size_t wrong =
        reference_check(first, count, type, ALNICO_SUM, seed, ranks, w->size, text, sizeof text);
    if (wrong)
        fail_msg("%s: %s", w->rounds[0].algorithm->name, text);
    for (int r = 1; r < w->size; r++)
        assert_memory_equal(w->rounds[r].buffer[BUFFER_RECV], first, count * bytes);
    free(ranks);
}

static void run_case(struct world *w, const struct algorithm *algorithm, size_t count,
                     alnico_datatype_t type)
{
    for (int r = 0; r < w->size; r++)
        setup(w, r, algorithm, count, type);
    drive(w);
    check(w, count, type);
    for (int r = 0; r < w->size; r++)
        teardown(&w->rounds[r]);
}

static void run_size(int size)
{
    struct world w;
    world_create(&w, size);
    size_t p = (size_t)size, counts[] = {0, 1, p - 1, p, p + 1, 1000};
    for (const struct algorithm *const *a = algorithms_allreduce; *a; a++)
        for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
            run_case(&w, *a, counts[i], ALNICO_INT64);
            run_case(&w, *a, counts[i], ALNICO_FLOAT32);
        }
    world_destroy(&w);
}

static void test_all_algorithms_over_local(void **state)
{
    (void)state;
    for (int size = 1; size <= 64; size = size < 20 ? size + 1 : size + 11)
        run_size(size);
    for (int size = 127; size <= 129; size++)
        run_size(size);
}

static void test_same_bits_in_repeated_runs(void **state)
{
    (void)state;
    enum { COUNT = 777 };
    static float before[COUNT];
    struct world w;
    world_create(&w, 7);
    for (const struct algorithm *const *a = algorithms_allreduce; *a; a++)
        for (int again = 0; again < 2; again++) {
            for (int r = 0; r < w.size; r++)
                setup(&w, r, *a, COUNT, ALNICO_FLOAT32);
            drive(&w);
            const char *result = w.rounds[3].buffer[BUFFER_RECV];
            if (again)
                assert_memory_equal(result, before, sizeof before);
            memcpy(before, result, sizeof before);
            for (int r = 0; r < w.size; r++)
                teardown(&w.rounds[r]);
        }
    world_destroy(&w);
}

static void test_different_sizes_are_an_error(void **state)
{
    (void)state;
    struct world w;
    world_create(&w, 2);
    setup(&w, 0, &algorithm_recursive_doubling, 10, ALNICO_INT64);
    setup(&w, 1, &algorithm_recursive_doubling, 11, ALNICO_INT64);
    bool moved;
    assert_int_equal(rounds_poll(&w.rounds[0], &moved), ALNICO_PENDING);
    assert_int_equal(rounds_poll(&w.rounds[1], &moved), ALNICO_ERROR_MISMATCH);
    assert_int_equal(rounds_poll(&w.rounds[0], &moved), ALNICO_ERROR_MISMATCH);
    for (int r = 0; r < 2; r++) {
        rounds_cancel(&w.rounds[r]);
        teardown(&w.rounds[r]);
    }
    world_destroy(&w);
}

static void test_cancel_and_whom_it_waits_for(void **state)
{
    (void)state;
    struct world w;
    world_create(&w, 3);
    bool moved = false;
    setup(&w, 0, &algorithm_ring, 30, ALNICO_INT64);
    assert_int_equal(rounds_waits_for(&w.rounds[0]), -1);
    assert_int_equal(rounds_poll(&w.rounds[0], &moved), ALNICO_PENDING);
    assert_int_equal(rounds_waits_for(&w.rounds[0]), 2);
    rounds_cancel(&w.rounds[0]);
    assert_int_equal(rounds_waits_for(&w.rounds[0]), -1);
    teardown(&w.rounds[0]);
    world_destroy(&w);
}

/* The form allows local copies and reductions, WORK space and several exchanges a round. */
static size_t twice_work(const struct shape *shape)
{
    return shape->count;
}

static int twice_rounds(const struct shape *shape)
{
    (void)shape;
    return 2;
}

/* Round 0 keeps a copy in WORK; round 1 adds that copy, so that RECV doubles, and swaps halves of
 * WORK with the other rank. */
static bool twice_round(const struct shape *s, int i, int k, struct exchange *out)
{
    struct span recv = {BUFFER_RECV, 0, s->count}, work = {BUFFER_WORK, 0, s->count};
    struct span low = {BUFFER_WORK, 0, s->count / 2},
                high = {BUFFER_WORK, s->count / 2, s->count / 2};
    if (i == 0 && k == 0)
        *out = (struct exchange){s->rank, s->rank, recv, work, false};
    else if (i == 1 && k == 0)
        *out = (struct exchange){s->rank, s->rank, work, recv, true};
    else if (i == 1 && k == 1)
        *out = (struct exchange){1 - s->rank, 1 - s->rank, low, high, false};
    else
        return false;
    return true;
}

static void test_local_copies_work_and_several_exchanges(void **state)
{
    (void)state;
    const struct algorithm twice = {
        .name = "twice", .work = twice_work, .round = twice_round, .rounds = twice_rounds};
    struct world w;
    world_create(&w, 2);
    int64_t work[2][10], inputs[2][10];
    for (int r = 0; r < 2; r++) {
        setup(&w, r, &twice, 10, ALNICO_INT64);
        w.rounds[r].buffer[BUFFER_WORK] = (char *)work[r];
        memcpy(inputs[r], w.rounds[r].buffer[BUFFER_RECV], sizeof inputs[r]);
    }
    drive(&w);
    for (int r = 0; r < 2; r++) {
        const int64_t *recv = (const int64_t *)(void *)w.rounds[r].buffer[BUFFER_RECV];
        for (int i = 0; i < 10; i++)
            assert_true((uint64_t)recv[i] == 2 * (uint64_t)inputs[r][i]);
        for (int i = 0; i < 5; i++)
            assert_true(work[r][5 + i] == inputs[1 - r][i]);
        teardown(&w.rounds[r]);
    }
    world_destroy(&w);
}

int main(void)
{
    seed = (uint64_t)time(NULL);
    printf("seed %llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_algorithms_over_local),
        cmocka_unit_test(test_same_bits_in_repeated_runs),
        cmocka_unit_test(test_different_sizes_are_an_error),
        cmocka_unit_test(test_cancel_and_whom_it_waits_for),
        cmocka_unit_test(test_local_copies_work_and_several_exchanges),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
