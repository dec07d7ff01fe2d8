/* The command line of alnico-simulate. */
#ifndef ALNICO_TOOLS_SIMULATE_OPTIONS_H
#define ALNICO_TOOLS_SIMULATE_OPTIONS_H

#include "tools/common/step_model.h"
#include "tools/simulate/run.h"

#include <stdint.h>

enum { SIMULATE_LIST = 64, SIMULATE_ALGORITHMS = 32 };

struct simulate_options {
    const struct collective *operation;
    struct simulate_machine machine;
    int hosts; /* 0: as many as the machine's ranks_per_host needs */
    int ranks[SIMULATE_LIST], ranks_count;
    size_t sizes[SIMULATE_LIST]; /* bytes, rising */
    int sizes_count;
    const struct algorithm *algorithms[SIMULATE_ALGORITHMS];
    bool is_staged[SIMULATE_ALGORITHMS];
    int algorithms_count;
    size_t chunk;    /* bytes; 0: messages in one piece */
    size_t memory;   /* bytes of real elements, all threads together */
    uint64_t rounds; /* an algorithm with more rounds, summed over ranks, is left out */
    int threads;
    const char *machine_name, *algorithm, *staged, *size_list; /* as given; NULL: no list */
    size_t begin, end, factor;                                 /* of the sizes, without a list */
    const char *profile, *json;                                /* files, or NULL */
    struct step_parts steps;                                   /* of the profile */
};

/* Fills `options`, the machine included. On an error prints what is wrong and exits with 2; after
 * --help exits with 0. */
void simulate_options_read(int argc, char **argv, struct simulate_options *options);

#endif
