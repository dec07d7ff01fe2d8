/* A column of ones in and out of matrices of random shapes, against copies of the rows. */
#include "train/base/random.h"
#include "train/kernels/realign.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SHAPES = 300, MARGIN = 7 };

static uint64_t state = 20261124;

static float *numbers(size_t count)
{
    float *out = malloc(count * sizeof *out);
    assert_non_null(out);
    for (size_t i = 0; i < count; i++)
        out[i] = (float)random_unit(&state);
    return out;
}

/* What is behind the matrix stays. */
static void check_shape(size_t rows, size_t columns)
{
    const size_t narrow = rows * columns, wide = narrow + rows, all = wide + MARGIN;
    float *first = numbers(all), *matrix = malloc(all * sizeof *matrix);
    assert_non_null(matrix);
    memcpy(matrix, first, all * sizeof *matrix);
    realign(&(struct realign){matrix, rows, columns, true});
    for (size_t r = 0; r < rows; r++) {
        assert_true(matrix[r * (columns + 1)] == 1);
        assert_memory_equal(matrix + r * (columns + 1) + 1, first + r * columns,
                            columns * sizeof *matrix);
    }
    assert_memory_equal(matrix + wide, first + wide, MARGIN * sizeof *matrix);
    realign(&(struct realign){matrix, rows, columns, false});
    assert_memory_equal(matrix, first, narrow * sizeof *matrix);
    assert_memory_equal(matrix + wide, first + wide, MARGIN * sizeof *matrix);
    free(first);
    free(matrix);
}

static void random_shapes(void **unused)
{
    (void)unused;
    printf("seed %llu\n", (unsigned long long)state);
    for (int i = 0; i < SHAPES; i++)
        check_shape(1 + random_next(&state) % (i % 3 ? 9 : 300),
                    1 + random_next(&state) % (i % 2 ? 5 : 300));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(random_shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
