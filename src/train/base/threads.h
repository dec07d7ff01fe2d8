/* How OpenMP threads share a vector. */
#ifndef ALNICO_TRAIN_BASE_THREADS_H
#define ALNICO_TRAIN_BASE_THREADS_H

#include <omp.h>
#include <stddef.h>

/* Fewer elements than this are not worth waking threads for; those of a cache line. */
enum { THREADS_SHARE = 1 << 15, THREADS_LINE = 16 };

/* In a parallel region: this thread's part of `count` elements, on cache line boundaries. */
static inline size_t thread_part(size_t count, size_t *begin)
{
    const size_t threads = (size_t)omp_get_num_threads(), me = (size_t)omp_get_thread_num();
    const size_t each =
        ((count + threads - 1) / threads + THREADS_LINE - 1) / THREADS_LINE * THREADS_LINE;
    const size_t end = (me + 1) * each < count ? (me + 1) * each : count;
    *begin = me * each < count ? me * each : count;
    return end - *begin;
}

#endif
