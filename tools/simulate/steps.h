/* Training steps on a simulated machine: a profile by alnico-train --predict, and the time of its
 * buckets' allreduces in virtual time. Main thread. */
#ifndef ALNICO_TOOLS_SIMULATE_STEPS_H
#define ALNICO_TOOLS_SIMULATE_STEPS_H

#include "tools/simulate/report.h"

/* Reads the file's object `prediction`; step_parts_free ends it. Errors: ARGUMENT or MEMORY, with a
 * detail that names the file and what is wrong. */
alnico_status_t steps_read(const char *path, struct step_parts *out);

/* The sizes of its buckets, each once, rising. Returns how many there are, at most `most` of which
 * are written. */
int steps_sizes(const struct step_parts *parts, size_t *sizes, int most);

/* The step at a number of ranks, given the cells of all sizes: one printed line, and in `json`. */
void steps_report(const struct simulate_options *options, int ranks,
                  const struct simulate_cell *cells, cJSON *json);

#endif
