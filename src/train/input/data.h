/* Labelled images in batches: read from a source, shuffled per epoch by seed, split over ranks,
 * normalised, augmented, and prepared ahead by a thread of the data set's own. One thread at a time
 * calls. */
#ifndef ALNICO_TRAIN_INPUT_DATA_H
#define ALNICO_TRAIN_INPUT_DATA_H

#include "train/input/source.h"

struct data;

/* Batches that are in memory for each open part: the caller's and those prepared ahead. */
enum { DATA_SLOTS = 4 };

struct data_options {
    const char *source; /* as source_open takes it */
    size_t batch;       /* images per rank and batch, > 0 */
    size_t classes;     /* of the labels; 0: as the source says */
    int rank, size;     /* which share of every epoch this is */
    uint64_t seed; /* of the shuffle, the augmentation and synthetic images; equal on all ranks */
    bool train;    /* training part: shuffled, shifted and flipped; whole batches only */
    size_t first;  /* the batch to begin with, over all epochs */
};

struct batch {
    const float *images; /* count x height x width x channels, mean 0 and variance 1 over the set */
    const int32_t *labels; /* count x info's labels, each below classes */
    size_t count;          /* the batch size; fewer, even 0, at the end of the test part */
};

/* Opens a part of a data set. Errors: ARGUMENT (an option, named with its value; a missing,
 * truncated or foreign file, named with what was wrong), MEMORY, SYSTEM (no thread). On error *out
 * is NULL. */
alnico_status_t data_open(const struct data_options *options, struct data **out);

const struct data_info *data_info(const struct data *data);

/* Batches in an epoch, the same on every rank. Training drops the rest; testing covers every image
 * once. */
size_t data_batches(const struct data *data);

/* The next batch, epoch after epoch; what it points to is valid until the next call. The ranks'
 * batches, one after the other, are what a single rank would get with a batch `size` times as
 * large. Errors: as the source's of reading an image. */
alnico_status_t data_next(struct data *data, struct batch *out);

/* Stops the thread and frees everything. NULL is fine. */
void data_close(struct data *data);

#endif
