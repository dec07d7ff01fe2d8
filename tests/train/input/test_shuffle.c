/* Orders of an epoch: permutations, near in the file by blocks, and of what a source hears before. */
#include "train/input/shuffle.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { MOST = 5000 };

static uint64_t seed;
static int heard[MOST];

static void hear(const void *self, size_t index, size_t count)
{
    (void)self;
    for (size_t i = index; i < index + count; i++)
        heard[i]++;
}

static void check_permutation(const struct shuffle *shuffle)
{
    static int seen[MOST];
    memset(seen, 0, sizeof seen);
    for (size_t i = 0; i < shuffle->count; i++)
        assert_int_equal(seen[shuffle->order[i]]++, 0);
}

static const struct {
    size_t count, block;
} cases[] = {{1, 0},   {100, 0},  {1, 1},    {7, 10},    {160, 10},   {161, 10},
             {999, 7}, {MOST, 1}, {MOST, 3}, {4999, 64}, {MOST, 300}, {MOST, 313}};
enum { CASES = sizeof cases / sizeof *cases };

static void every_image_comes_once(void **state)
{
    (void)state;
    for (size_t c = 0; c < CASES; c++) {
        struct shuffle shuffle;
        assert_int_equal(shuffle_create(cases[c].count, cases[c].block, &shuffle), ALNICO_SUCCESS);
        for (size_t i = 0; i < cases[c].count; i++)
            assert_int_equal(shuffle.order[i], i);
        for (uint64_t epoch = 0; epoch < 3; epoch++) {
            shuffle_draw(&shuffle, seed + epoch);
            check_permutation(&shuffle);
        }
        shuffle_free(&shuffle);
    }
}

static void orders_follow_the_state_alone(void **state)
{
    (void)state;
    for (size_t c = 0; c < CASES; c++) {
        struct shuffle a, b;
        const size_t count = cases[c].count, bytes = count * sizeof *a.order;
        assert_int_equal(shuffle_create(count, cases[c].block, &a), ALNICO_SUCCESS);
        assert_int_equal(shuffle_create(count, cases[c].block, &b), ALNICO_SUCCESS);
        shuffle_draw(&a, seed);
        shuffle_draw(&b, seed + 1);
        assert_true(count < 20 || memcmp(a.order, b.order, bytes) != 0);
        shuffle_draw(&b, seed);
        assert_memory_equal(a.order, b.order, bytes);
        shuffle_free(&a);
        shuffle_free(&b);
    }
}

/* A window has the images of 16 blocks, or, behind the short one, of 17; in no order. */
static void windows_are_of_few_blocks(void **state)
{
    (void)state;
    enum { BLOCK = 20, COUNT = 4990, WINDOW = SHUFFLE_WINDOW * BLOCK };
    struct shuffle shuffle;
    size_t neighbours = 0;
    assert_int_equal(shuffle_create(COUNT, BLOCK, &shuffle), ALNICO_SUCCESS);
    shuffle_draw(&shuffle, seed);
    for (size_t at = 0; at < COUNT; at += WINDOW) {
        bool seen[COUNT / BLOCK + 1] = {false};
        size_t blocks = 0, last = 0;
        for (size_t i = at; i < COUNT && i < at + WINDOW; i++) {
            const size_t block = shuffle.order[i] / BLOCK;
            blocks += !seen[block];
            seen[block] = true;
            neighbours += shuffle.order[i] == last + 1;
            last = shuffle.order[i];
        }
        assert_true(blocks <= SHUFFLE_WINDOW + 1);
    }
    assert_true(neighbours < COUNT / 20);
    shuffle_free(&shuffle);
}

static void sources_hear_of_images_before_they_are_read(void **state)
{
    (void)state;
    static const struct source_ops ops = {.expect = hear};
    const struct source source = {.ops = &ops};
    for (size_t c = 0; c < CASES; c++) {
        const size_t window = SHUFFLE_WINDOW * cases[c].block;
        struct shuffle shuffle;
        memset(heard, 0, sizeof heard);
        assert_int_equal(shuffle_create(cases[c].count, cases[c].block, &shuffle), ALNICO_SUCCESS);
        shuffle_draw(&shuffle, seed);
        for (size_t at = 0; at < cases[c].count; at++) {
            shuffle_expect(&shuffle, at, at, &source);
            assert_true(!window || heard[shuffle.order[at]]);
        }
        for (size_t i = 0; i < cases[c].count; i++) /* the last of a window's is the next's first */
            assert_true(window ? heard[i] >= 1 && heard[i] <= 2 : heard[i] == 0);
        shuffle_free(&shuffle);
    }
}

int main(void)
{
    const char *given = getenv("TEST_SEED");
    seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    printf("TEST_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_image_comes_once),
        cmocka_unit_test(orders_follow_the_state_alone),
        cmocka_unit_test(windows_are_of_few_blocks),
        cmocka_unit_test(sources_hear_of_images_before_they_are_read),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
