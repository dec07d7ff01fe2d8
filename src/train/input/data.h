/* Labelled images in batches: read from a source, shuffled per epoch by seed, split over ranks,
 * normalised, augmented, and prepared ahead by threads of the data set's own. One thread at a time
 * calls. */
#ifndef ALNICO_TRAIN_INPUT_DATA_H
#define ALNICO_TRAIN_INPUT_DATA_H

#include "device/device.h"
#include "train/input/source.h"

struct data;

struct data_options {
    const char *source; /* as source_open takes it */
    size_t batch;       /* images per rank and batch, > 0 */
    size_t classes;     /* of the labels; 0: as the source says */
    int rank, size;     /* which share of every epoch this is */
    uint64_t seed; /* of the shuffle, the augmentation and synthetic images; equal on all ranks */
    bool train;    /* training part: shuffled, augmented; whole batches only */
    unsigned augment;     /* AUGMENT_ bits for it */
    size_t skip_bad;      /* images that may be unreadable: another is in the place of each */
    size_t shuffle_block; /* images that stay near each other, as shuffle.h says; 0: all */
    size_t first;         /* the batch to begin with, over all epochs */
    size_t multiple; /* of training: batches of an epoch, of which the rest is left out; 0: 1 */
    bool levels;     /* images of levels stay so, for a device that normalises them */
    size_t loaders;  /* threads that prepare batches; 0: data_next does, on the caller's */
    size_t prefetch; /* batches that they prepare ahead, with loaders > 0 */
    size_t held;     /* batches that the caller keeps at a time; 0: 1 */
    const struct device_ops *device; /* whose pinned memory images are in; NULL: any memory */
};

struct batch {
    union {                    /* count x height x width x channels */
        const float *images;   /* mean 0 and variance 1 over the set */
        const uint8_t *levels; /* where data_levels says so */
    };
    const int32_t *labels; /* count x info's labels, each below classes */
    size_t count;          /* the batch size; fewer, even 0, at the end of the test part */
};

/* Opens a part of a data set. Errors: ARGUMENT (an option, named with its value; a missing,
 * truncated or foreign file, named with what was wrong), MEMORY, SYSTEM (no thread). On error *out
 * is NULL. */
alnico_status_t data_open(const struct data_options *options, struct data **out);

const struct data_info *data_info(const struct data *data);

/* The values of levels, 256, if batches are of those; NULL: they are normalised. */
const float *data_levels(const struct data *data);

/* Batches that options keep in memory. */
size_t data_slots(const struct data_options *options);

/* Batches in an epoch, the same on every rank. Training drops the rest; testing covers every image
 * once. */
size_t data_batches(const struct data *data);

/* Images that could not be read so far, and were left out. NULL: none. */
size_t data_skipped(const struct data *data);

/* The next batch, epoch after epoch; what it points to is valid until the held-th call after this
 * one. The ranks' batches, one after the other, are what a single rank would get with a batch
 * `size` times as large; loaders and memory change nothing in them. Errors: as the source's of
 * reading an image. */
alnico_status_t data_next(struct data *data, struct batch *out);

/* Stops the threads and frees everything. NULL is fine. */
void data_close(struct data *data);

#endif
