/* Gradients of several passes on a GPU against float64: three types, ranges that begin and end
 * anywhere, and whatever is outside of them stays. Prints every difference and goes on. */
#include "tests/gpu/train/check.h"

#include "train/kernels/cuda/launch.h"
#include "train/kernels/kernels.h"

#include <math.h>

enum { PASSES = 4, MARGIN = 11 };

static const int types[] = {ALNICO_FLOAT32, ALNICO_BFLOAT16, ALNICO_FLOAT16};
static struct train_gpu gpu;
static uint64_t state = 20261123;

static void outside_check(const char *what, const struct vector *g, const float *before,
                          const struct vector *sums, size_t begin, size_t count)
{
    check_count++;
    for (size_t i = 0; i < g->count; i++)
        if ((i < begin || i >= begin + count) &&
            (g->host[i] != before[i] || !isnan(sums->host[i]))) {
            check_fail("%s: element %zu outside changed", what, i);
            return;
        }
}

/* The margins of the sums are NaN. */
static void check_range(int type, size_t begin, size_t count)
{
    const size_t total = begin + count + MARGIN;
    char what[96];
    struct vector sums = vector_poisoned(total, ALNICO_FLOAT32), g = {0};
    double *expected = calloc(total, sizeof *expected);
    float *before = malloc(total * sizeof *before);
    if (!expected || !before)
        exit(EXIT_FAILURE);
    snprintf(what, sizeof what, "%s, %zu from %zu", type_name(type), count, begin);
    for (int pass = 0; pass < PASSES; pass++) {
        vector_free(&g);
        g = vector_random(total, type, &state, 0.5, 2);
        for (size_t i = 0; i < total; i++) {
            expected[i] += (double)g.host[i] / PASSES;
            before[i] = g.host[i];
        }
        const struct train_accumulate part = {.gradients = g.gpu,
                                              .sums = sums.gpu,
                                              .begin = begin,
                                              .count = count,
                                              .share = 1.0f / PASSES,
                                              .type = type,
                                              .pass = pass == 0            ? PASS_FIRST
                                                      : pass + 1 == PASSES ? PASS_LAST
                                                                           : PASS_NEXT};
        launched(gpu.stream, train_accumulate(&gpu, &part), "accumulate");
    }
    vector_get(&g);
    vector_get(&sums);
    check_close(what, g.host + begin, expected + begin, count, 1e-6, type_epsilon(type));
    outside_check(what, &g, before, &sums, begin, count);
    vector_free(&g);
    vector_free(&sums);
    free(expected);
    free(before);
}

int main(void)
{
    static const size_t begins[] = {0, 1, 5, 8, 15}, counts[] = {1, 3, 7, 8, 9, 1000, 1000003};
    gpu_require(1);
    cudaDeviceGetAttribute(&gpu.multiprocessors, cudaDevAttrMultiProcessorCount, 0);
    launched(gpu.stream, train_accumulate_load(), "accumulate");
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t b = 0; b < sizeof begins / sizeof *begins; b++)
            for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
                check_range(types[t], begins[b], counts[c]);
    return check_result("gradients of several passes");
}
