/* Copying boxes between tensors and messages, in whichever order the channels stand. For the kernels of
 * the CPU; one thread calls, large boxes are shared among OpenMP threads. */
#ifndef ALNICO_TRAIN_KERNELS_BOXES_H
#define ALNICO_TRAIN_KERNELS_BOXES_H

#include "train/kernels/kernels.h"

/* Where the channels of a tensor's pixels stand: `run` of them side by side, those of the next run
 * `apart` elements further on. */
struct runs {
    size_t run, pixel, apart, image; /* from one pixel to the next, from one image to the next */
};

/* The channels of pixels that follow one another, `first` and `skip` of which stand before them, from
 * one tensor's order to the other's, in the longest runs that stand side by side in both. */
void pixels_copy(float *y, const struct runs *to, size_t first, const float *x,
                 const struct runs *from, size_t skip, size_t channels, size_t pixels, bool add);

/* A tensor's batch, `width` pixels a row. */
struct box_view {
    float *at;
    size_t width;
    struct runs runs;
    const size_t *from; /* where the box begins */
};

/* The first of a tensor's channels of the box's pixel 0 in a row of an image, both counted in the box. */
float *box_row(const struct box_view *view, size_t image, size_t row);

/* `from`, `to`: the tensors of the copy's ends; of one that is a message, or where zeros come from, they
 * are not looked at. What stands in its place already is left out. */
void boxes_copy(const struct box_copy *copy, struct box_view from, struct box_view to);

#endif
