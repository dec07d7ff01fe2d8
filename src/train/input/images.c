/*
 * Sources of images. IDX files are kept as bytes and normalised by a table; synthetic images
 * are a pattern of their class plus noise, made when asked for. Called by data.c: opened on the
 * caller's thread, read on the preparing one.
 */
#include "train/input/images.h"

#include "base/number.h"
#include "base/status.h"
#include "train/base/random.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FASHION_MNIST "/usr/share/datasets/fashion-mnist"

enum {
    SYNTHETIC_TRAIN = 50000,
    SYNTHETIC_TEST = 10000,
    SYNTHETIC_CELLS = 4, /* a pattern is this many cells high and wide */
    PATTERN_CELLS = SYNTHETIC_CELLS * SYNTHETIC_CELLS / 2,
    NOISE_OFFSETS = 1 << 16,
    DEFAULT_CLASSES = 10
};

/* Streams of random numbers that have nothing to do with each other. */
enum stream { STREAM_PATTERNS = 1, STREAM_NOISE, STREAM_TRAIN, STREAM_TEST };

/* The mean and deviation of the pixels, as fractions of white, and the table that normalises by
 * them. */
static void normalise_by(const struct idx *pixels, struct images *images)
{
    size_t histogram[256] = {0}, total = pixels->count * pixels->height * pixels->width;
    double sum = 0, squares = 0;
    for (size_t i = 0; i < total; i++)
        histogram[pixels->bytes[i]]++;
    for (int level = 0; level < 256; level++) {
        sum += (double)histogram[level] * level;
        squares += (double)histogram[level] * level * level;
    }
    double mean = sum / (double)total, variance = squares / (double)total - mean * mean;
    double deviation = variance > 0 ? sqrt(variance) : 1; /* all pixels alike: nothing to scale */
    for (int level = 0; level < 256; level++)
        images->levels[level] = (float)((level - mean) / deviation);
    images->black = images->levels[0];
    images->info.mean = mean / 255;
    images->info.deviation = deviation / 255;
}

static alnico_status_t check_labels(const struct images *images)
{
    const struct idx *pixels = &images->pixels, *labels = &images->labels;
    if (labels->count != pixels->count)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: %zu labels for the %zu images of %s",
                         labels->path, labels->count, pixels->count, pixels->path);
    for (size_t i = 0; i < labels->count; i++)
        if (labels->bytes[i] >= images->info.classes)
            return error_set(ALNICO_ERROR_ARGUMENT,
                             "%s: label %zu is %d, not below the %zu classes", labels->path, i,
                             labels->bytes[i], images->info.classes);
    return ALNICO_SUCCESS;
}

/* The test part is normalised as the training part is, so that is read first either way. */
static alnico_status_t read_folder(const char *folder, bool train, struct images *out)
{
    TRY(idx_read(folder, "train-images-idx3-ubyte", 3, &out->pixels));
    size_t height = out->pixels.height, width = out->pixels.width;
    normalise_by(&out->pixels, out);
    if (!train) {
        idx_finish(&out->pixels);
        TRY(idx_read(folder, "t10k-images-idx3-ubyte", 3, &out->pixels));
    }
    if (out->pixels.height != height || out->pixels.width != width)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "%s: images of %zu x %zu, but %zu x %zu for training", out->pixels.path,
                         out->pixels.height, out->pixels.width, height, width);
    const char *labels = train ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte";
    TRY(idx_read(folder, labels, 1, &out->labels));
    out->info.images = out->pixels.count;
    out->info.height = height;
    out->info.width = width;
    out->info.channels = 1;
    return check_labels(out);
}

size_t images_pixels(const struct data_info *info)
{
    return info->height * info->width * info->channels;
}

static bool parse_sides(const char *text, struct data_info *info)
{
    size_t *const sides[] = {&info->height, &info->width, &info->channels};
    for (int i = 0; i < 3; i++) {
        uint64_t side;
        if (!number_leading(&text, IDX_MOST_SIDE, &side) || side < 1 ||
            *text++ != (i < 2 ? 'x' : '\0'))
            return false;
        *sides[i] = (size_t)side;
    }
    return true;
}

/* The cell of a pixel among the 8 of an image's left half: patterns are alike on the left and the
 * right, so that flips change nothing. */
static size_t cell_of(const struct data_info *info, size_t y, size_t x)
{
    const size_t row = y * SYNTHETIC_CELLS / info->height;
    const size_t column = x * SYNTHETIC_CELLS / info->width;
    const size_t half = SYNTHETIC_CELLS / 2;
    return row * half + (column < half ? column : SYNTHETIC_CELLS - 1 - column);
}

/* A class's pattern, in each channel its own: cells of -1 and 1. The odd step makes the 8 cells
 * differ between up to 256 classes. */
static void draw_pattern(const struct data_info *info, size_t label, uint64_t state, float *out)
{
    for (size_t channel = 0; channel < info->channels; channel++) {
        const uint64_t first = random_next(&state), step = random_next(&state) | 1;
        const uint64_t cells = first + label * step;
        for (size_t cell = 0; cell < PATTERN_CELLS; cell++)
            out[cell * info->channels + channel] = cells >> cell & 1 ? 1 : -1;
    }
}

/* Moves and scales to mean 0 and variance 1/2 over all pixels of all patterns. */
static void centre(const struct data_info *info, float *patterns)
{
    const size_t each = PATTERN_CELLS * info->channels, count = info->classes * each;
    double pixels[PATTERN_CELLS] = {0}, sum = 0, all = 0;
    for (size_t y = 0; y < info->height; y++)
        for (size_t x = 0; x < info->width; x++)
            pixels[cell_of(info, y, x)]++;
    for (size_t i = 0; i < count; i++) {
        sum += (double)patterns[i] * pixels[i % each / info->channels];
        all += pixels[i % each / info->channels];
    }
    const double mean = sum / all, variance = 1 - mean * mean; /* all are -1 or 1 */
    const double factor = variance > 0 ? sqrt(0.5 / variance) : 1;
    for (size_t i = 0; i < count; i++)
        patterns[i] = (float)(((double)patterns[i] - mean) * factor);
}

/* Patterns and noise of variance 1/2 each; the noise is even over +-sqrt(3/2). */
static alnico_status_t open_synthetic(const char *sides, bool train, struct images *out)
{
    if (!parse_sides(sides, &out->info))
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "source synthetic:%s, expected HxWxC with each from 1 to %d", sides,
                         IDX_MOST_SIDE);
    size_t pixels = images_pixels(&out->info), classes = out->info.classes;
    size_t each = PATTERN_CELLS * out->info.channels;
    out->info.images = train ? SYNTHETIC_TRAIN : SYNTHETIC_TEST;
    out->info.deviation = 1;
    out->patterns = calloc(classes, each * sizeof *out->patterns);
    out->noise = calloc(pixels + NOISE_OFFSETS, sizeof *out->noise);
    if (!out->patterns || !out->noise)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for patterns of %zu x %zu x %zu",
                         out->info.height, out->info.width, out->info.channels);
    uint64_t state = random_stream(out->seed, STREAM_NOISE);
    for (size_t i = 0; i < pixels + NOISE_OFFSETS; i++)
        out->noise[i] = (float)((2 * random_unit(&state) - 1) * sqrt(1.5));
    uint64_t patterns = random_stream(out->seed, STREAM_PATTERNS);
    for (size_t label = 0; label < classes; label++)
        draw_pattern(&out->info, label, patterns, out->patterns + label * each);
    centre(&out->info, out->patterns);
    out->seed = random_stream(out->seed, train ? STREAM_TRAIN : STREAM_TEST);
    return ALNICO_SUCCESS;
}

static alnico_status_t open_fashion_mnist(bool train, struct images *out)
{
    if (access(FASHION_MNIST, R_OK) != 0)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "source fashion-mnist: %s is missing, install the Debian package "
                         "dataset-fashion-mnist",
                         FASHION_MNIST);
    return read_folder(FASHION_MNIST, train, out);
}

bool images_source_reads(const char *source)
{
    struct data_info info;
    return strcmp(source, "synthetic") == 0 || strcmp(source, "fashion-mnist") == 0 ||
           (strncmp(source, "synthetic:", 10) == 0 && parse_sides(source + 10, &info)) ||
           (strncmp(source, "idx:", 4) == 0 && source[4]);
}

static alnico_status_t open_source(const struct data_options *options, struct images *out)
{
    const char *source = options->source;
    if (strcmp(source, "synthetic") == 0)
        return open_synthetic("32x32x3", options->train, out);
    if (strncmp(source, "synthetic:", 10) == 0)
        return open_synthetic(source + 10, options->train, out);
    if (strcmp(source, "fashion-mnist") == 0)
        return open_fashion_mnist(options->train, out);
    if (strncmp(source, "idx:", 4) == 0 && source[4])
        return read_folder(source + 4, options->train, out);
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "source '%s', expected synthetic, synthetic:HxWxC, fashion-mnist or idx:DIR",
                     source);
}

alnico_status_t images_open(const struct data_options *options, struct images *out)
{
    memset(out, 0, sizeof *out);
    out->seed = options->seed;
    out->info.classes = options->classes ? options->classes : DEFAULT_CLASSES;
    alnico_status_t status = open_source(options, out);
    if (status != ALNICO_SUCCESS)
        images_finish(out);
    return status;
}

static int32_t get_synthetic(const struct images *images, size_t index, float *out)
{
    uint64_t state = random_stream(images->seed, index);
    size_t label = random_next(&state) % images->info.classes;
    const struct data_info *info = &images->info;
    const float *pattern = images->patterns + label * PATTERN_CELLS * info->channels;
    const float *noise = images->noise + random_next(&state) % NOISE_OFFSETS;
    for (size_t y = 0; y < info->height; y++)
        for (size_t x = 0; x < info->width; x++) {
            const float *cell = pattern + cell_of(info, y, x) * info->channels;
            for (size_t c = 0; c < info->channels; c++)
                *out++ = cell[c] + *noise++;
        }
    return (int32_t)label;
}

int32_t images_get(const struct images *images, size_t index, float *out)
{
    if (images->patterns)
        return get_synthetic(images, index, out);
    size_t pixels = images_pixels(&images->info);
    const uint8_t *bytes = images->pixels.bytes + index * pixels;
    for (size_t i = 0; i < pixels; i++)
        out[i] = images->levels[bytes[i]];
    return images->labels.bytes[index];
}

void images_finish(struct images *images)
{
    idx_finish(&images->pixels);
    idx_finish(&images->labels);
    free(images->patterns);
    free(images->noise);
    images->patterns = images->noise = NULL;
}
