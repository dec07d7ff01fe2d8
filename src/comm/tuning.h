/* Which way a message goes: a table from (collective, ranks, bytes) to an algorithm and the size of its
 * chunks; and the settings that rank 0's environment decides for all ranks. Pure, but for the environment. */
#ifndef ALNICO_SRC_TUNING_H
#define ALNICO_SRC_TUNING_H

#include "comm/algorithm.h"

#include <alnico/alnico.h>

/* A row holds for up to so many ranks and bytes; the first one that fits counts. */
struct tuning_row {
    int ranks;
    size_t bytes;
    const struct algorithm *algorithm;
    size_t chunk_bytes; /* a larger message is cut into chunks of this size */
};

/* The built-in table for an allreduce on the CPU over messages; its last row fits everything. */
extern const struct tuning_row tuning_allreduce[];

const struct tuning_row *tuning_choose(int ranks, size_t bytes);

enum { ALGORITHM_NAME_BYTES = 32 };

/* What rank 0's environment says, sent to all ranks when a communicator is created. */
struct settings {
    double timeout;                       /* ALNICO_TIMEOUT, seconds */
    size_t chunk_bytes;                   /* ALNICO_CHUNK; 0: by the table */
    char algorithm[ALGORITHM_NAME_BYTES]; /* ALNICO_ALLREDUCE; "": by the table */
    alnico_status_t status;               /* how reading went, with a detail */
    char detail[160];
};

void settings_read(struct settings *out);

#endif
