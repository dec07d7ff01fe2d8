/* Prints what each step of a network takes, for alnico-train --profile and train_step --profile. */
#ifndef ALNICO_TOOLS_TRAIN_PROFILE_H
#define ALNICO_TOOLS_TRAIN_PROFILE_H

#include "train/trainer/step_profile.h"

#include <cjson/cJSON.h>

/* A line for each step of the plan, then sums by operation, the update, and the whole step. */
void train_profile_print(const struct profile *profile);

/* The profile as JSON. The caller deletes it. */
cJSON *train_profile_json(const struct profile *profile);

#endif
