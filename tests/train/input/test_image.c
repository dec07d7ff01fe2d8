/* JPEG and PNG files as images: kinds of pixels, resizing, cropping, and what is refused. */
#include "train/input/image.h"

#include "tests/train/input/pictures.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { HIGH = 23, WIDE = 37, MOST = 1 << 20 };

static uint64_t seed;
static char folder[64], path[96];
static uint8_t file_bytes[MOST];

static uint64_t draw(void)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return seed >> 33;
}

static void fill(uint8_t *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        bytes[i] = (uint8_t)draw();
}

static struct image_file load(void)
{
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    const struct image_file loaded = {
        .name = path, .bytes = file_bytes, .length = fread(file_bytes, 1, sizeof file_bytes, file)};
    fclose(file);
    return loaded;
}

static void read_whole(size_t channels, uint8_t *out)
{
    const struct image_view view = {.height = HIGH, .width = WIDE, .channels = channels};
    const struct image_file file = load();
    if (image_read(&file, &view, NULL, out) != ALNICO_SUCCESS)
        fail_msg("%s", alnico_error_detail());
}

static void expect_refused(const struct image_file *file, size_t channels, const char *expected)
{
    static uint8_t out[MOST];
    const struct image_view view = {.height = HIGH, .width = WIDE, .channels = channels};
    assert_int_equal(image_read(file, &view, NULL, out), ALNICO_ERROR_ARGUMENT);
    if (!strstr(alnico_error_detail(), path) || !strstr(alnico_error_detail(), expected))
        fail_msg("'%s' lacks '%s'", alnico_error_detail(), expected);
}

static void png_of_8_bits_keeps_its_pixels(void **state)
{
    (void)state;
    static uint8_t pixels[HIGH * WIDE * 3], out[HIGH * WIDE * 3];
    for (int interlaced = 0; interlaced < 2; interlaced++)
        for (int kind = PICTURE_GREY; kind <= PICTURE_COLOUR; kind++) {
            const size_t channels = kind == PICTURE_GREY ? 1 : 3;
            struct picture picture = {
                (enum picture_kind)kind, HIGH, WIDE, 8, interlaced, pixels, NULL};
            struct raster shape;
            fill(pixels, sizeof pixels);
            picture_png(path, &picture);
            read_whole(channels, out);
            assert_memory_equal(out, pixels, HIGH * WIDE * channels);
            const struct image_file file = load();
            assert_int_equal(image_shape(&file, &shape), ALNICO_SUCCESS);
            assert_true(shape.height == HIGH && shape.width == WIDE && shape.channels == channels);
        }
}

static void other_png_become_8_bits(void **state)
{
    (void)state;
    static uint8_t pixels[HIGH * WIDE * 4], out[HIGH * WIDE * 3], palette[256 * 3];
    struct picture picture = {PICTURE_ALPHA, HIGH, WIDE, 8, 0, pixels, palette};
    fill(pixels, sizeof pixels);
    fill(palette, sizeof palette);
    picture_png(path, &picture);
    read_whole(3, out);
    for (size_t i = 0; i < HIGH * WIDE; i++)
        assert_memory_equal(out + 3 * i, pixels + 4 * i, 3);
    picture.kind = PICTURE_PALETTE;
    picture_png(path, &picture);
    read_whole(3, out);
    for (size_t i = 0; i < HIGH * WIDE; i++)
        assert_memory_equal(out + 3 * i, palette + 3 * pixels[i], 3);
    picture.kind = PICTURE_GREY;
    picture_png(path, &picture);
    read_whole(3, out);
    for (size_t i = 0; i < 3 * HIGH * WIDE; i++)
        assert_int_equal(out[i], pixels[i / 3]);
    for (size_t i = 0; i < HIGH * WIDE; i++)
        pixels[i] &= 1;
    picture.kind = PICTURE_GREY1;
    picture_png(path, &picture);
    read_whole(1, out);
    for (size_t i = 0; i < HIGH * WIDE; i++)
        assert_int_equal(out[i], pixels[i] * 255);
}

/* A picture without sharp edges, which JPEG keeps up to a few levels. */
static void fill_smooth(uint8_t *pixels, size_t channels)
{
    for (int i = 0; i < HIGH * WIDE; i++)
        for (size_t c = 0; c < channels; c++)
            pixels[(size_t)i * channels + c] = (uint8_t)lround(
                128 + 60 * sin(0.1 * (i / WIDE) + (double)c) + 50 * cos(0.12 * (i % WIDE)));
}

static void jpeg_is_close_to_its_pixels(void **state)
{
    (void)state;
    static uint8_t pixels[HIGH * WIDE * 3], out[HIGH * WIDE * 3];
    for (size_t channels = 1; channels <= 3; channels += 2) {
        struct picture picture = {
            channels == 1 ? PICTURE_GREY : PICTURE_COLOUR, HIGH, WIDE, 8, 0, pixels, NULL};
        fill_smooth(pixels, channels);
        picture_jpeg(path, &picture, 100);
        read_whole(3, out);
        for (size_t i = 0; i < 3 * HIGH * WIDE; i++)
            assert_true(abs(out[i] - pixels[channels == 1 ? i / 3 : i]) <= 6);
    }
}

/* Linear interpolation in float64, of what the file has. */
static double resized(const uint8_t *pixels, size_t channels, double y, double x, size_t c)
{
    const double top = fmin(fmax(y, 0), HIGH - 1), left = fmin(fmax(x, 0), WIDE - 1);
    const int row = (int)top, column = (int)left;
    const int below = row + (row + 1 < HIGH), right = column + (column + 1 < WIDE);
    const double v = top - row, h = left - column;
#define AT(r, c_) (double)pixels[((size_t)(r)*WIDE + (size_t)(c_)) * channels + c]
    return (1 - v) * ((1 - h) * AT(row, column) + h * AT(row, right)) +
           v * ((1 - h) * AT(below, column) + h * AT(below, right));
#undef AT
}

/* Without halving: the shorter side of 23 becomes 12 to 46 pixels. */
static void resizing_interpolates_and_crops(void **state)
{
    (void)state;
    static uint8_t pixels[HIGH * WIDE * 3], out[MOST];
    static const double crops[] = {0, 0.3, 0.5, 1};
    struct picture picture = {PICTURE_COLOUR, HIGH, WIDE, 8, 0, pixels, NULL};
    fill_smooth(pixels, 3);
    picture_png(path, &picture);
    const struct image_file file = load();
    for (size_t shorter = 12; shorter <= 46; shorter += 17)
        for (size_t i = 0; i < 16; i++) {
            const struct source_crop crop = {crops[i / 4], crops[i % 4]};
            const struct image_view view = {shorter - 2, shorter - 2, 3, shorter};
            const double scale = (double)HIGH / (double)shorter;
            const double down = floor(2 * crop.down + 0.5);
            const double room = floor(WIDE / scale + 0.5) - (double)(shorter - 2);
            const double across = floor(room * crop.right + 0.5);
            assert_int_equal(image_read(&file, &view, &crop, out), ALNICO_SUCCESS);
            for (size_t n = 0; n < view.height * view.width * 3; n++) {
                const double y = (down + (double)(n / 3 / view.width) + 0.5) * scale - 0.5;
                const double x = (across + (double)(n / 3 % view.width) + 0.5) * scale - 0.5;
                assert_true(fabs(resized(pixels, 3, y, x, n % 3) - out[n]) < 1.2);
            }
        }
}

/* A JPEG is halved before its pixels are computed, a PNG after that: about the same. */
static void halving_takes_means(void **state)
{
    (void)state;
    static uint8_t pixels[64 * 96], out[2][32 * 32];
    for (int i = 0; i < 64 * 96; i++)
        pixels[i] = (uint8_t)lround(128 + 90 * sin(0.05 * (i / 96)) * cos(0.07 * (i % 96)));
    struct picture picture = {PICTURE_GREY, 64, 96, 8, 0, pixels, NULL};
    for (size_t shorter = 8; shorter <= 32; shorter *= 2) {
        const struct image_view view = {shorter, shorter, 1, shorter};
        const size_t by = 64 / shorter, left = (96 / by - shorter) / 2;
        for (int jpeg = 0; jpeg < 2; jpeg++) {
            if (jpeg)
                picture_jpeg(path, &picture, 100);
            else
                picture_png(path, &picture);
            const struct image_file file = load();
            assert_int_equal(image_read(&file, &view, NULL, out[jpeg]), ALNICO_SUCCESS);
        }
        for (size_t n = 0; n < shorter * shorter; n++) {
            double sum = 0;
            for (size_t i = 0; i < by * by; i++)
                sum +=
                    pixels[(n / shorter * by + i / by) * 96 + (left + n % shorter) * by + i % by];
            assert_true(fabs(sum / (double)(by * by) - out[0][n]) <= 2);
            assert_true(abs(out[0][n] - out[1][n]) <= 4);
        }
    }
}

/* A byte behind a JPEG's end makes the reader decode all of it, not what a crop needs: the same. */
static void parts_are_as_in_the_whole(void **state)
{
    (void)state;
    enum { TALL = 190, BROAD = 310, SIDE = 64 };
    static uint8_t pixels[TALL * BROAD * 3], part[SIDE * SIDE * 3], whole[SIDE * SIDE * 3];
    for (int i = 0; i < 60; i++) {
        const size_t channels = i % 2 ? 3 : 1, shorter = SIDE + draw() % 125; /* halved or not */
        struct picture picture = {
            i % 2 ? PICTURE_COLOUR : PICTURE_GREY, TALL, BROAD, 8, 0, pixels, NULL};
        const struct source_crop crop = {(double)(draw() % 11) / 10, (double)(draw() % 11) / 10};
        const struct image_view view = {SIDE, SIDE, channels, shorter};
        if (i % 4 > 1)
            picture.height = BROAD, picture.width = TALL;
        fill(pixels, sizeof pixels);
        picture_jpeg(path, &picture, 75);
        struct image_file file = load();
        assert_int_equal(image_read(&file, &view, &crop, part), ALNICO_SUCCESS);
        file_bytes[file.length++] = 0;
        assert_int_equal(image_read(&file, &view, &crop, whole), ALNICO_SUCCESS);
        assert_memory_equal(part, whole, SIDE * SIDE * channels);
        file.length -= 3;
        assert_int_equal(image_read(&file, &view, &crop, part), ALNICO_ERROR_ARGUMENT);
        assert_non_null(strstr(alnico_error_detail(), "damaged JPEG"));
    }
}

static void what_cannot_be_is_refused(void **state)
{
    (void)state;
    static uint8_t pixels[HIGH * WIDE * 8];
    struct picture picture = {PICTURE_COLOUR, HIGH, WIDE, 16, 0, pixels, NULL};
    fill(pixels, sizeof pixels);
    picture_png(path, &picture);
    struct image_file file = load();
    expect_refused(&file, 3, "PNG of 16 bits");
    picture.bits = 8;
    picture_png(path, &picture);
    file = load();
    expect_refused(&file, 1, "in colour, among grey images");
    picture_jpeg(path, &picture, 90);
    file = load();
    expect_refused(&file, 1, "in colour, among grey images");
    picture.kind = PICTURE_ALPHA;
    picture_jpeg(path, &picture, 90);
    file = load();
    expect_refused(&file, 3, "JPEG of 4 colours");
    picture.kind = PICTURE_GREY, picture.width = WIDE - 1;
    picture_png(path, &picture);
    file = load();
    expect_refused(&file, 1, "23 x 36 pixels, but others 23 x 37");
    file.bytes = (const uint8_t *)"GIF89a", file.length = 6;
    expect_refused(&file, 3, "neither JPEG nor PNG");
    file.length = 0;
    expect_refused(&file, 3, "neither JPEG nor PNG");
}

/* Cut anywhere, a file is refused; with a changed byte it may pass, but never breaks anything. */
static void damaged_files_are_refused(void **state)
{
    (void)state;
    static uint8_t pixels[HIGH * WIDE * 3], out[HIGH * WIDE * 3];
    const struct image_view view = {.height = HIGH, .width = WIDE, .channels = 3};
    struct picture picture = {PICTURE_COLOUR, HIGH, WIDE, 8, 0, pixels, NULL};
    fill(pixels, sizeof pixels);
    for (int jpeg = 0; jpeg < 2; jpeg++) {
        if (jpeg)
            picture_jpeg(path, &picture, 90);
        else
            picture_png(path, &picture);
        struct image_file file = load();
        const size_t length = file.length;
        for (file.length = 4; file.length < length - 2; file.length++)
            expect_refused(&file, 3, jpeg ? "damaged JPEG" : "damaged PNG");
        file.length = length;
        int refused = 0;
        for (size_t i = 0; i < length; i++) {
            file_bytes[i] ^= (uint8_t)(1U << draw() % 8);
            refused += image_read(&file, &view, NULL, out) != ALNICO_SUCCESS;
            load();
        }
        assert_true(jpeg || refused > (int)length * 9 / 10); /* a PNG has checksums */
    }
}

static int make_folder(void **state)
{
    (void)state;
    pictures_folder(folder);
    snprintf(path, sizeof path, "%s/picture", folder);
    return 0;
}

static int drop_folder(void **state)
{
    (void)state;
    pictures_remove(folder);
    return 0;
}

int main(void)
{
    const char *given = getenv("TEST_SEED");
    seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    printf("TEST_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(png_of_8_bits_keeps_its_pixels),
        cmocka_unit_test(other_png_become_8_bits),
        cmocka_unit_test(jpeg_is_close_to_its_pixels),
        cmocka_unit_test(resizing_interpolates_and_crops),
        cmocka_unit_test(halving_takes_means),
        cmocka_unit_test(parts_are_as_in_the_whole),
        cmocka_unit_test(what_cannot_be_is_refused),
        cmocka_unit_test(damaged_files_are_refused),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
