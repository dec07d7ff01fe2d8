/*
 * Splitting a network over ranks by images, rows and columns (Dryden et al. 2019, "Improving
 * strong-scaling of CNN training by exploiting finer-grained parallelism"). From the whole network and a
 * layout for each tensor every rank makes its part: an ordinary network of its boxes. Outputs are a
 * partition, inputs a cover: where an operation reads another box than its rank holds, a node of kind
 * OPERATION_MOVE stands between (as in GSPMD, Xu et al. 2021). Parameters have the places that they
 * have in the whole network, the same on all ranks. Nothing here communicates. Any thread.
 *
 * A convolution whose rows or columns are split reads zeros beyond the ends of the image, so it pads
 * nothing there; a pooling pads where its box begins with the image.
 */
#ifndef ALNICO_TRAIN_GRAPH_SPLIT_H
#define ALNICO_TRAIN_GRAPH_SPLIT_H

#include "train/graph/layout.h"
#include "train/graph/network.h"

enum { SPLIT_RANGES = 8 };

/* So many parts of the operations from `first` to `last`, which are names of operations, or what they
 * have before a dot; "": from the first one to the last that reads no whole images. */
struct split_range {
    uint16_t parts[AXES];
    char first[NETWORK_NAME_BYTES], last[NETWORK_NAME_BYTES];
};

/* Ranks over which a batch norm takes its means and variances: each by itself, those that have boxes of
 * the same images, all. */
enum norm_group { NORM_LOCAL, NORM_SAMPLE, NORM_ALL, NORM_GROUPS };

/* What is in no range is split by images. */
struct split {
    enum norm_group norm;
    struct split_range ranges[SPLIT_RANGES];
    size_t count;
};

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

/* From "rows=4", "images=2,rows=2", "rows=4@conv1..res4"; several joined by ';'. Errors: ARGUMENT, naming
 * what does not fit. */
alnico_status_t split_parse(const char *text, struct split *out);

/* This rank's part of a finished network, which must outlive it. Without ranges it is split by images.
 * Errors: ARGUMENT (parts that are not one for each rank; a name of no operation; an operation that
 * reads whole images; a rank without rows or columns of the first in a range; losses of different
 * layouts; NORM_SAMPLE with batch norms in groups of different ranks), MEMORY. */
alnico_status_t network_split(const struct network *whole, const struct split *split, size_t rank,
                              size_t ranks, struct network **out);

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

#endif
