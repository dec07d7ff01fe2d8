/* Boxes of pixels: what a rank has of a tensor, and what an operation reads to make them. Used by the
 * layers, and by graph/ to split a network over ranks. Any thread. */
#ifndef ALNICO_TRAIN_LAYERS_BOX_H
#define ALNICO_TRAIN_LAYERS_BOX_H

#include <stdbool.h>
#include <stddef.h>

/* Of a batch of images. */
enum axis { AXIS_IMAGES, AXIS_ROWS, AXIS_COLUMNS, AXIS_CHANNELS, AXES };

/* From from[axis] to before to[axis], of the whole tensor; with margins it may reach over its ends.
 * Nothing, if an axis has nothing. */
struct box {
    ptrdiff_t from[AXES], to[AXES];
};

/* 0 if it is empty on the axis. */
size_t box_extent(const struct box *box, enum axis axis);

/* Numbers in it. */
size_t box_elements(const struct box *box);

/* Boxes of nothing are equal. */
bool box_equal(const struct box *a, const struct box *b);

struct box box_common(const struct box *a, const struct box *b);

#endif
