/*
 * Batches of images, which a loader's threads prepare ahead. The caller's thread opens, takes
 * batches and closes. Which images a batch holds, and how they are moved, follows from the seed,
 * the epoch and the image alone.
 */
#include "train/input/data.h"

#include "base/status.h"
#include "train/base/random.h"
#include "train/input/augment.h"
#include "train/input/bad_images.h"
#include "train/input/loader.h"
#include "train/input/shuffle.h"

#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64, LEVELS = 256, PART_BYTES = 1 << 16 };

enum stream { STREAM_ORDER = 101, STREAM_AUGMENTATION };

/* A batch's memory. */
struct slot {
    void *images;
    int32_t *labels;
    uint32_t *indices; /* of its images in the part */
    uint64_t epoch;
    size_t count;
};

/* A thread's image at hand, as read and as moved. */
struct desk {
    void *image, *moved;
};

struct data {
    struct data_options options;
    size_t batches;
    struct source source;
    struct bad_images *bad;
    float levels[LEVELS]; /* the normalised value of a level */
    bool normalises;      /* it makes float32 of levels */
    unsigned ways;        /* in which it augments */
    bool moves;           /* images that were read */
    struct slot *slots;
    struct desk *desks;
    struct shuffle shuffle; /* of the epoch whose batches begin */
    size_t part;            /* images that a thread takes at a time */
    struct loader *loader;
};

/* Bytes of an image in a batch. */
static size_t batch_image(const struct data *data)
{
    const struct data_info *info = &data->source.info;
    return data->normalises ? info->height * info->width * info->channels * sizeof(float)
                            : source_image(info);
}

static void normalise(const struct data *data, const uint8_t *levels, float *out)
{
    const size_t count = source_image(&data->source.info);
    for (size_t i = 0; i < count; i++)
        out[i] = data->levels[levels[i]];
}

/* Reads, moves and normalises, each of these where it is asked for; the last writes to `out`. */
static alnico_status_t prepare_image(const struct data *data, const struct desk *desk,
                                     uint64_t epoch, size_t index, void *out, int32_t *labels)
{
    const struct data_info *info = &data->source.info;
    const uint64_t streams = random_stream(data->options.seed, STREAM_AUGMENTATION);
    const struct augment_move move =
        augment_draw(data->ways, random_stream(streams, epoch * info->images + index));
    void *moved = data->normalises ? desk->moved : out;
    void *read = data->moves ? desk->image : moved;
    TRY(bad_images_read(data->bad, index, &move.crop, read, labels));
    if (data->moves)
        augment_apply(info, &move, read, moved);
    if (data->normalises)
        normalise(data, moved, out);
    return ALNICO_SUCCESS;
}

/* The random stream from which each epoch's order is drawn. */
static uint64_t order_streams(const struct data *data)
{
    return random_stream(data->options.seed, STREAM_ORDER);
}

/* The loader's: which images a batch has. */
static size_t batch_begin(void *context, uint64_t number, size_t at)
{
    struct data *data = context;
    struct slot *slot = &data->slots[at];
    const size_t all = data->source.info.images, batch = data->options.batch;
    const size_t place = (size_t)(number % data->batches);
    const size_t share = place * (size_t)data->options.size + (size_t)data->options.rank;
    const size_t first = share < all / batch + 1 ? share * batch : all;
    slot->epoch = number / data->batches;
    if (data->options.train && (place == 0 || number == data->options.first))
        shuffle_draw(&data->shuffle, random_stream(order_streams(data), slot->epoch));
    slot->count = first >= all ? 0 : all - first < batch ? all - first : batch;
    shuffle_expect(&data->shuffle, first, first + slot->count, &data->source);
    if (slot->count)
        memcpy(slot->indices, data->shuffle.order + first, slot->count * sizeof *slot->indices);
    return (slot->count + data->part - 1) / data->part;
}

/* The loader's: prepares some of a batch's images. */
static alnico_status_t part_prepare(void *context, size_t thread, size_t at, size_t part)
{
    const struct data *data = context;
    const struct slot *slot = &data->slots[at];
    const size_t begin = part * data->part, rest = slot->count - begin;
    const size_t end = begin + (rest < data->part ? rest : data->part);
    for (size_t i = begin; i < end; i++)
        TRY(prepare_image(data, &data->desks[thread], slot->epoch, slot->indices[i],
                          (char *)slot->images + i * batch_image(data),
                          slot->labels + i * data->source.info.labels));
    return ALNICO_SUCCESS;
}

static alnico_status_t check_options(const struct data_options *options)
{
    if (!options->source)
        return error_set(ALNICO_ERROR_ARGUMENT, "source is NULL, expected a name");
    if (options->batch < 1)
        return error_set(ALNICO_ERROR_ARGUMENT, "batch 0, expected at least 1");
    if (options->classes > INT32_MAX)
        return error_set(ALNICO_ERROR_ARGUMENT, "classes %zu, expected at most %d",
                         options->classes, INT32_MAX);
    if (options->loaders > LOADER_MOST_THREADS || (options->loaders && !options->prefetch))
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "%zu loaders that prepare %zu batches ahead, expected at most %d, and at "
                         "least 1 batch",
                         options->loaders, options->prefetch, LOADER_MOST_THREADS);
    if (options->size < 1 || options->rank < 0 || options->rank >= options->size)
        return error_set(ALNICO_ERROR_ARGUMENT, "rank %d of size %d, expected 0 <= rank < size",
                         options->rank, options->size);
    return ALNICO_SUCCESS;
}

/* Whole batches of all ranks when training, enough for every image when testing. */
static alnico_status_t count_batches(struct data *data)
{
    const struct data_options *options = &data->options;
    const size_t all = data->source.info.images, joined = options->batch * (size_t)options->size;
    const bool overflow = joined / (size_t)options->size != options->batch;
    data->batches = overflow ? 0 : all / joined;
    if (!options->train && (overflow || all % joined))
        data->batches++;
    if (data->batches == 0)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "batch %zu on each of %d ranks, but only %zu images", options->batch,
                         options->size, all);
    if (options->train && options->multiple && data->batches >= options->multiple)
        data->batches -= data->batches % options->multiple;
    return ALNICO_SUCCESS;
}

/* That prepare: the loaders, or the caller. */
static size_t data_threads(const struct data *data)
{
    return data->options.loaders ? data->options.loaders : 1;
}

/* Images that a thread takes at a time: not too small for the loader's lock, and such that all
 * threads work on each batch. */
static size_t part_images(const struct data *data, size_t most)
{
    const size_t threads = data_threads(data), fair = (most + threads - 1) / threads;
    const size_t large = PART_BYTES / batch_image(data) + 1;
    return large < fair ? large : fair;
}

size_t data_slots(const struct data_options *options)
{
    return (options->held ? options->held : 1) + (options->loaders ? options->prefetch : 0);
}

static alnico_status_t out_of_memory(const struct data *data, size_t images)
{
    return error_set(ALNICO_ERROR_MEMORY,
                     "batch %zu: no memory for %zu of %zu images, %.1f MiB each",
                     data->options.batch, data_slots(&data->options), images,
                     (double)images * (double)batch_image(data) / 1048576);
}

static void *images_allocate(const struct data *data, size_t bytes)
{
    void *images;
    if (!data->options.device)
        return aligned_alloc(ALIGNMENT, (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
    return data->options.device->pinned_alloc(bytes, &images) == ALNICO_SUCCESS ? images : NULL;
}

static bool slot_allocate(const struct data *data, size_t most, struct slot *slot)
{
    slot->images = images_allocate(data, most * batch_image(data));
    slot->labels = calloc(most, data->source.info.labels * sizeof *slot->labels);
    slot->indices = calloc(most, sizeof *slot->indices);
    return slot->images && slot->labels && slot->indices;
}

static bool desk_allocate(const struct data *data, struct desk *desk)
{
    const size_t bytes = source_image(&data->source.info);
    desk->image = data->moves ? malloc(bytes) : NULL;
    desk->moved = data->normalises ? malloc(bytes) : NULL;
    return (desk->image || !data->moves) && (desk->moved || !data->normalises);
}

static alnico_status_t allocate(struct data *data)
{
    const size_t all = data->source.info.images, slots = data_slots(&data->options);
    const size_t most = data->options.batch < all
                            ? data->options.batch
                            : all; /* a test batch may be larger than the set */
    if (batch_image(data) > (SIZE_MAX / 2 - ALIGNMENT) / most)
        return out_of_memory(data, most);
    data->part = part_images(data, most);
    data->slots = calloc(slots, sizeof *data->slots);
    data->desks = calloc(data_threads(data), sizeof *data->desks);
    bool enough = data->slots && data->desks;
    for (size_t i = 0; enough && i < slots; i++)
        enough = slot_allocate(data, most, &data->slots[i]);
    for (size_t i = 0; enough && i < data_threads(data); i++)
        enough = desk_allocate(data, &data->desks[i]);
    return enough ? ALNICO_SUCCESS : out_of_memory(data, most);
}

static void slot_free(const struct data *data, const struct slot *slot)
{
    if (data->options.device)
        data->options.device->pinned_free(slot->images);
    else
        free(slot->images);
    free(slot->labels);
    free(slot->indices);
}

static void release(struct data *data)
{
    loader_destroy(data->loader);
    for (size_t i = 0; data->slots && i < data_slots(&data->options); i++)
        slot_free(data, &data->slots[i]);
    for (size_t i = 0; data->desks && i < data_threads(data); i++) {
        free(data->desks[i].image);
        free(data->desks[i].moved);
    }
    free(data->slots);
    free(data->desks);
    shuffle_free(&data->shuffle);
    bad_images_destroy(data->bad);
    source_close(&data->source);
    free(data);
}

static alnico_status_t fill(struct data *data)
{
    const struct data_options *options = &data->options;
    const struct source_setup setup = {
        .classes = options->classes, .seed = options->seed, .train = options->train};
    const struct data_info *info = &data->source.info;
    TRY(source_open(options->source, &setup, &data->source));
    TRY(bad_images_create(&data->source, options->skip_bad, &data->bad));
    TRY(shuffle_create(info->images, options->train ? options->shuffle_block : 0, &data->shuffle));
    if (options->train)
        TRY(augment_choose(info, options->augment, &data->ways));
    for (int level = 0; level < LEVELS; level++)
        data->levels[level] = (float)((level - info->mean) / info->deviation);
    data->normalises = info->type == SOURCE_UINT8 && !options->levels;
    data->moves = data->ways & (AUGMENT_SHIFT | AUGMENT_FLIP);
    TRY(count_batches(data));
    TRY(allocate(data));
    const struct loader_options loader = {.threads = options->loaders,
                                          .slots = data_slots(options),
                                          .held = options->held ? options->held : 1,
                                          .first = options->first,
                                          .context = data,
                                          .begin = batch_begin,
                                          .prepare = part_prepare};
    return loader_create(&loader, &data->loader);
}

alnico_status_t data_open(const struct data_options *options, struct data **out)
{
    *out = NULL;
    alnico_status_t status = check_options(options);
    if (status != ALNICO_SUCCESS)
        goto failed;
    struct data *data = calloc(1, sizeof *data);
    if (!data)
        return error_set(ALNICO_ERROR_MEMORY, "data_open: no memory");
    data->options = *options;
    status = fill(data);
    if (status != ALNICO_SUCCESS)
        goto release_data;
    *out = data;
    return ALNICO_SUCCESS;

release_data:
    release(data);
failed:
    return error_set(status, "data_open: %s", alnico_error_detail());
}

const struct data_info *data_info(const struct data *data)
{
    return &data->source.info;
}

size_t data_batches(const struct data *data)
{
    return data->batches;
}

const float *data_levels(const struct data *data)
{
    return data->options.levels && data->source.info.type == SOURCE_UINT8 ? data->levels : NULL;
}

size_t data_skipped(const struct data *data)
{
    return data ? bad_images_count(data->bad) : 0;
}

alnico_status_t data_next(struct data *data, struct batch *out)
{
    size_t at = 0;
    TRY(loader_next(data->loader, &at));
    const struct slot *slot = &data->slots[at];
    *out = (struct batch){.images = slot->images, .labels = slot->labels, .count = slot->count};
    return ALNICO_SUCCESS;
}

void data_close(struct data *data)
{
    if (data)
        release(data);
}
