/*
 * Interleavings: in which order the server of a shard applied the workers' gradients, and what
 * these were computed from. A file for each shard, text: a head line, then a line for each update.
 * The version of a shard is the number of its updates in this run; line i leads from version i to
 * i + 1. The server of strategy async writes and reads them.
 */
#ifndef ALNICO_TRAIN_STRATEGIES_INTERLEAVING_H
#define ALNICO_TRAIN_STRATEGIES_INTERLEAVING_H

#include <alnico/alnico.h>

#include <stdint.h>
#include <stdio.h>

/* What a file is of. */
struct interleaving_head {
    int ranks, shard;
    size_t parameters; /* of the network */
};

struct interleaving_row {
    uint64_t worker, step; /* whose gradients; how many it had pushed before in this run */
    uint64_t pulled;       /* the version of the weights that they were computed from */
};

struct interleaving {
    struct interleaving_row *rows;
    size_t count;
};

/* Creates PATH.shard, and writes the head. Errors: SYSTEM, MEMORY. */
alnico_status_t interleaving_create(const char *path, const struct interleaving_head *head,
                                    FILE **out);

void interleaving_append(FILE *file, const struct interleaving_row *row);

/* Errors: SYSTEM, if not all could be written. */
alnico_status_t interleaving_flush(FILE *file);

/* Reads PATH.shard. Errors: ARGUMENT (no such file, not such a file, or another head; the file and
 * the line are named), MEMORY. */
alnico_status_t interleaving_read(const char *path, const struct interleaving_head *head,
                                  struct interleaving *out);
void interleaving_free(struct interleaving *log);

#endif
