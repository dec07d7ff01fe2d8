/* The arithmetic that algorithms share. */
#include "comm/algorithms/algorithm.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

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

/* Every place but the root's hangs below its parent, and an extent is the places below and
 * itself. */
static void test_tree_places(void **state)
{
    (void)state;
    for (int size = 1; size < 70; size++)
        for (int rank = 0; rank < size; rank++) {
            struct shape shape = {.rank = rank, .size = size, .root = size / 3};
            int place = tree_place(&shape), below = 1;
            assert_int_equal(tree_rank(&shape, place), rank);
            assert_int_equal(place == 0, rank == shape.root);
            for (int other = 1; other < size; other++)
                for (int up = other; up > 0 && other != place; up &= up - 1)
                    below += (up & (up - 1)) == place;
            assert_int_equal(tree_extent(&shape, place), below);
            assert_int_equal(rank_beyond(&shape, -size), rank);
            assert_int_equal(rank_beyond(&shape, 1), rank == size - 1 ? 0 : rank + 1);
        }
}

static void test_logarithms(void **state)
{
    (void)state;
    for (int p = 1, below = 0, above = 0; p < 1000; p++) {
        below += p == 2 << below;
        above += p > 1 << above;
        assert_int_equal(log_below(p), below);
        assert_int_equal(log_above(p), above);
        assert_int_equal(power_below(p), 1 << below);
    }
}

static size_t elements_received(const struct algorithm *algorithm, const struct shape *shape)
{
    size_t received = 0;
    struct exchange exchange;
    for (int i = 0; i < algorithm->rounds(shape); i++)
        for (int k = 0; algorithm->round(shape, i, k, &exchange); k++)
            if (exchange.from >= 0 && exchange.from != shape->rank)
                received += exchange.recv.len;
    return received;
}

/* Nothing comes twice in a broadcast, and who adds nothing in a reduction needs no scratch. */
static void test_costs_of_rooted_trees(void **state)
{
    (void)state;
    for (int size = 1; size < 20; size++)
        for (int rank = 0; rank < size; rank++) {
            struct shape shape = {.rank = rank, .size = size, .root = size / 3, .count = 100};
            bool root = rank == shape.root, leaf = tree_extent(&shape, tree_place(&shape)) == 1;
            for (int a = 0; algorithms_broadcast[a]; a++)
                assert_int_equal(elements_received(algorithms_broadcast[a], &shape),
                                 root ? 0 : shape.count);
            assert_int_equal(algorithm_reduce_binomial.work(&shape),
                             root || leaf ? 0 : shape.count);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_logarithms),
        cmocka_unit_test(test_tree_places),
        cmocka_unit_test(test_costs_of_rooted_trees),
        cmocka_unit_test(test_blocks_cover_everything),
        cmocka_unit_test(test_blocks_of_huge_counts),
        cmocka_unit_test(test_fold_places),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
