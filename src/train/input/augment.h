/* Augmentation: how a training image is moved before it is used. Elements of any size, since what
 * is moved in is zero bytes: black. Any thread. */
#ifndef ALNICO_TRAIN_INPUT_AUGMENT_H
#define ALNICO_TRAIN_INPUT_AUGMENT_H

#include "train/input/source.h"

struct augment_move {
    int down, right; /* pixels that the window on the image is shifted by; black outside */
    bool flip;       /* then mirrored, left and right */
};

/* A move drawn from `bits`: at most 2 pixels each way, and flipped in one of two. */
struct augment_move augment_draw(uint64_t bits);

/* out[y][x] = in[y + down][x + right], or black outside, then mirrored; `in` and `out` are images of
 * the source. */
void augment_apply(const struct data_info *info, const struct augment_move *move, const void *in,
                   void *out);

#endif
