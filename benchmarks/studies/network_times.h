/* Times of a network's steps on made-up images, for the studies of roof and layers. */
#ifndef ALNICO_BENCHMARKS_STUDIES_NETWORK_TIMES_H
#define ALNICO_BENCHMARKS_STUDIES_NETWORK_TIMES_H

#include "benchmarks/studies/study.h"
#include "train/models/models.h"
#include "train/trainer/trainer.h"

/* The network of a name; a usage error if there is none. */
struct model network_named(const char *name);

/* The caller ends the result by trainer_times_free. */
struct trainer_times network_times(const struct study_device *device, const char *name,
                                   size_t batch);

#endif
