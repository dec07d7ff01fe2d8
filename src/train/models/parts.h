/* Appending the usual parts of a network, one behind the other: `tensor`, of NETWORK_NAME_BYTES, is
 * what a part reads, and becomes what it makes. Used by the models; errors as network_append. */
#ifndef ALNICO_TRAIN_MODELS_PARTS_H
#define ALNICO_TRAIN_MODELS_PARTS_H

#include "train/graph/network.h"

/* An operation that reads `tensor`, with a name made as by printf from `prefix` and `name`. */
alnico_status_t part_append(struct network *network, struct operation operation, const char *prefix,
                            const char *name, char *tensor);

/* A convolution or dense layer with a bias, "PREFIX", and a ReLU, "PREFIX.relu". */
alnico_status_t part_linear_relu(struct network *network, struct operation operation,
                                 const char *prefix, char *tensor);

/* A convolution of an odd window without a bias, which keeps the sides or, with stride 2, halves
 * them. */
struct operation part_convolution(size_t filters, size_t window, size_t stride);

/* The local response norm of AlexNet and GoogLeNet over five channels. */
struct operation part_local_norm(float k);

#endif
