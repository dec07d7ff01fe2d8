/* One row of alnico-perf: the same operation by every contestant, timed in turns and checked. Main
 * thread, collective over the world. */
#ifndef ALNICO_TOOLS_PERF_BENCH_H
#define ALNICO_TOOLS_PERF_BENCH_H

#include "perf_options.h"
#include "perf_report.h"

/* The benchmark on this rank. */
struct bench {
    struct perf_options options;
    int rank, ranks;
    void *send,
        *recv; /* options.end bytes each; in place, `send` keeps the input for the next block */
    alnico_stream_t stream;
    alnico_comm_t comm[PERF_RESULTS]; /* one for each algorithm that takes part */
    const char *algorithm[PERF_RESULTS];
    int results;
    int threads_before,
        threads; /* of this process: before the first communicator, and most since */
};

/* Times and checks the row's size, type and operation, and fills in the rest of it. */
void bench_row(struct bench *bench, struct perf_row *row);

#endif
