/* JPEG and PNG files as images of 8 bits: decoded by libjpeg-turbo and libpng, resized, cropped.
 * Called by sources; any thread. */
#ifndef ALNICO_TRAIN_INPUT_IMAGE_H
#define ALNICO_TRAIN_INPUT_IMAGE_H

#include "train/input/source.h"

/* The bytes of a file, and its name for errors. */
struct image_file {
    const char *name;
    const uint8_t *bytes;
    size_t length;
};

/* height x width pixels of 1 (grey) or 3 (red, green, blue) bytes, of which those of a window are
 * there: rows x columns from (top, left) on. */
struct window {
    size_t top, left, rows, columns;
};
struct raster {
    size_t height, width, channels;
    struct window window;
    uint8_t *pixels;
};

/* How a file is to become an image. */
struct image_view {
    size_t height, width, channels; /* of the image; channels: 1 or 3 */
    size_t shorter; /* the file's shorter side becomes so many pixels, at least the image's; 0: it
                     * has the image's size already */
};

/* Writes the shape that a file's header has, with no pixels. Errors: ARGUMENT, for what image_read
 * refuses by its header, too. */
alnico_status_t image_shape(const struct image_file *file, struct raster *out);

/* Writes the part of the resized file that `crop` says (NULL: the middle), as height x width x
 * channels bytes. Resizing halves the sides while they stay long enough (a JPEG's before they are
 * computed), then interpolates linearly between pixels. Palettes and grey levels of fewer bits
 * become 8 bits, grey becomes 3 equal channels if wanted, and an alpha channel is dropped. Of a JPEG
 * that ends as it should, what the image does not need is not decoded. Errors:
 * ARGUMENT for a file that is neither JPEG nor PNG, truncated or damaged, of more than
 * SOURCE_MOST_SIDE pixels a side, of 16 bits, of CMYK, in colour where 1 channel is wanted, or of
 * another size where it has to be the image's; named with the row in which it is wrong. MEMORY. */
alnico_status_t image_read(const struct image_file *file, const struct image_view *view,
                           const struct source_crop *crop, uint8_t *out);

/* ---- image_jpeg.c, image_png.c ---- */

struct image_format {
    uint8_t mark[4]; /* a file's first bytes */
    size_t mark_bytes;
    alnico_status_t (*shape)(const struct image_file *file, struct raster *out);
    /* Decodes to out->channels; the shorter side may be halved while it stays at least the view's,
     * and what the view and the crop do not need may be left out then. out->pixels is allocated,
     * and the caller's on errors, too. */
    alnico_status_t (*decode)(const struct image_file *file, const struct image_view *view,
                              const struct source_crop *crop, struct raster *out);
};

extern const struct image_format image_jpeg, image_png;

/* For decode: refuses sides that are too long or 0, and allocates the pixels of the window. */
alnico_status_t raster_check(const struct image_file *file, const struct raster *raster);
alnico_status_t raster_allocate(const struct image_file *file, struct raster *out);

/* ---- resize.c ---- */

/* The part of a raster that the view needs; its shorter side is not to be halved any more. */
struct window raster_window(const struct raster *raster, const struct image_view *view,
                            const struct source_crop *crop);

/* Halves the sides of a whole raster by means of 2 x 2 pixels, in place. */
void raster_halve(struct raster *raster);

/* Writes a part of the raster as if it had been resized. Errors: MEMORY. */
alnico_status_t raster_resize(const struct raster *raster, const struct image_view *view,
                              const struct source_crop *crop, uint8_t *out);

#endif
