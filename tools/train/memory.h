/* The output of alnico-train --memory. */
#ifndef ALNICO_TOOLS_TRAIN_MEMORY_H
#define ALNICO_TOOLS_TRAIN_MEMORY_H

#include "train/trainer/trainer.h"

/* The plan of the activations step by step, then all that a rank needs; fails the program if the
 * options make no run. */
void train_memory_print(const struct trainer_options *options);

#endif
