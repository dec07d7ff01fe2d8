/*
 * Resizing of rasters: halving by means, and linear interpolation between two rows and two columns
 * in whole numbers, so that every machine computes the same. See image.h.
 */
#include "base/status.h"
#include "train/input/image.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { UNIT = 256 };

void raster_halve(struct raster *raster)
{
    const size_t height = raster->height / 2, width = raster->width / 2;
    const size_t channels = raster->channels, row = raster->width * channels;
    for (size_t y = 0; y < height; y++)
        for (size_t x = 0; x < width; x++)
            for (size_t c = 0; c < channels; c++) {
                const uint8_t *in = raster->pixels + 2 * y * row + 2 * x * channels + c;
                const int sum = in[0] + in[channels] + in[row] + in[row + channels];
                raster->pixels[(y * width + x) * channels + c] = (uint8_t)((sum + 2) / 4);
            }
    raster->height = raster->window.rows = height;
    raster->width = raster->window.columns = width;
}

/* A place between two pixels of a side: the first, the step to the second, and that one's weight of
 * UNIT. */
struct place {
    size_t at, next;
    uint32_t weight;
};

/* The place of a resized side's pixel in a side. */
static struct place place_of(double resized, double scale, size_t side)
{
    const double at = (resized + 0.5) * scale - 0.5, most = (double)(side - 1);
    const size_t fixed = (size_t)lround(fmin(fmax(at, 0), most) * UNIT);
    const size_t first = fixed / UNIT;
    return (struct place){first, first + 1 < side, (uint32_t)(fixed % UNIT)};
}

/* The pixel of the resized side at which the image begins. */
static double offset_of(size_t side, double scale, size_t image, double crop)
{
    const double room = floor((double)side / scale + 0.5) - (double)image;
    return room > 0 ? floor(room * crop + 0.5) : 0;
}

static double scale_of(const struct raster *raster, const struct image_view *view)
{
    const size_t side = raster->height < raster->width ? raster->height : raster->width;
    return (double)side / (double)view->shorter;
}

/* From the first pixel to the last of those that an image of `count` needs. */
static void span_of(size_t side, double scale, size_t count, double crop, size_t *first,
                    size_t *span)
{
    const double begin = offset_of(side, scale, count, crop);
    const struct place last = place_of(begin + (double)(count - 1), scale, side);
    *first = place_of(begin, scale, side).at;
    *span = last.at + last.next + 1 - *first;
}

struct window raster_window(const struct raster *raster, const struct image_view *view,
                            const struct source_crop *crop)
{
    const double scale = scale_of(raster, view);
    struct window window;
    span_of(raster->height, scale, view->height, crop->down, &window.top, &window.rows);
    span_of(raster->width, scale, view->width, crop->right, &window.left, &window.columns);
    return window;
}

/* Working memory of one resizing. Rows are of a whole number of channels, in 1 / UNIT of levels, with
 * COPIED elements of room behind them. */
struct resizer {
    size_t channels, width;           /* of the image */
    struct place *places;             /* of its columns; `at` counts from the first needed */
    uint16_t *memory;                 /* all of these: */
    uint16_t *row;                    /* two rows of the raster as one */
    uint16_t *left, *right;           /* the pixels at the image's columns, and those behind them */
    uint16_t *left_part, *right_part; /* their weights */
};

enum { COPIED = 4 }; /* elements that are copied as one word, for a pixel of fewer */

/* Two rows, in 1 / UNIT. */
static void blend_rows(const uint8_t *upper, const uint8_t *lower, uint32_t weight, size_t count,
                       uint16_t *restrict out)
{
    const uint16_t less = (uint16_t)(UNIT - weight), more = (uint16_t)weight;
    for (size_t i = 0; i < count; i++)
        out[i] = (uint16_t)(upper[i] * less + lower[i] * more);
}

/* Copies whole words: the next pixel overwrites what is too much of the one before. */
static void columns_gather(const struct resizer *r)
{
    for (size_t x = 0; x < r->width; x++) {
        const uint16_t *pixel = r->row + r->places[x].at * r->channels;
        const size_t next = r->places[x].next * r->channels;
        memcpy(r->left + x * r->channels, pixel, COPIED * sizeof *pixel);
        memcpy(r->right + x * r->channels, pixel + next, COPIED * sizeof *pixel);
    }
}

static void blend_columns(const uint16_t *left, const uint16_t *right, const uint16_t *left_part,
                          const uint16_t *right_part, size_t count, uint8_t *restrict out)
{
    for (size_t i = 0; i < count; i++) {
        const uint32_t sum = (uint32_t)left[i] * left_part[i] + (uint32_t)right[i] * right_part[i];
        out[i] = (uint8_t)((sum + UNIT * UNIT / 2) >> 16);
    }
}

static void resizer_free(struct resizer *r)
{
    free(r->places);
    free(r->memory);
}

static alnico_status_t resizer_allocate(const struct raster *raster, struct resizer *r)
{
    const size_t row = raster->width * r->channels + COPIED,
                 image = r->width * r->channels + COPIED;
    r->places = calloc(r->width, sizeof *r->places);
    r->memory = calloc(row + 4 * image, sizeof *r->memory);
    if (!r->places || !r->memory)
        return error_set(ALNICO_ERROR_MEMORY, "no memory to resize an image");
    r->row = r->memory;
    r->left = r->row + row;
    r->right = r->left + image;
    r->left_part = r->right + image;
    r->right_part = r->left_part + image;
    return ALNICO_SUCCESS;
}

/* The columns of an image that begins at `left` of the resized raster. */
static void columns_place(const struct raster *raster, double left, double scale, size_t first,
                          struct resizer *r)
{
    for (size_t x = 0; x < r->width; x++) {
        r->places[x] = place_of(left + (double)x, scale, raster->width);
        r->places[x].at -= first;
        for (size_t c = 0; c < r->channels; c++) {
            r->left_part[x * r->channels + c] = (uint16_t)(UNIT - r->places[x].weight);
            r->right_part[x * r->channels + c] = (uint16_t)r->places[x].weight;
        }
    }
}

static void resize(const struct raster *raster, const struct image_view *view,
                   const struct source_crop *crop, struct resizer *r, uint8_t *out)
{
    const struct window needed = raster_window(raster, view, crop), *there = &raster->window;
    const size_t bytes = there->columns * raster->channels, count = r->width * r->channels;
    const double scale = scale_of(raster, view);
    const double top = offset_of(raster->height, scale, view->height, crop->down);
    const double left = offset_of(raster->width, scale, view->width, crop->right);
    columns_place(raster, left, scale, needed.left, r);
    for (size_t y = 0; y < view->height; y++) {
        const struct place place = place_of(top + (double)y, scale, raster->height);
        const uint8_t *upper = raster->pixels + (place.at - there->top) * bytes +
                               (needed.left - there->left) * r->channels;
        blend_rows(upper, upper + place.next * bytes, place.weight, needed.columns * r->channels,
                   r->row);
        columns_gather(r);
        blend_columns(r->left, r->right, r->left_part, r->right_part, count, out + y * count);
    }
}

alnico_status_t raster_resize(const struct raster *raster, const struct image_view *view,
                              const struct source_crop *crop, uint8_t *out)
{
    struct resizer r = {.channels = raster->channels, .width = view->width};
    const alnico_status_t status = resizer_allocate(raster, &r);
    if (status == ALNICO_SUCCESS)
        resize(raster, view, crop, &r, out);
    resizer_free(&r);
    return status;
}
