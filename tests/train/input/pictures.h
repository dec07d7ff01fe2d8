/* PNG and JPEG files for tests, written by the libraries that read them. */
#ifndef ALNICO_TESTS_TRAIN_PICTURES_H
#define ALNICO_TESTS_TRAIN_PICTURES_H

#include <stddef.h>
#include <stdint.h>

enum picture_kind { PICTURE_GREY, PICTURE_COLOUR, PICTURE_ALPHA, PICTURE_PALETTE, PICTURE_GREY1 };

/* What is in a file: height x width pixels of 1, 3 or 4 bytes (or 2 each, of 16 bits), of a palette
 * or of GREY1 indices. */
struct picture {
    enum picture_kind kind;
    int height, width, bits; /* bits: 8 or 16 */
    int interlaced;
    const uint8_t *pixels;
    const uint8_t *palette; /* 256 colours */
};

void picture_png(const char *path, const struct picture *picture);

/* Grey or in colour; the best quality has the smallest numbers to quantise by. */
void picture_jpeg(const char *path, const struct picture *picture, int quality);

/* A folder of its own in /tmp, and its end with all that is in it. */
void pictures_folder(char path[64]);
void pictures_remove(const char *path);

/* A folder in it. */
void pictures_make(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
