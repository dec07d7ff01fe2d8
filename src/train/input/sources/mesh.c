/*
 * The source mesh:SIDE: the state of a mesh as 18 channels of SIDE x SIDE pixels, with a label of
 * two classes for each pixel, as in the mesh-tangling problem (Dryden et al. 2019): relax the cell
 * or leave it. Made up when it is read: a smooth field of a random phase decides on the labels, and
 * every channel is the field times a weight of its own, plus noise.
 */
#include "base/number.h"
#include "base/status.h"
#include "train/base/random.h"
#include "train/input/source.h"

#include <math.h>
#include <stdlib.h>

enum {
    MESH_CHANNELS = 18,
    MESH_CLASSES = 2,
    MESH_TRAIN = 1024,
    MESH_TEST = 128,
    WAVES = 2,
    NOISE_OFFSETS = 1 << 16,
    STREAM_MESH = 31, /* numbers of generators */
    STREAM_TRAIN,
    STREAM_TEST
};

struct mesh {
    size_t side;
    uint64_t seed;
    float weights[MESH_CHANNELS];
    float noise[]; /* a row of an image, which begins at a random one of the offsets */
};

static bool parse_side(const char *place, uint64_t *side)
{
    return place && number_whole(place, 1, SOURCE_MOST_SIDE, side);
}

static bool accepts_side(const char *place)
{
    uint64_t side;
    return parse_side(place, &side);
}

/* Weights of 0.5 to 1 either way; noise of variance 1. */
static void fill_tables(struct mesh *mesh, uint64_t seed)
{
    uint64_t state = random_stream(seed, STREAM_MESH);
    for (size_t c = 0; c < MESH_CHANNELS; c++) {
        const double size = 0.5 + 0.5 * random_unit(&state);
        mesh->weights[c] = (float)(random_next(&state) >> 63 ? size : -size);
    }
    for (size_t i = 0; i < mesh->side * MESH_CHANNELS + NOISE_OFFSETS; i++)
        mesh->noise[i] = (float)((2 * random_unit(&state) - 1) * sqrt(3));
}

static alnico_status_t open_mesh(const struct source_setup *setup, struct data_info *info,
                                 void **self)
{
    uint64_t side = 0;
    parse_side(setup->place, &side);
    const size_t noise = side * MESH_CHANNELS + NOISE_OFFSETS;
    struct mesh *mesh = malloc(sizeof *mesh + noise * sizeof *mesh->noise);
    if (!mesh)
        return error_set(ALNICO_ERROR_MEMORY, "source mesh: no memory");
    mesh->side = side;
    mesh->seed = random_stream(setup->seed, setup->train ? STREAM_TRAIN : STREAM_TEST);
    fill_tables(mesh, setup->seed);
    *info = (struct data_info){.images = setup->train ? MESH_TRAIN : MESH_TEST,
                               .height = side,
                               .width = side,
                               .channels = MESH_CHANNELS,
                               .classes = MESH_CLASSES,
                               .labels = side * side,
                               .type = SOURCE_FLOAT32,
                               .deviation = 1};
    *self = mesh;
    return ALNICO_SUCCESS;
}

struct wave {
    double slope, phase;
};

static void waves_draw(uint64_t *state, struct wave *out)
{
    for (size_t i = 0; i < WAVES; i++)
        out[i] = (struct wave){.slope = 2 * M_PI * (double)(1 + i) * (0.5 + random_unit(state)),
                               .phase = 2 * M_PI * random_unit(state)};
}

/* At `at` of a side, 0 to 1: a sum of waves from -1 to 1. */
static double waves_at(const struct wave *waves, double at)
{
    double sum = 0;
    for (size_t i = 0; i < WAVES; i++)
        sum += sin(waves[i].slope * at + waves[i].phase);
    return sum / WAVES;
}

/* The field is the sum of what waves are at the row and at the column. */
static void write_row(const struct mesh *mesh, double down, const double *right, const float *noise,
                      float *pixels, int32_t *labels)
{
    for (size_t x = 0; x < mesh->side; x++) {
        const float field = (float)(down + right[x]);
        labels[x] = field > 0;
        for (size_t c = 0; c < MESH_CHANNELS; c++)
            *pixels++ = mesh->weights[c] * field + *noise++;
    }
}

static alnico_status_t read_mesh(const void *self, size_t index, const struct source_crop *unused,
                                 void *pixels, int32_t *labels)
{
    const struct mesh *mesh = self;
    uint64_t state = random_stream(mesh->seed, index);
    struct wave down[WAVES], across[WAVES];
    double *right = malloc(mesh->side * sizeof *right);
    (void)unused;
    if (!right)
        return error_set(ALNICO_ERROR_MEMORY, "source mesh: no memory");
    waves_draw(&state, down);
    waves_draw(&state, across);
    for (size_t x = 0; x < mesh->side; x++)
        right[x] = waves_at(across, (double)x / (double)mesh->side);
    for (size_t y = 0; y < mesh->side; y++)
        write_row(mesh, waves_at(down, (double)y / (double)mesh->side), right,
                  mesh->noise + random_next(&state) % NOISE_OFFSETS,
                  (float *)pixels + y * mesh->side * MESH_CHANNELS, labels + y * mesh->side);
    free(right);
    return ALNICO_SUCCESS;
}

const struct source_ops source_mesh = {.name = "mesh",
                                       .about = "mesh:SIDE",
                                       .repeats = true,
                                       .own_classes = true,
                                       .accepts = accepts_side,
                                       .open = open_mesh,
                                       .close = free,
                                       .read = read_mesh};
