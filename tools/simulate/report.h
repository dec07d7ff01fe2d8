/* Table, crossovers and JSON report of alnico-simulate. Main thread. */
#ifndef ALNICO_TOOLS_SIMULATE_REPORT_H
#define ALNICO_TOOLS_SIMULATE_REPORT_H

#include "tools/common/program.h"
#include "tools/simulate/options.h"

/* One algorithm at one size; time_us < 0: left out. */
struct simulate_cell {
    struct simulate_result result;
    bool data; /* real elements were moved and checked */
};

/* A change of the fastest algorithm, between two sizes that were simulated. */
struct crossover {
    const struct algorithm *below, *above;
    double bytes;
};

/* Finds the changes over rows of `algorithms_count` cells for sizes[0..sizes_count), interpolating
 * times linearly between neighbouring sizes. Returns how many there are; out has room for
 * sizes_count. */
int crossovers_find(const struct simulate_options *options, const struct simulate_cell *cells,
                    struct crossover *out);

/* `ranks_per_host` as used. */
void report_head(const struct simulate_options *options, int ranks, int ranks_per_host);
void report_row(const struct simulate_options *options, size_t bytes,
                const struct simulate_cell *row);
void report_crossovers(const struct crossover *crossovers, int count);

/* The whole as JSON: report_json begins, report_json_ranks adds what was simulated at one number of
 * ranks, and returns that part. */
cJSON *report_json(const struct simulate_options *options, const char *command);
cJSON *report_json_ranks(cJSON *json, const struct simulate_options *options, int ranks,
                         int ranks_per_host, const struct simulate_cell *cells,
                         const struct crossover *crossovers, int count);

#endif
