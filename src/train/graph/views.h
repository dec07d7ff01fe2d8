/* Views: boxes of what an operation makes, each with what is read for it. An operation that reads what a
 * move makes has an interior, which needs no pixels of other ranks and is computed while these travel,
 * and a border around it (Dryden et al. 2019). Made from the network alone. Used by the memory plan and the
 * kernels. Any thread. */
#ifndef ALNICO_TRAIN_GRAPH_VIEWS_H
#define ALNICO_TRAIN_GRAPH_VIEWS_H

#include "train/graph/part.h"

/* An interior, and rows and columns before and behind it. */
enum { VIEWS = 5 };

/* Boxes of the rank's tensors, counted from where those begin. */
struct view {
    struct box out, in;
    size_t pad_rows, pad_columns; /* that the first window has before `in` */
};

/* The views of a node's output, for a batch of so many images on all ranks: the interior, then the border.
 * They are a partition of the rank's. Returns how many; 0: it reads no move's output by windows, or has no
 * interior or no border. */
size_t views_make(const struct network *network, size_t node, size_t batch,
                  struct view views[VIEWS]);

/* Numbers that the node reads of other ranks. */
size_t views_halo(const struct network *network, size_t node, size_t batch);

#endif
