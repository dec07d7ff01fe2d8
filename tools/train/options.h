/* The command line of alnico-train. Main thread. */
#ifndef ALNICO_TOOLS_TRAIN_OPTIONS_H
#define ALNICO_TOOLS_TRAIN_OPTIONS_H

#include "train/trainer/trainer.h"

#include <cjson/cJSON.h>

enum { PREDICT_MOST = 32 };

struct train_options {
    struct trainer_options trainer; /* the optimizer's fields below 0 were not given */
    alnico_device_t device;
    enum precision wire;       /* the trainer's, as an option has it */
    bool wired;                /* it was given */
    bool bucketed;             /* --buckets was */
    bool normed;               /* --norm was */
    const char *compress;      /* wire type and codec as one option; or NULL */
    bool strategic;            /* --strategy was */
    bool loading, prefetching; /* --loaders and --prefetch were */
    const char *preset;        /* NULL: none */
    size_t tile;               /* --batch linpack:NB: NB; 0: --batch is a number */
    const char *augment;       /* --augment as it was given; NULL: it was not */
    bool stream;               /* on the CPU: compute on a stream of its own */
    bool describe;             /* print the network, and end */
    bool memory;               /* print what memory is needed, and end */
    bool profile;              /* measure each step of the network, and end */
    int predict[PREDICT_MOST]; /* numbers of ranks whose steps to predict, and end; their count */
    int predict_count;
    const char *json; /* file, or NULL */
    const char *log;  /* file, or NULL */
};

/* Parses; on a usage error prints what was wrong and exits with status 2. */
struct train_options train_options_parse(int argc, char **argv);

/* Completes the optimizer's options, once the number of ranks is known. */
void train_options_complete(struct train_options *options, int ranks);

/* Of all ranks, in a step. */
size_t train_step_images(const struct train_options *options, int ranks);

/* Collective: an option that the ranks must agree on and do not; NULL: none. */
const char *train_options_differ(const struct train_options *options);

/* The options of a report, once complete. The caller deletes it. */
cJSON *train_options_json(const struct train_options *options);

/* ---- The start (start.c): the ranks begin together, or all of them end. A rank that ended alone
 * would leave the others waiting in MPI. ---- */

/* The result of parsing a rank's options, and what that printed. */
struct train_trial {
    int status;
    char text[1 << 15];
};

/* Before MPI begins: parses by way of trial where a launcher started the ranks. A process without
 * others exits here if its options make no sense or ask for help. */
void train_trial_run(int argc, char **argv, struct train_trial *out);

/* Collective: returns if all ranks can parse their options. Otherwise the first
 * that cannot prints why, and all exit. */
void train_trial_end(const struct train_trial *trial);

/* Collective: all ranks must do the same kind of work on the same kind of device. Otherwise one
 * line names the option, and all exit. */
void train_modes_agree(const struct train_options *options);

#endif
