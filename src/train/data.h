/* Labelled images in batches: synthetic, or IDX files (gzip or not), shuffled per epoch by seed, split
 * over ranks, normalised, augmented, and prepared ahead by a thread of the data set's own. One thread
 * at a time calls. */
#ifndef ALNICO_SRC_TRAIN_DATA_H
#define ALNICO_SRC_TRAIN_DATA_H

#include <alnico/alnico.h>

#include <stdint.h>

struct data;

struct data_options {
    const char *source; /* "synthetic", "synthetic:HxWxC", "fashion-mnist", "idx:DIR" */
    size_t batch;       /* images per rank and batch, > 0 */
    int rank, size;     /* which share of every epoch this is */
    uint64_t seed; /* of the shuffle, the augmentation and synthetic images; equal on all ranks */
    bool train;    /* training part: shuffled, shifted and flipped; whole batches only */
};

struct data_info {
    size_t images; /* in the part, over all ranks */
    size_t height, width, channels, classes;
};

struct batch {
    const float *images; /* count x height x width x channels, mean 0 and variance 1 over the set */
    const int32_t *labels; /* count, each below classes */
    size_t count;          /* the batch size; fewer, even 0, at the end of the test part */
};

/* Opens a part of a data set. Errors: ARGUMENT (an option, named with its value; a missing, truncated or
 * foreign file, named with what was wrong), MEMORY, SYSTEM. */
alnico_status_t data_open(const struct data_options *options, struct data **out);

const struct data_info *data_info(const struct data *data);

/* Batches in an epoch, the same on every rank. Training drops the rest; testing covers every image once. */
size_t data_batches(const struct data *data);

/* The next batch, epoch after epoch; what `out` points to is valid until the next call. */
alnico_status_t data_next(struct data *data, struct batch *out);

/* Seconds that data_next has waited for the preparing thread so far. */
double data_waited(const struct data *data);

/* Stops the thread and frees everything. NULL is fine. */
void data_close(struct data *data);

#endif
