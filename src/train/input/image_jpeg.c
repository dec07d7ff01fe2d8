/*
 * JPEG by libjpeg-turbo. The library reports errors by a function that may not return: a jump out
 * of it, to the one call of setjmp around its work.
 */
#include "base/status.h"
#include "train/input/image.h"

#include <setjmp.h>
#include <stdio.h>

#include <jpeglib.h>
/* after it */
#include <jerror.h>

enum { MARGIN = 32 };

struct jpeg {
    struct jpeg_decompress_struct state;
    struct jpeg_error_mgr errors;
    jmp_buf failed;
    char text[JMSG_LENGTH_MAX];
};

static void fail(j_common_ptr state)
{
    struct jpeg *jpeg = (struct jpeg *)state->client_data;
    state->err->format_message(state, jpeg->text);
    longjmp(jpeg->failed, 1);
}

/* Warnings of the library are damage, except bytes between markers, which change nothing. */
static void warn(j_common_ptr state, int level)
{
    if (level < 0 && state->err->msg_code != JWRN_EXTRANEOUS_DATA)
        fail(state);
}

static alnico_status_t damaged(const struct image_file *file, const struct jpeg *jpeg)
{
    return error_set(ALNICO_ERROR_ARGUMENT, "%s: damaged JPEG at row %u of %u (%s)", file->name,
                     jpeg->state.output_scanline, jpeg->state.image_height, jpeg->text);
}

/* Reads the header. */
static alnico_status_t begin(const struct image_file *file, struct jpeg *jpeg, struct raster *out)
{
    jpeg_create_decompress(&jpeg->state);
    jpeg_mem_src(&jpeg->state, file->bytes, file->length);
    jpeg_read_header(&jpeg->state, TRUE);
    out->height = jpeg->state.image_height;
    out->width = jpeg->state.image_width;
    if (jpeg->state.num_components != 1 && jpeg->state.num_components != 3)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "%s: JPEG of %d colours, expected grey or red, green and blue", file->name,
                         jpeg->state.num_components);
    return raster_check(file, out);
}

static alnico_status_t shape_of(const struct image_file *file, struct jpeg *jpeg,
                                struct raster *out)
{
    if (setjmp(jpeg->failed))
        return damaged(file, jpeg);
    TRY(begin(file, jpeg, out));
    out->channels = (size_t)jpeg->state.num_components;
    return ALNICO_SUCCESS;
}

/* The largest of the divisors that the library is fast with that leaves `shorter` pixels. */
static unsigned divisor(const struct raster *whole, size_t shorter)
{
    const size_t side = whole->height < whole->width ? whole->height : whole->width;
    unsigned by = 1;
    while (shorter && by < 8 && side / (2 * by) >= shorter)
        by *= 2;
    return by;
}

/* True if the file ends as a whole one does. */
static bool ends(const struct image_file *file)
{
    return file->length > 2 && file->bytes[file->length - 2] == 0xff &&
           file->bytes[file->length - 1] == JPEG_EOI;
}

/* Leaves out columns and rows that the view does not need. The library adds columns up to its blocks;
 * MARGIN keeps those that it interpolates differently at an edge outside. */
static void window_set(const struct image_file *file, const struct image_view *view,
                       const struct source_crop *crop, struct jpeg *jpeg, struct raster *out)
{
    const size_t side = out->height < out->width ? out->height : out->width;
    out->window = (struct window){.rows = out->height, .columns = out->width};
    if (!view->shorter || side / 2 >= view->shorter || !ends(file))
        return;
    out->window = raster_window(out, view, crop);
    const size_t end = out->window.left + out->window.columns + MARGIN;
    JDIMENSION left = (JDIMENSION)(out->window.left > MARGIN ? out->window.left - MARGIN : 0);
    JDIMENSION columns = (JDIMENSION)(end < out->width ? end : out->width) - left;
    if (columns < out->width)
        jpeg_crop_scanline(&jpeg->state, &left, &columns);
    out->window.left = left;
    out->window.columns = columns;
    if (out->window.top)
        jpeg_skip_scanlines(&jpeg->state, (JDIMENSION)out->window.top);
}

static alnico_status_t decode_rows(const struct image_file *file, const struct image_view *view,
                                   const struct source_crop *crop, struct jpeg *jpeg,
                                   struct raster *out)
{
    if (setjmp(jpeg->failed))
        return damaged(file, jpeg);
    TRY(begin(file, jpeg, out));
    if (out->channels == 1 && jpeg->state.num_components == 3)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: in colour, among grey images", file->name);
    jpeg->state.out_color_space = out->channels == 1 ? JCS_GRAYSCALE : JCS_RGB;
    jpeg->state.scale_num = 1;
    jpeg->state.scale_denom = divisor(out, view->shorter);
    jpeg_start_decompress(&jpeg->state);
    out->height = jpeg->state.output_height;
    out->width = jpeg->state.output_width;
    window_set(file, view, crop, jpeg, out);
    TRY(raster_allocate(file, out));
    for (size_t y = 0; y < out->window.rows; y++) {
        JSAMPROW row = out->pixels + y * out->window.columns * out->channels;
        jpeg_read_scanlines(&jpeg->state, &row, 1);
    }
    if (jpeg->state.output_scanline == jpeg->state.output_height)
        jpeg_finish_decompress(&jpeg->state);
    return ALNICO_SUCCESS;
}

static void errors_set(struct jpeg *jpeg)
{
    jpeg->state.err = jpeg_std_error(&jpeg->errors);
    jpeg->state.client_data = jpeg;
    jpeg->errors.error_exit = fail;
    jpeg->errors.emit_message = warn;
}

static alnico_status_t jpeg_shape(const struct image_file *file, struct raster *out)
{
    struct jpeg jpeg = {.text = ""};
    errors_set(&jpeg);
    const alnico_status_t status = shape_of(file, &jpeg, out);
    jpeg_destroy_decompress(&jpeg.state);
    return status;
}

static alnico_status_t jpeg_decode(const struct image_file *file, const struct image_view *view,
                                   const struct source_crop *crop, struct raster *out)
{
    struct jpeg jpeg = {.text = ""};
    errors_set(&jpeg);
    const alnico_status_t status = decode_rows(file, view, crop, &jpeg, out);
    jpeg_destroy_decompress(&jpeg.state);
    return status;
}

const struct image_format image_jpeg = {
    .mark = {0xff, 0xd8, 0xff}, .mark_bytes = 3, .shape = jpeg_shape, .decode = jpeg_decode};
