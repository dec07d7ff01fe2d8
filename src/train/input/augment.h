/* Augmentation: how a training image is moved before it is used. Elements of any size, since what
 * is moved in is zero bytes: black. Any thread. */
#ifndef ALNICO_TRAIN_INPUT_AUGMENT_H
#define ALNICO_TRAIN_INPUT_AUGMENT_H

#include "train/input/source.h"

struct augment_move {
    struct source_crop crop; /* to read it by */
    int down, right;         /* pixels that the window on the image is shifted by; black outside */
    bool flip;               /* then mirrored, left and right */
};

/* "none", or ways joined by commas, as "shift,flip", or "default". False: it is none of them. */
bool augment_parse(const char *text, unsigned *out);

/* The ways for the images of a source when `wanted` was asked for, as AUGMENT_ bits without NONE.
 * ARGUMENT, naming those that it cannot have. */
alnico_status_t augment_choose(const struct data_info *info, unsigned wanted, unsigned *out);

/* A move in some ways, drawn from a generator's state. */
struct augment_move augment_draw(unsigned ways, uint64_t state);

/* out[y][x] = in[y + down][x + right], or black outside, then mirrored; `in` and `out` are images of
 * the source. */
void augment_apply(const struct data_info *info, const struct augment_move *move, const void *in,
                   void *out);

#endif
