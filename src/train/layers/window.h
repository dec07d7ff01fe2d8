/* Windows that slide over an image: what convolutions and poolings share. */
#ifndef ALNICO_TRAIN_LAYERS_WINDOW_H
#define ALNICO_TRAIN_LAYERS_WINDOW_H

#include "train/layers/layer.h"

/* The output's rows and columns. With `ceil` there is one more row or column of windows where some
 * pixels are left, if it begins inside the image or its first padding. Errors: ARGUMENT (sizes of 0, a window larger than its padded
 * input). */
alnico_status_t window_shape(const struct operation *operation, const struct tensor *in,
                             struct tensor *out);

/* As layer.h says: all pixels, if the window is 0. */
void window_reads(const struct node *node, const struct tensor *in, struct box *box);

/* The input pixel under place (r, c) of the window that makes output pixel (n, i, j): its first
 * channel's index, or false if it is padding. */
bool window_pixel(const struct layer_pass *p, size_t n, size_t i, size_t j, size_t r, size_t c,
                  size_t *index);

/* Calls `visit` for every output pixel (n, i, j) that is to be made, whose first channel is at `out`. */
void window_each(const struct layer_pass *p, void (*visit)(const struct layer_pass *, size_t n,
                                                           size_t i, size_t j, size_t out));

#endif
