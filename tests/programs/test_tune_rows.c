/* The ways that alnico-tune measures, the rows that it makes of times, and how they join a
 * table. */
#include "tools/tune/rows.h"

#include <limits.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { K = 1024 };

static const struct tuning_row like = {.device = ALNICO_DEVICE_CPU, .ranks = 2, .hosts = 1};

static struct tune_way way(const struct algorithm *algorithm, size_t chunk_bytes)
{
    return (struct tune_way){"host", algorithm, chunk_bytes, 0};
}

static void add_time(struct tune_size *size, const struct algorithm *algorithm, size_t chunk_bytes,
                     double time_us)
{
    tune_add_way(size, way(algorithm, chunk_bytes));
    size->time_us[size->count - 1] = time_us;
}

static int algorithms(void)
{
    int count = 0;
    while (algorithms_allreduce[count])
        count++;
    return count;
}

static void test_ways_that_differ(void **state)
{
    (void)state;
    static struct tune_size size;
    static const struct {
        size_t bytes;
        bool quick;
        int chunks;
    } cases[] = {{8, false, 1},          {4 * K, false, 1},    {4 * K + 4, false, 2},
                 {32 * K, false, 4},     {64 * K, true, 3},    {1024 * K, false, 9},
                 {64 * K * K, false, 9}, {64 * K * K, true, 4}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        size.count = 0;
        size.bytes = cases[i].bytes;
        tune_add_all(&size, ALNICO_DEVICE_CPU, ALNICO_ALLREDUCE, cases[i].quick);
        int host = 0;
        for (int k = 0; k < size.count; k++)
            host += strcmp(size.ways[k].backend, "host") == 0;
        assert_int_equal(host, cases[i].chunks * algorithms());
    }
    int before = size.count;
    tune_add_way(&size, way(&algorithm_ring, 12345));
    assert_int_equal(size.count, before + 1);
    tune_add_way(&size, way(&algorithm_ring, 12345));
    assert_int_equal(size.count, before + 1);
}

/* Chunks mean nothing to an algorithm that has no rounds. */
static void test_an_algorithm_without_rounds(void **state)
{
    (void)state;
    static const struct algorithm shared = {.name = "shared", .about = ""};
    static struct tune_size size = {.bytes = 64 * K};
    add_time(&size, &shared, 8 * K, 7);
    tune_add_way(&size, way(&shared, 16 * K));
    assert_int_equal(size.count, 1);
    assert_false(tune_cuts(&size.ways[0], 64 * K));
    struct tune_way other = way(&shared, 1024 * K);
    assert_true(tune_time(&size, &other) == 7);
}

static void test_best(void **state)
{
    (void)state;
    static struct tune_size size = {.bytes = 8 * K};
    assert_null(tune_best(&size));
    add_time(&size, &algorithm_ring, 4 * K, -1);
    assert_null(tune_best(&size));
    add_time(&size, &algorithm_ring, 8 * K, 3);
    add_time(&size, &algorithm_binomial, 8 * K, 2);
    assert_ptr_equal(tune_best(&size)->algorithm, &algorithm_binomial);
    struct tune_way larger = way(&algorithm_ring, 64 * K), other = way(&algorithm_ring, 4 * K);
    assert_true(tune_time(&size, &larger) == 3); /* not cut either */
    assert_true(tune_time(&size, &other) > 1e300);
    other.algorithm = &algorithm_rabenseifner;
    assert_true(tune_time(&size, &other) > 1e300);
}

static void require_row(const struct tuning_row *row, size_t bytes, const char *algorithm,
                        size_t chunk_bytes)
{
    assert_true(row->bytes == bytes);
    assert_string_equal(row->backend, "host");
    assert_string_equal(row->algorithm, algorithm);
    assert_int_equal(row->chunk_bytes, chunk_bytes);
    assert_int_equal(row->ranks, 2);
    assert_int_equal(row->hosts, 1);
}

/* Only what changes the choice is a row, and a message that is never cut has one row for all its
 * sizes. */
static void test_few_rows(void **state)
{
    (void)state;
    static struct tune_size sizes[4];
    struct tuning_row rows[4];
    memset(sizes, 0, sizeof sizes);
    for (int i = 0; i < 4; i++) {
        size_t bytes = sizes[i].bytes = (size_t)(4 * K) << i;
        add_time(&sizes[i], &algorithm_ring, bytes, i == 2 ? 10.2 : 10);
        add_time(&sizes[i], &algorithm_binomial, bytes, i == 2 ? 10 : 20);
        if (i > 0)
            add_time(&sizes[i], &algorithm_ring, 4 * K, 15);
    }
    assert_int_equal(tune_choose_rows(sizes, 4, 0.03, &like, rows), 1);
    require_row(&rows[0], SIZE_MAX, "ring", 32 * K);
    assert_int_equal(tune_choose_rows(sizes, 4, 0.01, &like, rows), 3);
    require_row(&rows[0], 8 * K, "ring", 8 * K);
    require_row(&rows[1], 16 * K, "binomial", 16 * K);
    require_row(&rows[2], SIZE_MAX, "ring", 32 * K);
}

/* Among ways that are about as fast, the one that goes on longest; a chunk size stays what it
 * is. */
static void test_looks_ahead(void **state)
{
    (void)state;
    static struct tune_size sizes[3];
    struct tuning_row rows[3];
    memset(sizes, 0, sizeof sizes);
    for (int i = 0; i < 3; i++) {
        sizes[i].bytes = (size_t)(8 * K) << i;
        add_time(&sizes[i], &algorithm_ring, 64 * K, i ? 30 : 10);
        add_time(&sizes[i], &algorithm_rabenseifner, 4 * K, 10.1);
    }
    assert_int_equal(tune_choose_rows(sizes, 3, 0.03, &like, rows), 1);
    require_row(&rows[0], SIZE_MAX, "rabenseifner", 4 * K);
}

static struct tuning_row row_of(int ranks, int hosts, size_t bytes, const char *algorithm)
{
    struct tuning_row row = like;
    row.ranks = ranks;
    row.hosts = hosts;
    row.bytes = bytes;
    row.chunk_bytes = 4 * K;
    strcpy(row.backend, "host");
    strcpy(row.algorithm, algorithm);
    return row;
}

static void test_rows_join_a_table(void **state)
{
    (void)state;
    struct tuning t = {.count = 5, .rows = calloc(5, sizeof *t.rows)};
    assert_non_null(t.rows);
    t.rows[0] = row_of(4, 2, SIZE_MAX, "ring");
    t.rows[1] = row_of(4, 1, 100, "ring");
    t.rows[2] = row_of(4, 1, SIZE_MAX, "binomial");
    t.rows[3] = row_of(2, 1, 100, "ring");
    t.rows[4] = row_of(2, 1, 200, "ring");
    struct tuning_row rows[] = {row_of(2, 1, 50, "rabenseifner"),
                                row_of(2, 1, SIZE_MAX, "binomial")};
    assert_int_equal(tune_merge(&t, rows, 2), ALNICO_SUCCESS);
    const struct tuning_row expected[] = {rows[0], rows[1], row_of(4, 1, 100, "ring"),
                                          row_of(4, 1, SIZE_MAX, "binomial"),
                                          row_of(4, 2, SIZE_MAX, "ring")};
    assert_int_equal(t.count, 5);
    assert_memory_equal(t.rows, expected, sizeof expected);
    struct tuning_row any =
        row_of(2, INT_MAX, SIZE_MAX, "ring"); /* two ranks have two hosts at most */
    assert_int_equal(tune_merge(&t, &any, 1), ALNICO_SUCCESS);
    assert_int_equal(t.count, 5);
    tuning_finish(&t);
}

/* Behind one for all calls it would be none. */
static void test_a_row_for_a_mode_comes_first(void **state)
{
    (void)state;
    struct tuning t = {0};
    struct tuning_row rows[] = {row_of(2, 1, SIZE_MAX, "ring"), row_of(2, 1, 100, "binomial")};
    rows[1].modes = MODE_REGISTERED;
    assert_int_equal(tune_merge(&t, rows, 2), ALNICO_SUCCESS);
    assert_int_equal(t.count, 2);
    assert_memory_equal(&t.rows[0], &rows[1], sizeof *rows);
    assert_memory_equal(&t.rows[1], &rows[0], sizeof *rows);
    tuning_finish(&t);
}

static void test_a_table_may_be_too_long(void **state)
{
    (void)state;
    struct tuning t = {.count = TUNING_ROWS_MOST, .rows = calloc(TUNING_ROWS_MOST, sizeof *t.rows)};
    assert_non_null(t.rows);
    for (int i = 0; i < t.count; i++)
        t.rows[i] = row_of(3 + i, 1, 8, "ring");
    struct tuning_row more = row_of(2, 1, 8, "ring");
    assert_int_equal(tune_merge(&t, &more, 1), ALNICO_ERROR_ARGUMENT);
    assert_int_equal(t.count, TUNING_ROWS_MOST);
    more.ranks = 3;
    assert_int_equal(tune_merge(&t, &more, 1), ALNICO_SUCCESS);
    tuning_finish(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ways_that_differ),
        cmocka_unit_test(test_an_algorithm_without_rounds),
        cmocka_unit_test(test_best),
        cmocka_unit_test(test_few_rows),
        cmocka_unit_test(test_looks_ahead),
        cmocka_unit_test(test_rows_join_a_table),
        cmocka_unit_test(test_a_row_for_a_mode_comes_first),
        cmocka_unit_test(test_a_table_may_be_too_long),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
