/*
 * Resizing of rasters: halving by means, and linear interpolation between two rows and two columns
 * in whole numbers, so that every machine computes the same. See image.h.
 */
#include "base/status.h"
#include "train/input/image.h"

#include <math.h>
#include <stdlib.h>

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
    raster->height = height;
    raster->width = width;
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

/* Where the image begins in the resized side. */
static double offset_of(size_t side, double scale, size_t image, double crop)
{
    const double room = floor((double)side / scale + 0.5) - (double)image;
    return room > 0 ? floor(room * crop + 0.5) : 0;
}

/* Two rows, in 1 / UNIT. */
static void blend_rows(const uint8_t *upper, const uint8_t *lower, uint32_t weight, size_t count,
                       uint16_t *out)
{
    const uint16_t less = (uint16_t)(UNIT - weight), more = (uint16_t)weight;
    for (size_t i = 0; i < count; i++)
        out[i] = (uint16_t)(upper[i] * less + lower[i] * more);
}

static void blend_columns(const uint16_t *row, const struct place *places, size_t count,
                          size_t channels, uint8_t *out)
{
    for (size_t x = 0; x < count; x++) {
        const uint16_t *left = row + places[x].at * channels;
        const uint16_t *right = left + places[x].next * channels;
        const uint32_t more = places[x].weight, less = UNIT - more;
        for (size_t c = 0; c < channels; c++)
            *out++ = (uint8_t)((left[c] * less + right[c] * more + UNIT * UNIT / 2) >> 16);
    }
}

/* `places` has room for a row of the image, `row` for one of the raster. */
static void resize(const struct raster *raster, const struct image_view *view,
                   const struct source_crop *crop, struct place *places, uint16_t *row,
                   uint8_t *out)
{
    const size_t side = raster->height < raster->width ? raster->height : raster->width;
    const size_t bytes = raster->width * raster->channels;
    const double scale = (double)side / (double)view->shorter;
    const double top = offset_of(raster->height, scale, view->height, crop->down);
    const double left = offset_of(raster->width, scale, view->width, crop->right);
    for (size_t x = 0; x < view->width; x++)
        places[x] = place_of(left + (double)x, scale, raster->width);
    for (size_t y = 0; y < view->height; y++) {
        const struct place place = place_of(top + (double)y, scale, raster->height);
        const uint8_t *upper = raster->pixels + place.at * bytes;
        blend_rows(upper, upper + place.next * bytes, place.weight, bytes, row);
        blend_columns(row, places, view->width, raster->channels,
                      out + y * view->width * raster->channels);
    }
}

alnico_status_t raster_resize(const struct raster *raster, const struct image_view *view,
                              const struct source_crop *crop, uint8_t *out)
{
    struct place *places = malloc(view->width * sizeof *places);
    uint16_t *row = malloc(raster->width * raster->channels * sizeof *row);
    const bool enough = places && row;
    if (enough)
        resize(raster, view, crop, places, row, out);
    free(places);
    free(row);
    return enough ? ALNICO_SUCCESS : error_set(ALNICO_ERROR_MEMORY, "no memory to resize an image");
}
