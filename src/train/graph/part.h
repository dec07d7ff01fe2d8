/* A rank's part of a network that is split over ranks (graph/split.h makes it): which box of the whole
 * network's tensors each of its tensors is, on this rank and on all others. Used by the memory plan, the
 * kernels and the replica. Any thread. */
#ifndef ALNICO_TRAIN_GRAPH_PART_H
#define ALNICO_TRAIN_GRAPH_PART_H

#include "train/graph/layout.h"
#include "train/graph/network.h"

/* Ranks over which a batch norm takes its means and variances: each by itself, those that have boxes of
 * the same images, all. */
enum norm_group { NORM_LOCAL, NORM_SAMPLE, NORM_ALL, NORM_GROUPS };

/* "local", ... */
const char *norm_group_name(enum norm_group group);

/* A rank's part of a network. A tensor of its is the box that the rank holds of a tensor of the
 * whole, or that operation `reader` of the whole reads. */
struct network_part {
    const struct network *whole;
    size_t rank, ranks;
    enum norm_group norm;
    size_t norm_parts;      /* groups of ranks of batch norms over several; 0: there are none */
    struct layout *layouts; /* by tensor of the whole */
    struct part_tensor {
        size_t tensor;        /* of the whole */
        bool read;            /* not held */
        size_t reader, input; /* the node, and which of its inputs */
    } * tensors;              /* by tensor of the part */
};

/* What it is a part of; itself, if it is none. */
const struct network *network_whole(const struct network *network);

/* Whether a node's parameters are this rank's alone. */
bool node_own(const struct network *network, size_t node);

/* An arena of the whole network's parameters, or of one of its optimizer's states, to that of a part;
 * and this rank's own parameters back (`all`: also those that all ranks have). */
void part_take(const struct network *network, const float *whole, float *part);
void part_give(const struct network *network, const float *part, float *whole, bool all);

/* NULL is fine. */
void network_part_destroy(struct network_part *part);

/* The box of the whole tensor that a rank has of a tensor of a part, when all ranks together have a
 * batch of images. */
struct box part_box(const struct network *network, size_t tensor, size_t rank, size_t batch);

/* Images that this rank has of a tensor; of a network that is whole, the batch. */
size_t network_images(const struct network *network, size_t tensor, size_t batch);

/* Pixels of a channel in a batch norm on all ranks of its group; 0: it is of this rank's alone. */
double network_joint(const struct network *network, size_t node, size_t batch);

/* Terms of a loss on all ranks over their number: the divisor of a rank's gradients, whose mean over
 * the ranks is then that of all terms. */
double network_terms(const struct network *network, size_t node, size_t batch);

/* The box that a rank holds of a tensor of the whole, and what a node of the whole reads of an input to
 * make that of its output. *wanted reaches over the ends of the image; the result does only where zeros
 * are to stand. */
struct box part_held(const struct network_part *part, size_t tensor, size_t rank, size_t batch);
struct box part_reads(const struct network_part *part, size_t node, size_t input, size_t rank,
                      size_t batch, struct box *wanted);

/* Groups of ranks in which the sums of a batch norm that makes a tensor of the whole are taken. */
size_t part_norms(const struct network_part *part, size_t tensor);

#endif
