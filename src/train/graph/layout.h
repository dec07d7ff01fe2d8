/* Layouts: which rank holds which box of a tensor. The boxes of all ranks are a partition. Used by
 * graph/split.c and what carries out its moves. Any thread. */
#ifndef ALNICO_TRAIN_GRAPH_LAYOUT_H
#define ALNICO_TRAIN_GRAPH_LAYOUT_H

#include "train/layers/box.h"

#include <stdint.h>

/* Ranks are counted over channels first, then columns, rows and images. Rows and columns are cut at
 * multiples of `grain` only, as what upsampling by it makes. */
struct layout {
    uint16_t parts[AXES];
    uint16_t grain;
};

/* The product of the parts. */
size_t layout_ranks(const struct layout *layout);

/* Where a rank is among the parts of an axis. */
size_t layout_part(const struct layout *layout, enum axis axis, size_t rank);

/* A rank's box of a tensor of these sizes. Parts differ by one at most, in units of the grain;
 * of more parts than units some are empty. */
struct box layout_box(const struct layout *layout, const size_t sizes[AXES], size_t rank);

#endif
