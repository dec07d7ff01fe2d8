/* --preset: how other programs for training take their input and communicate, as settings of
 * switches that are options too. After Chu's comparison of models and measurements of distributed
 * training (Shi, Wang, Chu 2018, "Performance modeling and evaluation of distributed deep learning
 * frameworks on GPUs"). Main thread. */
#ifndef ALNICO_TOOLS_TRAIN_PRESETS_H
#define ALNICO_TOOLS_TRAIN_PRESETS_H

#include "tools/train/options.h"

/* The name of the i-th preset; NULL after the last. */
const char *train_preset_at(int i);

/* Sets the switches of options->preset, unless it is NULL, that the command line left open. */
void train_preset_apply(struct train_options *options);

/* The presets for --help, a line each, which the caller frees. */
char *train_presets_help(void);

#endif
