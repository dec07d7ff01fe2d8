/* The command line of alnico-train. Main thread. */
#ifndef ALNICO_TOOLS_TRAIN_OPTIONS_H
#define ALNICO_TOOLS_TRAIN_OPTIONS_H

#include "train/trainer/trainer.h"

struct train_options {
    struct trainer_options trainer; /* but for the optimizer's fields that were not given */
    struct optimizer_options given; /* below 0: not given */
    alnico_device_t device;
    bool stream;      /* on the CPU: compute on a stream of its own */
    bool wired;       /* the wire type was given */
    bool memory;      /* print what memory is needed, and end */
    bool profile;     /* measure each step of the network, and end */
    const char *json; /* file, or NULL */
};

/* Parses; on a usage error prints what was wrong and exits with status 2. */
struct train_options train_options_parse(int argc, char **argv);

/* Completes the optimizer's options, once the number of ranks is known. */
void train_options_complete(struct train_options *options, int ranks);

#endif
