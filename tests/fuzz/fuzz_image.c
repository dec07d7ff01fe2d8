/* Any bytes as a JPEG or PNG file: the first decides on the view of it, the rest is the file.
 * Refused with its name, or all pixels of the view are written. */
#include "tests/fuzz/fuzz.h"
#include "train/input/image.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SIDE = 16, MOST_PIXELS = 1 << 20 };

static void view_read(const struct image_file *file, const struct image_view *view)
{
    static const struct source_crop crop = {0.25, 1};
    const size_t bytes = view->height * view->width * view->channels;
    uint8_t *out = malloc(bytes);
    FUZZ_REQUIRE(out);
    if (image_read(file, view, &crop, out) == ALNICO_SUCCESS) {
        size_t sum = 0;
        for (size_t i = 0; i < bytes; i++)
            sum += out[i];
        FUZZ_REQUIRE(sum <= 255 * bytes);
    } else {
        FUZZ_REQUIRE(strstr(alnico_error_detail(), "a picture: "));
    }
    free(out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct raster shape;
    if (size == 0)
        return 0;
    const struct image_file file = {.name = "a picture", .bytes = data + 1, .length = size - 1};
    if (image_shape(&file, &shape) != ALNICO_SUCCESS) {
        FUZZ_REQUIRE(strstr(alnico_error_detail(), "a picture: "));
        return 0;
    }
    FUZZ_REQUIRE(shape.height && shape.width && (shape.channels == 1 || shape.channels == 3));
    if (shape.height * shape.width > MOST_PIXELS) /* seconds of zeros */
        return 0;
    const struct image_view whole = {shape.height, shape.width, data[0] & 1 ? 3 : 1, 0};
    const struct image_view part = {SIDE, SIDE, data[0] & 1 ? 3 : 1, SIDE + data[0] / 2};
    view_read(&file, &whole);
    view_read(&file, &part);
    return 0;
}
