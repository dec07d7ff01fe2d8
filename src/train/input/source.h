/* Sources of labelled images: what reads the images of one part of a data set by number, before
 * shuffling and augmentation. data.c opens and closes a source on the caller's thread and reads on
 * its own; nothing changes between the two, so that several threads may read at once. */
#ifndef ALNICO_TRAIN_INPUT_SOURCE_H
#define ALNICO_TRAIN_INPUT_SOURCE_H

#include <alnico/alnico.h>

#include <stdbool.h>
#include <stdint.h>

enum { SOURCE_MOST_SIDE = 1 << 14, SOURCE_DEFAULT_CLASSES = 10 };

enum source_type {
    SOURCE_UINT8, /* levels from 0 to 255, to be normalised by mean and deviation */
    SOURCE_FLOAT32
};

/* Ways to move a training image, as bits; AUGMENT_DEFAULT: those of the source. */
enum augment {
    AUGMENT_DEFAULT = 0,
    AUGMENT_NONE = 1,
    AUGMENT_SHIFT = 2, /* up to 2 pixels each way, black moves in */
    AUGMENT_FLIP = 4,  /* left and right, one in two */
    AUGMENT_CROP = 8   /* from a random place of what the source has around the image */
};

struct data_info {
    size_t images; /* in the part, over all ranks */
    size_t height, width, channels, classes;
    size_t labels; /* of an image: 1, or height x width, one a pixel */
    enum source_type type;
    double mean, deviation; /* of the levels of all pixels of the training part; 0 and 1 for
                             * float32 */
    unsigned augment;       /* the default, of AUGMENT_ bits; 0: none */
    unsigned augments;      /* those that can be */
};

struct source_setup {
    const char *place; /* what stands behind the name and a colon; NULL: nothing */
    size_t classes;    /* of the labels; 0: as the source says */
    uint64_t seed;     /* of images that are made up */
    bool train;        /* the training part, not the test part */
};

/* The place at which an image is cut from what the source has around it: from 0, the top or left, to
 * 1, the bottom or right. */
struct source_crop {
    double down, right;
};

struct source_ops {
    const char *name;
    const char *about; /* how it is written, for help and errors: "idx:DIR" */
    bool own_classes;  /* setup's are for other sources */
    bool repeats; /* the images are made up, and not fast enough for a GPU: that keeps a batch */

    /* Whether `place` is written as it should be, be it there or not. */
    bool (*accepts)(const char *place);

    /* Fills in *info and *self. Errors: ARGUMENT (a place, a file or its contents, named with what
     * is wrong), MEMORY. On an error nothing is left to close. */
    alnico_status_t (*open)(const struct source_setup *setup, struct data_info *info, void **self);
    void (*close)(void *self);

    /* Hears that so many images from `index` on will be read soon; NULL: it makes no difference. */
    void (*expect)(const void *self, size_t index, size_t count);

    /* Writes image `index` as height x width x channels elements of info->type, and its labels, all
     * below info->classes. crop: of use where the source has more than that; NULL: the middle. Any
     * number of threads at once. Errors: SYSTEM or ARGUMENT, naming the file and the place in it. */
    alnico_status_t (*read)(const void *self, size_t index, const struct source_crop *crop,
                            void *pixels, int32_t *labels);
};

extern const struct source_ops source_fashion_mnist, source_idx, source_cifar10, source_folder,
    source_packed, source_synthetic, source_mesh, source_step;

/* All of them, ended by NULL. */
extern const struct source_ops *const sources_all[];

/* An open part of a source. */
struct source {
    const struct source_ops *ops;
    struct data_info info;
    void *self;
};

/* The source that `text`, such as "idx:DIR", names by a place that it accepts; NULL: none. */
const struct source_ops *source_find(const char *text);

/* What source_find knows, for help and errors: "fashion-mnist, idx:DIR or ..." in `bytes`. */
void source_forms(char *out, size_t bytes);

/* Opens what `text` names; setup->place is not read. Errors: as open's. */
alnico_status_t source_open(const char *text, const struct source_setup *setup, struct source *out);

/* A source that is not open is fine. */
void source_close(struct source *source);

alnico_status_t source_read(const struct source *source, size_t index,
                            const struct source_crop *crop, void *pixels, int32_t *labels);

/* Of an element, of a pixel's channels, and of an image. */
size_t source_element(const struct data_info *info);
size_t source_pixel(const struct data_info *info);
size_t source_image(const struct data_info *info);

/* For `accepts`: a text of at least a character, or no text. */
bool source_accepts_path(const char *place);
bool source_accepts_nothing(const char *place);

/* Sets the mean and deviation from how many pixels have each level. */
void source_normalise(const size_t histogram[256], struct data_info *info);

#endif
