/*
 * Splitting a network over ranks by images, rows and columns (Dryden et al. 2019, "Improving
 * strong-scaling of CNN training by exploiting finer-grained parallelism"). From the whole network and a
 * layout for each tensor every rank makes its part: an ordinary network of its boxes. Outputs are a
 * partition, inputs a cover: where an operation reads another box than its rank holds, a node of kind
 * OPERATION_MOVE stands between (as in GSPMD, Xu et al. 2021). Parameters are the same on all ranks, and
 * have the same places; but a rank has those of its filters only, if channels are split (model
 * parallelism: Krizhevsky 2014, "One weird trick for parallelizing convolutional neural networks").
 * Nothing here communicates. Any thread.
 *
 * A convolution whose rows or columns are split reads zeros beyond the ends of the image, so it pads
 * nothing there; a pooling pads where its box begins with the image.
 */
#ifndef ALNICO_TRAIN_GRAPH_SPLIT_H
#define ALNICO_TRAIN_GRAPH_SPLIT_H

#include "train/graph/part.h"

enum { SPLIT_RANGES = 8 };

/* So many parts of the operations from `first` to `last`, which are names of operations, or what they
 * have before a dot; "": from the first one to the last that reads no whole images. */
struct split_range {
    uint16_t parts[AXES];
    char first[NETWORK_NAME_BYTES], last[NETWORK_NAME_BYTES];
};

/* What is in no range is split by images. */
struct split {
    enum norm_group norm;
    struct split_range ranges[SPLIT_RANGES];
    size_t count;
};

/* From "rows=4", "images=2,rows=2", "rows=4@conv1..res4", "dense1:channels=2", the names on either side;
 * several joined by ';'. Errors: ARGUMENT, naming what does not fit. */
alnico_status_t split_parse(const char *text, struct split *out);

/* This rank's part of a finished network, which must outlive it. Without ranges it is split by images.
 * Errors: ARGUMENT (parts that are not one for each rank; a name of no operation; an operation that
 * reads whole images; a rank without rows or columns of the first in a range; channels that are split
 * in another way than one part for each rank, or of no operation with filters; losses of different
 * layouts; NORM_SAMPLE with batch norms in groups of different ranks), MEMORY. */
alnico_status_t network_split(const struct network *whole, const struct split *split, size_t rank,
                              size_t ranks, struct network **out);

/* Parts of the images that the ranks take, whatever their size is. */
size_t split_image_parts(const struct network *whole, const struct split *split, size_t ranks);

/* ---- For graph/split.c: graph/split_layouts.c ---- */

/* Chooses the layouts of a part's whole network, and the groups of its batch norms. `inside`: false, by
 * tensor; it becomes what is in a range. Errors: as network_split. */
alnico_status_t split_layouts(struct network_part *part, const struct split *split, bool *inside);

#endif
