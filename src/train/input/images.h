/* The images of one part of a data set by number, before shuffling and augmentation: IDX or
 * synthetic. Immutable once opened; any thread reads. */
#ifndef ALNICO_TRAIN_INPUT_IMAGES_H
#define ALNICO_TRAIN_INPUT_IMAGES_H

#include "train/input/data.h"
#include "train/input/idx.h"

struct images {
    struct data_info info;
    uint64_t seed;
    float black; /* what a shift moves in at the edges */
    /* IDX */
    struct idx pixels, labels;
    float levels[256]; /* the normalised value of a byte */
    /* synthetic */
    float *patterns; /* classes x cells x channels */
    float *noise;    /* a table that images begin to read at random places */
};

/* Whether a source is written as data_options says, be it there or not. */
bool images_source_reads(const char *source);

/* Reads or makes what options->source names. Errors as data_open; on error nothing is left to
 * finish. */
alnico_status_t images_open(const struct data_options *options, struct images *out);

/* Floats of one image. */
size_t images_pixels(const struct data_info *info);

/* Writes image `index` as height x width x channels normalised floats, and returns its label. */
int32_t images_get(const struct images *images, size_t index, float *out);

void images_finish(struct images *images);

#endif
