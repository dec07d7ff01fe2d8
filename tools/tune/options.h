/* The command line of alnico-tune. */
#ifndef ALNICO_TOOLS_TUNE_OPTIONS_H
#define ALNICO_TOOLS_TUNE_OPTIONS_H

#include "tools/perf/operations.h"

#include <stdbool.h>
#include <stddef.h>

enum { TUNE_OPERATIONS = ALNICO_SENDRECV + 1 }; /* one for each collective that a table knows */

struct tune_options {
    const struct perf_operation *operations[TUNE_OPERATIONS];
    int operation_count;
    const char *file, *check;
    size_t begin, end, factor;
    double step;            /* -f as given */
    double seconds, margin; /* margin: percent */
    bool quick, verify;
    alnico_device_t device;
    bool nccl_memory; /* registered buffers come from ncclMemAlloc */
};

/* Reads it before MPI starts; a usage error is printed by one rank and ends the program with status
 * 2. */
struct tune_options tune_options_read(int argc, char **argv);

#endif
