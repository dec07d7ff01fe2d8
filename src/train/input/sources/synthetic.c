/*
 * The source synthetic: images that are a pattern of their class plus noise, made when they are
 * read, the same for the same seed.
 */
#include "base/number.h"
#include "base/status.h"
#include "train/base/random.h"
#include "train/input/source.h"

#include <math.h>
#include <stdlib.h>

enum {
    SYNTHETIC_TRAIN = 50000,
    SYNTHETIC_TEST = 10000,
    SYNTHETIC_CELLS = 4, /* a pattern is this many cells high and wide */
    PATTERN_CELLS = SYNTHETIC_CELLS * SYNTHETIC_CELLS / 2,
    NOISE_OFFSETS = 1 << 16
};

/* Streams of random numbers that have nothing to do with each other. */
enum stream { STREAM_PATTERNS = 1, STREAM_NOISE, STREAM_TRAIN, STREAM_TEST };

struct synthetic {
    struct data_info info;
    uint64_t seed;
    float *patterns; /* classes x cells x channels */
    float *noise;    /* a table that images begin to read at random places */
};

/* "HxWxC", by default 32x32x3. */
static bool parse_sides(const char *text, struct data_info *info)
{
    size_t *const sides[] = {&info->height, &info->width, &info->channels};
    text = text ? text : "32x32x3";
    for (int i = 0; i < 3; i++) {
        uint64_t side;
        if (!number_leading(&text, SOURCE_MOST_SIDE, &side) || side < 1 ||
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
static alnico_status_t make_tables(const struct source_setup *setup, struct synthetic *out)
{
    const struct data_info *info = &out->info;
    const size_t pixels = info->height * info->width * info->channels;
    const size_t each = PATTERN_CELLS * info->channels;
    out->patterns = calloc(info->classes, each * sizeof *out->patterns);
    out->noise = calloc(pixels + NOISE_OFFSETS, sizeof *out->noise);
    if (!out->patterns || !out->noise)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for patterns of %zu x %zu x %zu",
                         info->height, info->width, info->channels);
    uint64_t state = random_stream(setup->seed, STREAM_NOISE);
    for (size_t i = 0; i < pixels + NOISE_OFFSETS; i++)
        out->noise[i] = (float)((2 * random_unit(&state) - 1) * sqrt(1.5));
    const uint64_t patterns = random_stream(setup->seed, STREAM_PATTERNS);
    for (size_t label = 0; label < info->classes; label++)
        draw_pattern(info, label, patterns, out->patterns + label * each);
    centre(info, out->patterns);
    out->seed = random_stream(setup->seed, setup->train ? STREAM_TRAIN : STREAM_TEST);
    return ALNICO_SUCCESS;
}

static void close_synthetic(void *self)
{
    struct synthetic *synthetic = self;
    free(synthetic->patterns);
    free(synthetic->noise);
    free(synthetic);
}

static bool accepts_sides(const char *place)
{
    struct data_info info;
    return parse_sides(place, &info);
}

static alnico_status_t open_synthetic(const struct source_setup *setup, struct data_info *info,
                                      void **self)
{
    struct synthetic *synthetic = calloc(1, sizeof *synthetic);
    if (!synthetic)
        return error_set(ALNICO_ERROR_MEMORY, "source synthetic: no memory");
    parse_sides(setup->place, info);
    info->images = setup->train ? SYNTHETIC_TRAIN : SYNTHETIC_TEST;
    info->classes = setup->classes ? setup->classes : SOURCE_DEFAULT_CLASSES;
    info->type = SOURCE_FLOAT32;
    info->augment = info->augments = AUGMENT_SHIFT | AUGMENT_FLIP;
    info->deviation = 1;
    synthetic->info = *info;
    const alnico_status_t status = make_tables(setup, synthetic);
    if (status == ALNICO_SUCCESS)
        *self = synthetic;
    else
        close_synthetic(synthetic);
    return status;
}

static alnico_status_t read_image(const void *self, size_t index, const struct source_crop *unused,
                                  void *pixels, int32_t *labels)
{
    (void)unused;
    const struct synthetic *synthetic = self;
    const struct data_info *info = &synthetic->info;
    uint64_t state = random_stream(synthetic->seed, index);
    const size_t label = random_next(&state) % info->classes;
    const float *pattern = synthetic->patterns + label * PATTERN_CELLS * info->channels;
    const float *noise = synthetic->noise + random_next(&state) % NOISE_OFFSETS;
    float *out = pixels;
    for (size_t y = 0; y < info->height; y++)
        for (size_t x = 0; x < info->width; x++) {
            const float *cell = pattern + cell_of(info, y, x) * info->channels;
            for (size_t c = 0; c < info->channels; c++)
                *out++ = cell[c] + *noise++;
        }
    labels[0] = (int32_t)label;
    return ALNICO_SUCCESS;
}

const struct source_ops source_synthetic = {.name = "synthetic",
                                            .about = "synthetic[:HxWxC]",
                                            .repeats = true,
                                            .accepts = accepts_sides,
                                            .open = open_synthetic,
                                            .close = close_synthetic,
                                            .read = read_image};
