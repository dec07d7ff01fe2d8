/* Averages on a GPU against sums in float64: of a server's gradients in every type, odd lengths and
 * several blocks, and the division of a sum, which is correctly rounded. Prints the bandwidth of an
 * average as a share of a plain sum's, and is red below 0.8. */
#include "tests/gpu/train/check.h"

#include "train/kernels/cuda/launch.h"

#include "device/device.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS_MOST = 7, STRIDE_UNIT = 32, LARGE = 32 << 20, REPEATS = 20 };

static const int types[] = {ALNICO_FLOAT32, ALNICO_BFLOAT16, ALNICO_FLOAT16};
static struct train_gpu gpu;
static uint64_t state = 2026;

static struct train_average pass_of(const struct vector *mine, const struct vector *others,
                                    int blocks)
{
    return (struct train_average){.mine = mine->gpu,
                                  .others = others->gpu,
                                  .stride = others->count / (size_t)blocks,
                                  .count = mine->count,
                                  .blocks = blocks,
                                  .type = mine->type};
}

static void average_check(int type, size_t count, int blocks)
{
    const size_t stride = (count + STRIDE_UNIT - 1) / STRIDE_UNIT * STRIDE_UNIT;
    struct vector mine = vector_random(count, type, &state, 0, 1),
                  others = vector_random(stride * (size_t)blocks, type, &state, 0, 1);
    double *expected = calloc(count, sizeof *expected);
    char text[96];
    if (!expected)
        exit(EXIT_FAILURE);
    for (size_t i = 0; i < count; i++) {
        expected[i] = mine.host[i];
        for (int b = 0; b < blocks; b++)
            expected[i] += others.host[(size_t)b * stride + i];
        expected[i] /= blocks + 1;
    }
    const struct train_average pass = pass_of(&mine, &others, blocks);
    launched(gpu.stream, train_average(&gpu, &pass), "average");
    vector_get(&mine);
    snprintf(text, sizeof text, "average of %zu %s and %d blocks", count, type_name(type), blocks);
    check_close(text, mine.host, expected, count, 1e-6, type_epsilon(type));
    free(expected);
    vector_free(&mine);
    vector_free(&others);
}

/* Of float32 as the host divides, to the bit; of 16 bits once rounded; numbers before `first` stay. */
static void division_check(int type, size_t count, int by, size_t first)
{
    struct vector x = vector_random(count, type, &state, 1, 1);
    const size_t each = type == ALNICO_FLOAT32 ? 4 : 2;
    double *expected = calloc(count, sizeof *expected);
    char text[64];
    if (!expected)
        exit(EXIT_FAILURE);
    for (size_t i = 0; i < count; i++)
        expected[i] = (double)(i < first ? x.host[i] : x.host[i] / (float)by);
    launched(gpu.stream, train_divide(&gpu, (char *)x.gpu + first * each, type, count - first, by),
             "division");
    vector_get(&x);
    snprintf(text, sizeof text, "%zu %s divided by %d", count, type_name(type), by);
    /* Subnormal halves are 2^-24 apart. */
    check_close(text, x.host, expected, count, type == ALNICO_FLOAT16 ? 0x1p-25 : 0,
                type == ALNICO_FLOAT32 ? 0 : type_epsilon(type));
    free(expected);
    vector_free(&x);
}

/* The device's ms of some calls, the least of three times. */
static float least_ms(void (*call)(void *argument), void *argument)
{
    cudaEvent_t begin, end;
    float least = 0, ms;
    GPU(cudaEventCreate(&begin));
    GPU(cudaEventCreate(&end));
    for (int trial = 0; trial < 3; trial++) {
        GPU(cudaEventRecord(begin, gpu.stream));
        for (int i = 0; i < REPEATS; i++)
            call(argument);
        GPU(cudaEventRecord(end, gpu.stream));
        GPU(cudaEventSynchronize(end));
        GPU(cudaEventElapsedTime(&ms, begin, end));
        least = trial == 0 || ms < least ? ms : least;
    }
    GPU(cudaEventDestroy(begin));
    GPU(cudaEventDestroy(end));
    return least;
}

static void call_average(void *argument)
{
    train_average(&gpu, argument);
}

/* mine += the first block. */
static void call_sum(void *argument)
{
    const struct train_average *pass = argument;
    device_cuda.reduce(pass->mine, pass->mine, pass->others, pass->count,
                       (alnico_datatype_t)pass->type, ALNICO_SUM, gpu.stream);
}

static void bandwidth_check(int type, int blocks)
{
    struct vector mine = vector_make(LARGE, type),
                  others = vector_make((size_t)LARGE * (size_t)blocks, type);
    GPU(cudaMemset(mine.gpu, 0, (size_t)LARGE * (type == ALNICO_FLOAT32 ? 4 : 2)));
    GPU(cudaMemset(others.gpu, 0,
                   (size_t)LARGE * (size_t)blocks * (type == ALNICO_FLOAT32 ? 4 : 2)));
    struct train_average pass = pass_of(&mine, &others, blocks);
    const double sum = 3 / (double)least_ms(call_sum, &pass);
    const double average = (blocks + 2) / (double)least_ms(call_average, &pass);
    printf("average of %s over %d ranks: %.2f of a sum's bandwidth\n", type_name(type), blocks + 1,
           average / sum);
    check_count++;
    if (!(average >= 0.8 * sum))
        check_fail("average of %s over %d ranks: %.2f of a sum's bandwidth, expected 0.8",
                   type_name(type), blocks + 1, average / sum);
    vector_free(&mine);
    vector_free(&others);
}

int main(void)
{
    struct cudaDeviceProp properties;
    cudaStream_t stream;
    const size_t counts[] = {1, 7, 8, 1000, 4099, 1 << 20};
    gpu_require(1);
    GPU(cudaGetDeviceProperties(&properties, 0));
    gpu.multiprocessors = properties.multiProcessorCount;
    GPU(cudaStreamCreate(&stream));
    gpu.stream = stream;
    launched(gpu.stream, train_average_load(), "loading kernels");
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (int blocks = 1; blocks <= BLOCKS_MOST; blocks += 2)
                average_check(types[t], counts[c], blocks);
        bandwidth_check(types[t], 1);
        bandwidth_check(types[t], 3);
    }
    for (size_t t = 0; t < sizeof types / sizeof *types; t++)
        for (size_t c = 0; c < sizeof counts / sizeof *counts; c++)
            for (int by = 2; by <= 7; by++)
                for (size_t first = 0; first < 2 && first < counts[c]; first++)
                    division_check(types[t], counts[c], by, first);
    return check_result("average");
}
