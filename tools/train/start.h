/* The start of alnico-train: the ranks begin together, or all of them end. A rank that ended alone
 * would leave the others waiting in MPI. Main thread. */
#ifndef ALNICO_TOOLS_TRAIN_START_H
#define ALNICO_TOOLS_TRAIN_START_H

#include "tools/train/options.h"

/* The result of parsing a rank's options, and what that printed. */
struct train_trial {
    int status;
    char text[1 << 15];
};

/* Before MPI begins: parses by way of trial where a launcher started the ranks. A process without
 * others exits here if its options make no sense or ask for help. */
void train_trial_run(int argc, char **argv, struct train_trial *out);

/* Collective over MPI_COMM_WORLD: returns if all ranks can parse their options. Otherwise the first
 * that cannot prints why, and all exit. */
void train_trial_end(const struct train_trial *trial);

/* Collective: all ranks must do the same kind of work on the same kind of device. Otherwise one
 * line names the option, and all exit. */
void train_modes_agree(const struct train_options *options);

#endif
