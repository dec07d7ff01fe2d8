/* Every algorithm proven symbolically: elements are sets of ranks, messages go in order from pair to pair as
 * the executor sends them, and in the end every element of every rank holds each rank exactly once. */
#include "comm/algorithm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { WORDS = 3 }; /* up to 192 ranks */

struct set {
    uint64_t word[WORDS];
};

struct message {
    struct message *next;
    int from, to;
    size_t len;
    struct set data[];
};

struct place {
    struct set *recv; /* the RECV buffer */
    int round, posted;
};

struct machine {
    const struct algorithm *algorithm;
    int size;
    size_t count;
    struct place *places;
    struct message **queues; /* by receiver; in the order of sending */
};

static struct shape shape_of(const struct machine *m, int rank)
{
    return (struct shape){.rank = rank, .size = m->size, .count = m->count};
}

static void send(struct machine *m, int from, const struct exchange *x)
{
    assert_in_range(x->to, 0, m->size - 1);
    assert_int_equal(x->send.in, BUFFER_RECV);
    assert_true(x->send.at + x->send.len <= m->count);
    if (x->send.len == 0)
        return;
    struct message *message = malloc(sizeof *message + x->send.len * sizeof(struct set));
    assert_non_null(message);
    *message = (struct message){.from = from, .to = x->to, .len = x->send.len};
    memcpy(message->data, m->places[from].recv + x->send.at, x->send.len * sizeof(struct set));
    struct message **link = &m->queues[x->to];
    while (*link)
        link = &(*link)->next;
    *link = message;
}

static void add(struct set *into, const struct set *what)
{
    for (int w = 0; w < WORDS; w++) {
        assert_true((into->word[w] & what->word[w]) == 0); /* nobody is counted twice */
        into->word[w] |= what->word[w];
    }
}

static bool receive(struct machine *m, int rank, const struct exchange *x)
{
    assert_in_range(x->from, 0, m->size - 1);
    assert_true(x->recv.at + x->recv.len <= m->count);
    if (x->recv.len == 0)
        return true;
    struct message **link = &m->queues[rank];
    while (*link && (*link)->from != x->from)
        link = &(*link)->next;
    struct message *message = *link;
    if (!message)
        return false;
    assert_int_equal(message->len, x->recv.len);
    struct set *into = m->places[rank].recv + x->recv.at;
    for (size_t i = 0; i < message->len; i++) {
        if (!x->reduce)
            memset(&into[i], 0, sizeof into[i]);
        add(&into[i], &message->data[i]);
    }
    *link = message->next;
    free(message);
    return true;
}

/* One step of a rank, as the executor does it: post the round's sends, then wait for its receives. The
 * allreduce algorithms have one exchange a round. */
static bool step(struct machine *m, int rank)
{
    struct place *place = &m->places[rank];
    struct shape shape = shape_of(m, rank);
    if (place->round == m->algorithm->rounds(&shape))
        return false;
    struct exchange x;
    bool any = m->algorithm->round(&shape, place->round, 0, &x);
    if (any) {
        struct exchange second;
        assert_false(m->algorithm->round(&shape, place->round, 1, &second));
    }
    if (any && !place->posted && x.to >= 0)
        send(m, rank, &x);
    place->posted = 1;
    if (any && x.from >= 0 && !receive(m, rank, &x))
        return false;
    place->round++;
    place->posted = 0;
    return true;
}

static void begin(struct machine *m)
{
    m->places = calloc((size_t)m->size, sizeof *m->places);
    m->queues = calloc((size_t)m->size, sizeof *m->queues);
    assert_true(m->places && m->queues);
    for (int r = 0; r < m->size; r++) {
        m->places[r].recv = calloc(m->count + 1, sizeof(struct set));
        assert_non_null(m->places[r].recv);
        for (size_t i = 0; i < m->count; i++)
            m->places[r].recv[i].word[r / 64] = (uint64_t)1 << r % 64;
    }
}

static void finish(struct machine *m)
{
    struct set all = {{0}};
    for (int r = 0; r < m->size; r++)
        all.word[r / 64] |= (uint64_t)1 << r % 64;
    for (int r = 0; r < m->size; r++) {
        struct shape shape = shape_of(m, r);
        assert_int_equal(m->places[r].round, m->algorithm->rounds(&shape)); /* no deadlock */
        assert_null(m->queues[r]); /* every send met its receive */
        for (size_t i = 0; i < m->count; i++)
            assert_memory_equal(&m->places[r].recv[i], &all, sizeof all);
        free(m->places[r].recv);
    }
    free(m->places);
    free(m->queues);
}

static void prove(const struct algorithm *algorithm, int size, size_t count)
{
    struct machine m = {.algorithm = algorithm, .size = size, .count = count};
    begin(&m);
    for (bool moved = true; moved;) {
        moved = false;
        for (int r = 0; r < size; r++)
            while (step(&m, r))
                moved = true;
    }
    finish(&m);
}

static void prove_counts(const struct algorithm *algorithm, int size)
{
    size_t p = (size_t)size, counts[] = {0, 1, p - 1, p, p + 1, 1000};
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++)
        prove(algorithm, size, counts[i]);
}

static void test_every_rank_is_counted_once(void **state)
{
    (void)state;
    for (const struct algorithm *const *a = algorithms_allreduce; *a; a++) {
        for (int size = 1; size <= 64; size++)
            prove_counts(*a, size);
        for (int size = 127; size <= 129; size++)
            prove_counts(*a, size);
    }
}

static void test_blocks_cover_everything(void **state)
{
    (void)state;
    for (int blocks = 1; blocks < 20; blocks++)
        for (size_t count = 0; count < 50; count++) {
            assert_int_equal(block_at(count, blocks, 0), 0);
            assert_int_equal(block_at(count, blocks, blocks), count);
            for (int b = 0; b < blocks; b++) {
                size_t len = block_at(count, blocks, b + 1) - block_at(count, blocks, b);
                assert_in_range(len, count / (size_t)blocks, count / (size_t)blocks + 1);
            }
        }
}

static void test_blocks_of_huge_counts(void **state)
{
    (void)state;
    size_t count = SIZE_MAX / 8;
    assert_int_equal(block_at(count, 1000, 1000), count);
    assert_true(block_at(count, 1000, 999) < count);
}

static void test_fold_places(void **state)
{
    (void)state;
    for (int size = 1; size < 70; size++) {
        int seen = 0;
        for (int rank = 0; rank < size; rank++) {
            struct shape shape = {.rank = rank, .size = size};
            int place = fold_place(&shape);
            if (place < 0)
                continue;
            assert_int_equal(place, seen++); /* places follow the ranks' order */
            assert_int_equal(fold_rank(&shape, place), rank);
        }
        assert_int_equal(seen, power_below(size));
    }
}

static void test_names(void **state)
{
    (void)state;
    for (int i = 0; algorithm_at(i); i++)
        assert_ptr_equal(algorithm_find(algorithm_at(i)->name), algorithm_at(i));
    assert_string_equal(algorithm_at(0)->name, "recursive_doubling");
    assert_ptr_equal(algorithm_find("two_shot"), &algorithm_two_shot);
    assert_null(algorithm_find("bogus"));
    assert_null(algorithm_find(""));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_every_rank_is_counted_once),
        cmocka_unit_test(test_blocks_cover_everything),
        cmocka_unit_test(test_blocks_of_huge_counts),
        cmocka_unit_test(test_fold_places),
        cmocka_unit_test(test_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
