/*
 * The state of a training run in a file: parameters, the optimizer's states, every rank's running
 * statistics and what else is its own, and what the run was. A file is there as a whole or not at
 * all, and a checksum covers all of it. Any thread; numbers as the host has them.
 */
#ifndef ALNICO_TRAIN_TRAINER_CHECKPOINT_FILE_H
#define ALNICO_TRAIN_TRAINER_CHECKPOINT_FILE_H

#include <alnico/alnico.h>

#include <stdint.h>

enum { CHECKPOINT_NAME_BYTES = 64, CHECKPOINT_WORDS = 8 };

/* The run that a state belongs to; all of it must be the same to go on. */
struct checkpoint_run {
    char model[CHECKPOINT_NAME_BYTES], data[4 * CHECKPOINT_NAME_BYTES];
    char optimizer[CHECKPOINT_NAME_BYTES], strategy[CHECKPOINT_NAME_BYTES];
    uint64_t height, width, channels, classes; /* of the images */
    uint64_t batch, ranks, seed, precision;
    uint64_t layout; /* a checksum of where each operation's numbers stand in the arenas */
};

/* As in the file, behind its first words; without padding, up to `values`. */
struct checkpoint {
    struct checkpoint_run run;
    uint64_t parameters, statistics; /* numbers of the network's arenas */
    uint64_t states;                 /* of the optimizer: as many numbers as parameters each */
    uint64_t extra;                  /* numbers of each rank beside its statistics */
    uint64_t step, tests;            /* done so far */
    float words[CHECKPOINT_WORDS];   /* the replica's control words */
    float *values; /* parameters, states, then each rank's statistics and what is extra */
};

/* How many numbers stand in `values`; and before those of a rank. */
size_t checkpoint_count(const struct checkpoint *checkpoint);
size_t checkpoint_rank(const struct checkpoint *checkpoint, int rank);

/* Errors: SYSTEM or MEMORY, naming the file and what failed; what stood there before still does. */
alnico_status_t checkpoint_write(const char *path, const struct checkpoint *checkpoint);

/* Whether a file can be written there, without writing it. Errors: as checkpoint_write's. */
alnico_status_t checkpoint_try(const char *path);

/* Reads and allocates; checkpoint_free ends it. Errors, naming the file: SYSTEM (cannot be read),
 * ARGUMENT (no checkpoint, truncated, a wrong checksum), MEMORY. On error *out has no values. */
alnico_status_t checkpoint_read(const char *path, struct checkpoint *out);

/* Twice is fine. */
void checkpoint_free(struct checkpoint *checkpoint);

/* Errors: ARGUMENT, naming what differs from what the run at hand is. */
alnico_status_t checkpoint_compare(const char *path, const struct checkpoint_run *saved,
                                   const struct checkpoint_run *run);

#endif
