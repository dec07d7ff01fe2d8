/* A column of ones in and out of matrices on a GPU, of random shapes and of the most numbers: each
 * number is the pattern of its place. Prints every difference and goes on. */
#include "tests/gpu/train/check.h"

#include "train/base/random.h"
#include "train/kernels/realign.h"

#include <string.h>

enum { SHAPES = 60, PIECE = 1 << 24 };

static uint64_t state = 20261124;
static struct train_gpu gpu;
static float *piece;

/* Of the number that stands at a place of the matrix without ones. */
static float pattern(size_t place)
{
    return (float)(place * 2654435761u % 16777213) + 2;
}

static float expected(size_t at, size_t columns, bool right)
{
    if (!right)
        return pattern(at);
    const size_t row = at / (columns + 1), column = at % (columns + 1);
    return column ? pattern(row * columns + column - 1) : 1;
}

static void matrix_fill(float *matrix, size_t count)
{
    for (size_t from = 0; from < count; from += PIECE) {
        const size_t some = count - from < PIECE ? count - from : PIECE;
        for (size_t i = 0; i < some; i++)
            piece[i] = pattern(from + i);
        cudaMemcpy(matrix + from, piece, some * sizeof *piece, cudaMemcpyHostToDevice);
    }
}

static void matrix_check(const char *what, const float *matrix, const struct realign *pass)
{
    const size_t count = pass->rows * (pass->columns + pass->right);
    check_count++;
    for (size_t from = 0; from < count; from += PIECE) {
        const size_t some = count - from < PIECE ? count - from : PIECE;
        cudaMemcpy(piece, matrix + from, some * sizeof *piece, cudaMemcpyDeviceToHost);
        for (size_t i = 0; i < some; i++)
            if (piece[i] != expected(from + i, pass->columns, pass->right)) {
                check_fail("%s: number %zu is %g", what, from + i, piece[i]);
                return;
            }
    }
}

static void check_shape(size_t rows, size_t columns)
{
    struct realign pass = {.rows = rows, .columns = columns};
    const size_t bytes = rows * (columns + 1) * sizeof(float);
    void *matrix, *scratch;
    if (cudaMalloc(&matrix, bytes) != cudaSuccess ||
        cudaMalloc(&scratch, train_realign_scratch(&pass)) != cudaSuccess) {
        cudaGetLastError();
        check_fail("%zu x %zu: no memory", rows, columns);
        return;
    }
    pass.matrix = matrix;
    matrix_fill(matrix, rows * columns);
    for (int right = 1; right >= 0; right--) {
        char what[96];
        snprintf(what, sizeof what, "%zu x %zu, %s", rows, columns, right ? "right" : "left");
        pass.right = right;
        launched(gpu.stream, train_realign(&pass, scratch, gpu.stream), "realign");
        matrix_check(what, matrix, &pass);
    }
    cudaFree(matrix);
    cudaFree(scratch);
}

int main(void)
{
    gpu_require(1);
    gpu = check_gpu();
    piece = malloc(PIECE * sizeof *piece);
    if (!piece)
        return EXIT_FAILURE;
    for (int i = 0; i < SHAPES; i++)
        check_shape(1 + random_next(&state) % (i % 3 ? 9 : 5000),
                    1 + random_next(&state) % (i % 2 ? 5 : 5000));
    check_shape(5000, 4097);
    check_shape(1, 10000003);
    check_shape(10000003, 1);
    check_shape((size_t)1 << 19, 4096);
    check_shape((size_t)1 << 31, 1);
    return check_result("a column of ones");
}
