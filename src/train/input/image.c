/* Which format a file has, and how it becomes an image of a view. See image.h. */
#include "train/input/image.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

static const struct image_format *const formats[] = {&image_jpeg, &image_png};

static const struct image_format *format_find(const struct image_file *file)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (file->length >= formats[i]->mark_bytes &&
            memcmp(file->bytes, formats[i]->mark, formats[i]->mark_bytes) == 0)
            return formats[i];
    error_set(ALNICO_ERROR_ARGUMENT, "%s: neither JPEG nor PNG, by the first of its %zu bytes",
              file->name, file->length);
    return NULL;
}

alnico_status_t raster_check(const struct image_file *file, const struct raster *raster)
{
    const size_t most = SOURCE_MOST_SIDE;
    if (raster->height && raster->width && raster->height <= most && raster->width <= most)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT, "%s: %zu x %zu pixels, expected 1 to %zu each",
                     file->name, raster->height, raster->width, most);
}

alnico_status_t raster_allocate(const struct image_file *file, struct raster *out)
{
    const size_t bytes = out->window.rows * out->window.columns * out->channels;
    out->pixels = malloc(bytes);
    if (!out->pixels)
        return error_set(ALNICO_ERROR_MEMORY, "%s: no memory for %zu bytes", file->name, bytes);
    return ALNICO_SUCCESS;
}

alnico_status_t image_shape(const struct image_file *file, struct raster *out)
{
    const struct image_format *format = format_find(file);
    *out = (struct raster){0};
    return format ? format->shape(file, out) : ALNICO_ERROR_ARGUMENT;
}

static size_t shorter_side(const struct raster *raster)
{
    return raster->height < raster->width ? raster->height : raster->width;
}

static alnico_status_t write_view(const struct image_file *file, const struct image_view *view,
                                  const struct source_crop *crop, struct raster *raster,
                                  uint8_t *out)
{
    if (!view->shorter && (raster->height != view->height || raster->width != view->width))
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: %zu x %zu pixels, but others %zu x %zu",
                         file->name, raster->height, raster->width, view->height, view->width);
    if (!view->shorter) {
        memcpy(out, raster->pixels, view->height * view->width * view->channels);
        return ALNICO_SUCCESS;
    }
    while (shorter_side(raster) / 2 >= view->shorter)
        raster_halve(raster);
    return raster_resize(raster, view, crop, out);
}

alnico_status_t image_read(const struct image_file *file, const struct image_view *view,
                           const struct source_crop *crop, uint8_t *out)
{
    static const struct source_crop middle = {0.5, 0.5};
    const struct image_format *format = format_find(file);
    struct raster raster = {.channels = view->channels};
    if (!format)
        return ALNICO_ERROR_ARGUMENT;
    crop = crop ? crop : &middle;
    alnico_status_t status = format->decode(file, view, crop, &raster);
    if (status == ALNICO_SUCCESS)
        status = write_view(file, view, crop, &raster, out);
    free(raster.pixels);
    return status;
}
