/* The table of alnico-perf: its head, its rows, and what follows from a row. Rank 0's main thread
 * only. */
#ifndef ALNICO_TOOLS_PERF_TABLE_H
#define ALNICO_TOOLS_PERF_TABLE_H

#include "tools/perf/bench.h"

void table_head(const struct bench *bench);
void table_row(const struct bench *bench, const struct perf_row *row);

/* "the library's choice", or the name forced by option or environment, or "all"; "cpu" or
 * "cuda". */
const char *setup_algorithm(const struct perf_options *options);
const char *setup_device(const struct perf_options *options);

/* The reduction's name, "none" for an operation without; the root, -1 for one without. */
const char *setup_op(const struct perf_options *options, alnico_op_t op);
int setup_root(const struct perf_options *options);

/* The fastest of the row's results, the first if none can do it; the time of the fastest peer, NAN
 * without; and the wrong values of all results. */
const struct perf_result *row_best(const struct perf_row *row);
double row_best_peer_us(const struct perf_row *row);
size_t row_wrong(const struct perf_row *row);

/* Gigabytes per second, and bus bandwidth / algorithm bandwidth. */
double table_gbps(size_t bytes, double time_us);
double table_bus_factor(const struct bench *bench);

#endif
