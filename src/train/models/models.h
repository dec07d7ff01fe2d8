/* The networks that the trainer knows by name. Any thread. */
#ifndef ALNICO_TRAIN_MODELS_MODELS_H
#define ALNICO_TRAIN_MODELS_MODELS_H

#include "train/graph/network.h"

/* Images and their classes. */
struct model_images {
    size_t height, width, channels, classes;
};

struct model {
    const char *name, *about;
    /* Appends the operations to an empty network, the loss of `classes` included. Errors: as
     * network_append. */
    alnico_status_t (*build)(struct network *network, const void *design, size_t classes);
    const void *design;         /* what the function builds from */
    struct model_images images; /* that it is usually trained on */
    bool fixed;                 /* it takes no images of another shape */
    const char *data;           /* its source of images; NULL: fashion-mnist */
    double rate;                /* of sgd and nag, as a share of others' rate; 0: 1 */
};

extern const struct model model_cnn, model_resnet18, model_resnet20, model_resnet34, model_resnet50,
    model_resnet101, model_resnet152, model_mnist, model_alexnet, model_alexnet_cifar,
    model_googlenet, model_googlenet_aux, model_mesh1k, model_mesh2k, model_neuron;

/* Ended by NULL. */
extern const struct model *const models_all[];

/* By name, which outlives *out: of models_all, or "mesh:SIDE". False: there is none. */
bool model_find(const char *name, struct model *out);

/* "mesh:SIDE": models/mesh.c. */
bool model_mesh(const char *name, struct model *out);

/* The finished network of a model for images of this shape. Errors: as network_create and the
 * build. */
alnico_status_t model_network(const struct model *model, size_t height, size_t width,
                              size_t channels, size_t classes, struct network **out);

#endif
