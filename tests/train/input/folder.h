/* A small IDX data set in a folder of its own, whole or damaged as a test wants. */
#ifndef ALNICO_TESTS_TRAIN_FOLDER_H
#define ALNICO_TESTS_TRAIN_FOLDER_H

#include <stddef.h>
#include <stdint.h>

enum {
    TRAIN = 61,
    TEST = 23,
    HEIGHT = 6,
    WIDTH = 5,
    PIXELS = HEIGHT * WIDTH,
    CENTER = 3 * WIDTH + 2
};

enum { TRAIN_IMAGES, TRAIN_LABELS, TEST_IMAGES, TEST_LABELS, FILES };

struct folder {
    char path[64], source[80]; /* source: as data_open takes it */
    struct {
        uint8_t bytes[4096];
        size_t length;
    } files[FILES];
};

/* The files' names, without .gz. */
extern const char *const folder_names[FILES];

/* The contents of all files: image i of either part is all of level 4 * i, so that the pixel at
 * CENTER tells which it is, wherever it was moved to. */
void folder_describe(struct folder *folder);

int folder_label(int image);

/* Writes the contents to a new place: gzip files with the mode "wb", plain ones with "wbT". */
void folder_write(struct folder *folder, const char *mode);

/* Writes the path of a file with that ending ("" or ".gz"). */
void folder_path(const struct folder *folder, int file, const char *ending, char *out,
                 size_t bytes);

void folder_remove(const struct folder *folder);

#endif
