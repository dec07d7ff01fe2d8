/*
 * A network is data: a list of operations on named tensors. Shapes are inferred and checked as
 * operations are appended; finishing it lays out the parameters. Nothing here computes: a resident
 * of kernels.h does. Used by the models, the plan, the kernels and the trainer; a finished network
 * is read-only and may be read on any thread.
 *
 * Arenas. Parameters and gradients have the same offsets, in backward order: the last operation's
 * come first, so that the gradients fill from the front while backward proceeds. Parameters that no
 * other rank has (of channels that are split) stand behind those that all ranks have. Within an
 * operation: weights, bias; scale, shift. Statistics (running mean, running variance of each batch
 * norm) have an arena of their own, in forward order.
 */
#ifndef ALNICO_TRAIN_GRAPH_NETWORK_H
#define ALNICO_TRAIN_GRAPH_NETWORK_H

#include "train/layers/layer.h"

struct network_part;

struct network {
    struct node *nodes;
    size_t count, capacity;
    struct tensor *tensors;        /* count + 1; tensor 0 is "input" */
    size_t parameters, statistics; /* elements of the arenas, once finished */
    size_t
        shared; /* parameters that all ranks have; of a part those of its own stand behind them */
    bool draws; /* an operation draws random numbers */
    size_t labels, classes; /* of an image; labels are below classes; once finished */
    bool finished;
    struct network_part *part; /* of which network it is a rank's part (graph/part.h); NULL: none */
};

/* An empty network for images of this shape. Errors: ARGUMENT (a size of 0 or above
 * NETWORK_MAX_SIDE), MEMORY. */
alnico_status_t network_create(size_t height, size_t width, size_t channels, struct network **out);

/* Appends an operation (copied) and infers its output's shape. Errors: ARGUMENT, naming the
 * operation and what does not fit: an unknown or taken tensor name, a window larger than its padded
 * input, sizes of 0, shapes that differ, a loss as an input; MEMORY. */
alnico_status_t network_append(struct network *network, const struct operation *operation);

/* Ends the list and lays out the arenas. The last loss is the one that is told; what others, such
 * as those of auxiliary heads, add to gradients has their weights. Errors: ARGUMENT if the last
 * operation is not a loss, a tensor is never read, or losses take different labels. */
alnico_status_t network_finish(struct network *network);

/* NULL is fine. */
void network_destroy(struct network *network);

/* Fills the arenas: weights from a normal distribution of variance 2 / (inputs of one output) (He
 * et al. 2015), biases and shifts 0, scales 1 or 0, means 0, variances 1. Depends on the network
 * and the seed only. A part takes its own from
 * the whole's (part_take). */
void network_initialize(const struct network *network, uint64_t seed, float *parameters,
                        float *statistics);

/* A checksum of where each operation's numbers stand in the arenas: equal for networks of the same
 * names and shapes in the same order. Of a part it is the whole's. */
uint64_t network_layout(const struct network *network);

/* "input", or the name of the operation that makes it. */
const char *network_tensor_name(const struct network *network, size_t tensor);

/* Which operation of the model a node is: moves are not counted. */
size_t network_number(const struct network *network, size_t node);

/* The tensor that a node makes. */
const struct tensor *network_output(const struct network *network, size_t node);

/* Rows and columns of a window operation: the side that is meant by window 0 in an average
 * pooling. */
void network_window(const struct network *network, size_t node, size_t *rows, size_t *columns);

#endif
