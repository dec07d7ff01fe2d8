/* The loops of elementwise.h, vectorised for what the machine at hand has. */
#include "train/kernels/elementwise.h"

#include "base/float16.h"
#include "base/vectorised.h"
#include "train/base/threads.h"

#include <string.h>

VECTORISED static void add_relu(float *y, const float *a, const float *b, size_t count)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        const float sum = a[i] + b[i];
        y[i] = sum > 0 ? sum : 0;
    }
}

/* The slope is loaded whether it counts or not: a load under a condition would not be
 * vectorised. */
VECTORISED static void mask(float *dx, const float *dy, const float *y, size_t count)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        const float slope = dy[i];
        dx[i] = y[i] > 0 ? slope : 0;
    }
}

VECTORISED static void mask_add(float *dx, const float *dy, const float *y, size_t count)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++) {
        const float slope = dy[i];
        dx[i] += y[i] > 0 ? slope : 0;
    }
}

VECTORISED static void accumulate(float *y, const float *a, const float *b, size_t count)
{
    (void)b;
#pragma omp simd
    for (size_t i = 0; i < count; i++)
        y[i] += a[i];
}

VECTORISED static void mean(float *y, const float *sum, float share, size_t count)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++)
        y[i] = (y[i] + sum[i]) * share;
}

VECTORISED static void narrow(uint16_t *y, const float *x, size_t count, bool half)
{
    if (half) {
#pragma omp simd
        for (size_t i = 0; i < count; i++)
            y[i] = to_half(x[i]);
    } else {
#pragma omp simd
        for (size_t i = 0; i < count; i++)
            y[i] = to_bfloat(x[i]);
    }
}

VECTORISED static void widen(float *y, const uint16_t *x, size_t count, bool half)
{
    if (half) {
#pragma omp simd
        for (size_t i = 0; i < count; i++)
            y[i] = from_half(x[i]);
    } else {
#pragma omp simd
        for (size_t i = 0; i < count; i++)
            y[i] = from_bfloat(x[i]);
    }
}

/* Numbers whose sum stays in the cache while it grows, and blocks that are read side by side: with
 * fewer the memory waits. */
enum { AVERAGE_NUMBERS = 8192, AVERAGE_BLOCKS = 4 };

/* y = (y + these blocks) * share. */
static inline void add_blocks(float *restrict y, const float *restrict x, size_t stride, int blocks,
                              float share, size_t count)
{
    const float *restrict b = x + stride, *restrict c = b + stride, *restrict d = c + stride;
    if (blocks == 1) {
#pragma omp simd
        for (size_t i = 0; i < count; i++)
            y[i] = (y[i] + x[i]) * share;
    } else if (blocks == 2) {
#pragma omp simd
        for (size_t i = 0; i < count; i++)
            y[i] = (y[i] + x[i] + b[i]) * share;
    } else if (blocks == 3) {
#pragma omp simd
        for (size_t i = 0; i < count; i++)
            y[i] = (y[i] + x[i] + b[i] + c[i]) * share;
    } else {
#pragma omp simd
        for (size_t i = 0; i < count; i++)
            y[i] = (y[i] + x[i] + b[i] + c[i] + d[i]) * share;
    }
}

VECTORISED static void average(float *y, const float *x, size_t stride, int blocks, size_t count)
{
    const float share = 1 / (float)(blocks + 1);
    for (size_t at = 0; at < count; at += AVERAGE_NUMBERS) {
        const size_t length = count - at < AVERAGE_NUMBERS ? count - at : AVERAGE_NUMBERS;
        for (int k = 0, some; k < blocks; k += some) {
            some = blocks - k < AVERAGE_BLOCKS ? blocks - k : AVERAGE_BLOCKS;
            add_blocks(y + at, x + at + (size_t)k * stride, stride, some,
                       k + some < blocks ? 1 : share, length);
        }
    }
}

VECTORISED static void divide(float *y, float by, size_t count)
{
#pragma omp simd
    for (size_t i = 0; i < count; i++)
        y[i] /= by;
}

/* Runs a loop on all threads. */
static void run(elementwise_function *loop, float *y, const float *a, const float *b, size_t count)
{
#pragma omp parallel if (count > THREADS_SHARE)
    {
        size_t at, length = thread_part(count, &at);
        loop(y + at, a + at, b ? b + at : NULL, length);
    }
}

void elementwise_add_relu(float *y, const float *a, const float *b, size_t count)
{
    run(add_relu, y, a, b, count);
}

void elementwise_mask(float *y, const float *a, const float *b, size_t count)
{
    run(mask, y, a, b, count);
}

void elementwise_mask_add(float *y, const float *a, const float *b, size_t count)
{
    run(mask_add, y, a, b, count);
}

void elementwise_copy(float *y, const float *a, const float *b, size_t count)
{
    (void)b;
    memcpy(y, a, count * sizeof *y);
}

void elementwise_accumulate(float *y, const float *a, const float *b, size_t count)
{
    run(accumulate, y, a, b, count);
}

void elementwise_mean(float *y, const float *sum, float share, size_t count)
{
#pragma omp parallel if (count > THREADS_SHARE)
    {
        size_t at, length = thread_part(count, &at);
        mean(y + at, sum + at, share, length);
    }
}

void elementwise_narrow(uint16_t *y, const float *x, size_t count, bool half)
{
#pragma omp parallel if (count > THREADS_SHARE)
    {
        size_t at, length = thread_part(count, &at);
        narrow(y + at, x + at, length, half);
    }
}

void elementwise_average(float *y, const float *x, size_t stride, int blocks, size_t count)
{
#pragma omp parallel if (count > THREADS_SHARE)
    {
        size_t at, length = thread_part(count, &at);
        average(y + at, x + at, stride, blocks, length);
    }
}

void elementwise_divide(float *y, float by, size_t count)
{
#pragma omp parallel if (count > THREADS_SHARE)
    {
        size_t at, length = thread_part(count, &at);
        divide(y + at, by, length);
    }
}

void elementwise_widen(float *y, const uint16_t *x, size_t count, bool half)
{
#pragma omp parallel if (count > THREADS_SHARE)
    {
        size_t at, length = thread_part(count, &at);
        widen(y + at, x + at, length, half);
    }
}
