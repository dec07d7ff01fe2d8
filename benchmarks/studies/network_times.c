/* See network_times.h. */
#include "benchmarks/studies/network_times.h"

#include <stdlib.h>

struct model network_named(const char *name)
{
    struct model model;
    if (!model_find(name, &model)) {
        fprintf(stderr, "--model %s: there is no such network\n", name);
        exit(EXIT_USAGE);
    }
    return model;
}

struct trainer_times network_times(const struct study_device *device, const char *name,
                                   size_t batch)
{
    const struct model_images images = network_named(name).images;
    struct trainer_times times;
    char data[64];
    snprintf(data, sizeof data, "synthetic:%zux%zux%zu", images.height, images.width,
             images.channels);
    const struct trainer_options training = {
        .model = name,
        .data = data,
        .kernels = kernels_default(device->ops->kind)->name,
        .strategy = "allreduce",
        .batch = batch,
        .steps = 1,
        .classes = images.classes,
        .seed = 1,
        .optimizer = {.kind = OPTIMIZER_SGD, .rate = 1e-3, .drops = {1, 1, 1}},
        .wire = ALNICO_FLOAT32,
        .rule = BUCKETS_OF_COUNT,
        .buckets = 1};
    program_check(trainer_profile(&training, device->stream, &times), "measuring the network");
    return times;
}
