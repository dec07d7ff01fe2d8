/*
 * PNG by libpng. The library reports errors by a function that may not return: a jump out of it, to
 * the one call of setjmp around its work.
 */
#include "base/status.h"
#include "train/input/image.h"

#include <setjmp.h>
#include <stdio.h>
#include <string.h>

#include <png.h>

struct png {
    png_structp state;
    png_infop info;
    jmp_buf failed;
    size_t at; /* read so far of the file */
    size_t row;
    const struct image_file *file;
    char text[128];
};

static void fail(png_structp state, png_const_charp text)
{
    struct png *png = png_get_error_ptr(state);
    snprintf(png->text, sizeof png->text, "%s", text);
    longjmp(png->failed, 1);
}

static void ignore(png_structp state, png_const_charp text)
{
    (void)state;
    (void)text;
}

static void give(png_structp state, png_bytep to, png_size_t bytes)
{
    struct png *png = png_get_io_ptr(state);
    if (bytes > png->file->length - png->at)
        png_error(state, "truncated");
    memcpy(to, png->file->bytes + png->at, bytes);
    png->at += bytes;
}

static alnico_status_t damaged(const struct png *png, const struct raster *out)
{
    return error_set(ALNICO_ERROR_ARGUMENT, "%s: damaged PNG at row %zu of %zu (%s)",
                     png->file->name, png->row, out->height, png->text);
}

/* Reads the header. */
static alnico_status_t begin(struct png *png, struct raster *out)
{
    png->state = png_create_read_struct(PNG_LIBPNG_VER_STRING, png, fail, ignore);
    png->info = png->state ? png_create_info_struct(png->state) : NULL;
    if (!png->info)
        return error_set(ALNICO_ERROR_MEMORY, "%s: no memory for libpng", png->file->name);
    png_set_read_fn(png->state, png, give);
    png_set_user_limits(png->state, PNG_UINT_31_MAX, PNG_UINT_31_MAX); /* raster_check's are ours */
    png_read_info(png->state, png->info);
    out->height = png_get_image_height(png->state, png->info);
    out->width = png_get_image_width(png->state, png->info);
    if (png_get_bit_depth(png->state, png->info) == 16)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: PNG of 16 bits, expected at most 8",
                         png->file->name);
    return raster_check(png->file, out);
}

static size_t channels_of(const struct png *png)
{
    const int type = png_get_color_type(png->state, png->info);
    return type & PNG_COLOR_MASK_COLOR ? 3 : 1; /* palettes are in colour, too */
}

static alnico_status_t shape_of(struct png *png, struct raster *out)
{
    if (setjmp(png->failed))
        return damaged(png, out);
    TRY(begin(png, out));
    out->channels = channels_of(png);
    return ALNICO_SUCCESS;
}

/* All kinds become grey, or red, green and blue, of 8 bits. Returns the number of passes. */
static int transformations_set(struct png *png, size_t channels)
{
    png_set_expand(png->state);
    png_set_strip_alpha(png->state);
    if (channels == 3)
        png_set_gray_to_rgb(png->state);
    const int passes = png_set_interlace_handling(png->state);
    png_read_update_info(png->state, png->info);
    return passes;
}

static alnico_status_t decode_rows(struct png *png, struct raster *out)
{
    if (setjmp(png->failed))
        return damaged(png, out);
    TRY(begin(png, out));
    if (out->channels == 1 && channels_of(png) == 3)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: in colour, among grey images",
                         png->file->name);
    const int passes = transformations_set(png, out->channels);
    const size_t row = out->width * out->channels;
    if (png_get_rowbytes(png->state, png->info) != row)
        png_error(png->state, "rows of an unexpected length");
    out->window = (struct window){.rows = out->height, .columns = out->width};
    TRY(raster_allocate(png->file, out));
    for (int pass = 0; pass < passes; pass++)
        for (png->row = 0; png->row < out->height; png->row++)
            png_read_row(png->state, out->pixels + png->row * row, NULL);
    png_read_end(png->state, NULL);
    return ALNICO_SUCCESS;
}

static alnico_status_t png_shape(const struct image_file *file, struct raster *out)
{
    struct png png = {.file = file};
    const alnico_status_t status = shape_of(&png, out);
    png_destroy_read_struct(&png.state, &png.info, NULL);
    return status;
}

/* Whole: image_read halves it. */
static alnico_status_t png_decode(const struct image_file *file, const struct image_view *view,
                                  const struct source_crop *crop, struct raster *out)
{
    struct png png = {.file = file};
    const alnico_status_t status = decode_rows(&png, out);
    (void)view;
    (void)crop;
    png_destroy_read_struct(&png.state, &png.info, NULL);
    return status;
}

const struct image_format image_png = {
    .mark = {0x89, 'P', 'N', 'G'}, .mark_bytes = 4, .shape = png_shape, .decode = png_decode};
