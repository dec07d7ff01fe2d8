/* Prints a network's layers and what they take, for alnico-train --describe. Main thread. */
#ifndef ALNICO_TOOLS_TRAIN_DESCRIBE_H
#define ALNICO_TOOLS_TRAIN_DESCRIBE_H

#include "train/trainer/trainer.h"

#include <cjson/cJSON.h>

/* A line for each operation, then totals. */
void train_description_print(const struct trainer_options *options,
                             const struct trainer_description *description);

/* The same as JSON. The caller deletes it. */
cJSON *train_description_json(const struct trainer_description *description);

#endif
