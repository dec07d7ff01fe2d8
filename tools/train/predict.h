/* alnico-train --predict: the time of a step on numbers of ranks that are not at hand. Main
 * thread. */
#ifndef ALNICO_TOOLS_TRAIN_PREDICT_H
#define ALNICO_TOOLS_TRAIN_PREDICT_H

#include "tools/train/options.h"

/* Measures each rank alone, the communicator, and training on all ranks with and without overlap;
 * prints on the first rank what the step model makes of it for each number of ranks. Collective.
 * The object is what --json adds, NULL on the other ranks; the caller deletes it. Errors: as
 * trainer_run's. */
alnico_status_t train_predict(const struct train_options *options,
                              const struct trainer_place *place, cJSON **out);

#endif
