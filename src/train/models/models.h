/* The networks that the trainer knows by name. Any thread. */
#ifndef ALNICO_SRC_TRAIN_MODELS_MODELS_H
#define ALNICO_SRC_TRAIN_MODELS_MODELS_H

#include "train/network.h"

/* Appends a model's operations to an empty network, the cross-entropy of `classes` included. Errors: as
 * network_append. */
struct model {
    const char *name, *about;
    alnico_status_t (*build)(struct network *network, size_t classes);
};

extern const struct model model_resnet20, model_cnn;

extern const struct model *const models_all[];
enum { MODELS = 2 };

/* By name; NULL if there is none. */
const struct model *model_find(const char *name);

/* The finished network of a model for images of this shape. Errors: as network_create and the build. */
alnico_status_t model_network(const struct model *model, size_t height, size_t width,
                              size_t channels, size_t classes, struct network **out);

#endif
