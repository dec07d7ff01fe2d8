/* The table of alnico-perf: its head, its rows, and what follows from a row. Rank 0's main thread
 * only. */
#ifndef ALNICO_TOOLS_PERF_TABLE_H
#define ALNICO_TOOLS_PERF_TABLE_H

#include "tools/perf/bench.h"

void table_head(const struct bench *bench);
void table_row(const struct bench *bench, const struct perf_row *row);

/* "the library's choice", or the name forced by option or environment, or "all". */
const char *table_algorithm(const struct perf_options *options);

/* The reduction's name, "none" for an operation without; the root, -1 for one without. */
const char *table_op(const struct perf_options *options, alnico_op_t op);
int table_root(const struct perf_options *options);

/* The fastest of the row's results, the first if none can do it; the time of the fastest peer, NAN
 * without; and the wrong values of all results. */
const struct perf_result *row_best(const struct perf_row *row);
double row_best_peer_us(const struct perf_row *row);
size_t row_wrong(const struct perf_row *row);

/* OSU's overlap: percent of the operation's time that `overall` does not add to `compute`. */
double table_overlap(const struct perf_result *result);

/* Gigabytes per second. */
double table_gbps(size_t bytes, double time_us);

#endif
