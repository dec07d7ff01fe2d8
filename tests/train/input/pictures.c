/* Writing pictures. See pictures.h. */
#include "tests/train/input/pictures.h"

#include <ftw.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <cmocka.h>
#include <jpeglib.h>
#include <png.h>

static size_t row_bytes(const struct picture *picture)
{
    const size_t channels = picture->kind == PICTURE_COLOUR  ? 3
                            : picture->kind == PICTURE_ALPHA ? 4
                                                             : 1;
    return (size_t)picture->width * channels * (picture->bits == 16 ? 2 : 1);
}

static int colour_type(enum picture_kind kind)
{
    static const int types[] = {PNG_COLOR_TYPE_GRAY, PNG_COLOR_TYPE_RGB, PNG_COLOR_TYPE_RGB_ALPHA,
                                PNG_COLOR_TYPE_PALETTE, PNG_COLOR_TYPE_GRAY};
    return types[kind];
}

void picture_png(const char *path, const struct picture *picture)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    png_structp png = png_create_write_struct(PNG_LIBPNG_VER_STRING, NULL, NULL, NULL);
    png_infop info = png_create_info_struct(png);
    const int bits = picture->kind == PICTURE_GREY1 ? 1 : picture->bits;
    png_init_io(png, file);
    png_set_IHDR(png, info, (png_uint_32)picture->width, (png_uint_32)picture->height, bits,
                 colour_type(picture->kind),
                 picture->interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
                 PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
    if (picture->kind == PICTURE_PALETTE)
        png_set_PLTE(png, info, (png_const_colorp)(const void *)picture->palette, 256);
    png_write_info(png, info);
    if (picture->kind == PICTURE_GREY1)
        png_set_packing(png);
    const int passes = png_set_interlace_handling(png);
    for (int pass = 0; pass < passes; pass++)
        for (int y = 0; y < picture->height; y++)
            png_write_row(png, picture->pixels + (size_t)y * row_bytes(picture));
    png_write_end(png, NULL);
    png_destroy_write_struct(&png, &info);
    fclose(file);
}

void picture_jpeg(const char *path, const struct picture *picture, int quality)
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, file);
    jpeg.image_height = (JDIMENSION)picture->height;
    jpeg.image_width = (JDIMENSION)picture->width;
    jpeg.input_components = picture->kind == PICTURE_ALPHA  ? 4
                            : picture->kind == PICTURE_GREY ? 1
                                                            : 3;
    jpeg.in_color_space = picture->kind == PICTURE_ALPHA  ? JCS_CMYK
                          : picture->kind == PICTURE_GREY ? JCS_GRAYSCALE
                                                          : JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, quality, TRUE);
    jpeg_start_compress(&jpeg, TRUE);
    while (jpeg.next_scanline < jpeg.image_height) {
        JSAMPROW row = (JSAMPROW)(picture->pixels + jpeg.next_scanline * row_bytes(picture));
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    fclose(file);
}

void pictures_folder(char path[64])
{
    strcpy(path, "/tmp/alnico-pictures-XXXXXX");
    assert_non_null(mkdtemp(path));
}

static int entry_remove(const char *path, const struct stat *about, int kind, struct FTW *where)
{
    (void)about;
    (void)kind;
    (void)where;
    return remove(path);
}

void pictures_remove(const char *path)
{
    assert_int_equal(nftw(path, entry_remove, 16, FTW_DEPTH | FTW_PHYS), 0);
}

void pictures_make(const char *format, ...)
{
    char path[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(path, sizeof path, format, arguments);
    va_end(arguments);
    assert_int_equal(mkdir(path, 0700), 0);
}
