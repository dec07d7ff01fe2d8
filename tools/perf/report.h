/* The report of alnico-perf: a table as nccl-tests prints it, and JSON. Rank 0's main thread. */
#ifndef ALNICO_TOOLS_PERF_REPORT_H
#define ALNICO_TOOLS_PERF_REPORT_H

#include "tools/perf/measure.h"
#include "tools/perf/options.h"

enum { PERF_RESULTS = 32 }; /* algorithms that fit into a row */

/* One candidate's figures for one call. */
struct perf_result {
    const char *algorithm;           /* NULL: the library's own choice */
    double time_us, low_us, high_us; /* NAN: it cannot do this */
    double compute_us, overall_us;   /* with --overlap: the computation alone, and both */
    double host_us, launch_us; /* with --host-time: of a call, and, ours, of an empty kernel */
    size_t wrong;
};

struct perf_row {
    size_t bytes, count;
    alnico_datatype_t type;
    alnico_op_t op;
    int results;
    struct perf_result result[PERF_RESULTS];
    unsigned peers; /* a mask: who was timed as well */
    struct perf_result peer[PEERS];
    struct measure_effort effort;
};

struct bench;
struct report;

/* Prints the head of the table. The bench outlives it. */
struct report *report_open(const struct bench *bench);
void report_row(struct report *report, const struct perf_row *row);

/* Prints the closing lines and writes the JSON file. `threads` is how many threads the library had
 * while it was timed. Frees the report. Returns the number of wrong values. */
size_t report_close(struct report *report, int threads);

/* The table (table.c): its head, its rows, and what follows from a row. */
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
