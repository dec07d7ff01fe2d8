/* Shares of OpenMP's threads in a pass of a codec on the CPU. */
#ifndef ALNICO_TRAIN_STRATEGIES_CODECS_SHARE_H
#define ALNICO_TRAIN_STRATEGIES_CODECS_SHARE_H

#include <omp.h>
#include <stddef.h>

/* Fewer numbers than this are not worth waking threads for; numbers of a cache line. */
enum { CODEC_SHARE_LEAST = 1 << 15, CODEC_SHARE_LINE = 16 };

struct codec_share {
    size_t begin, count;
};

/* The calling thread's share of `count` numbers; it begins at a multiple of `grain`. */
static inline struct codec_share codec_share(size_t count, size_t grain)
{
    const size_t threads = (size_t)omp_get_num_threads(), me = (size_t)omp_get_thread_num();
    const size_t each = (count / threads / grain + 1) * grain;
    const size_t begin = me * each < count ? me * each : count;
    return (struct codec_share){begin, each < count - begin ? each : count - begin};
}

#endif
