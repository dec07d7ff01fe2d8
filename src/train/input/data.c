/*
 * Batches of images, prepared ahead. The caller's thread opens, takes batches and closes; one
 * worker prepares them in a ring of slots and sleeps while the ring is full. Which images a batch
 * holds, and how they are moved, follows from the seed, the epoch and the image alone.
 */
#include "train/input/data.h"

#include "base/status.h"
#include "base/thread.h"
#include "train/base/random.h"
#include "train/input/augment.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ALIGNMENT = 64 };

enum stream { STREAM_ORDER = 101, STREAM_AUGMENTATION };

struct slot {
    float *images;
    int32_t *labels;
    size_t count;
    alnico_status_t status; /* of reading it */
    char detail[512];
};

struct data {
    size_t batch, batches;
    int rank, size;
    uint64_t seed, first;
    bool train;
    struct source source;
    float levels[256]; /* the normalised value of a level */
    struct slot slots[DATA_SLOTS];
    /* the worker's */
    uint32_t *order;     /* this epoch's permutation of the part */
    void *image, *moved; /* the one at hand, as read and as moved */
    /* between the two, under the lock */
    pthread_mutex_t lock;
    pthread_cond_t prepared_one, returned_one;
    uint64_t prepared, returned; /* batches so far; slot i % DATA_SLOTS holds batch i */
    bool stop;
    /* the caller's */
    pthread_t worker;
    bool lent; /* the last batch is with the caller */
};

/* The epoch's order: for training a permutation, by Fisher and Yates from the epoch's own
 * stream. */
static void arrange(struct data *data, uint64_t epoch)
{
    uint64_t state = random_stream(random_stream(data->seed, STREAM_ORDER), epoch);
    for (size_t i = 0; i < data->source.info.images; i++)
        data->order[i] = (uint32_t)i;
    for (size_t i = data->source.info.images; data->train && i > 1; i--) {
        size_t j = random_next(&state) % i;
        uint32_t other = data->order[j];
        data->order[j] = data->order[i - 1];
        data->order[i - 1] = other;
    }
}

/* Normalised. */
static void write_floats(const struct data *data, const void *image, float *out)
{
    const struct data_info *info = &data->source.info;
    const size_t count = info->height * info->width * info->channels;
    const uint8_t *levels = image;
    if (info->type == SOURCE_FLOAT32)
        memcpy(out, image, count * sizeof *out);
    for (size_t i = 0; info->type == SOURCE_UINT8 && i < count; i++)
        out[i] = data->levels[levels[i]];
}

static alnico_status_t prepare_image(struct data *data, uint64_t epoch, size_t index, float *images,
                                     int32_t *labels)
{
    TRY(source_read(&data->source, index, NULL, data->image, labels));
    if (data->train) {
        const uint64_t stream = epoch * data->source.info.images + index;
        const struct augment_move move =
            augment_draw(random_stream(random_stream(data->seed, STREAM_AUGMENTATION), stream));
        augment_apply(&data->source.info, &move, data->image, data->moved);
    }
    write_floats(data, data->train ? data->moved : data->image, images);
    return ALNICO_SUCCESS;
}

static void prepare(struct data *data, uint64_t number, struct slot *slot)
{
    uint64_t epoch = number / data->batches;
    const struct data_info *info = &data->source.info;
    size_t all = info->images, pixels = info->height * info->width * info->channels;
    size_t share = (size_t)(number % data->batches) * (size_t)data->size + (size_t)data->rank;
    size_t first = share < all / data->batch + 1 ? share * data->batch : all;
    if (number % data->batches == 0 || number == data->first)
        arrange(data, epoch);
    slot->count = first >= all ? 0 : all - first < data->batch ? all - first : data->batch;
    slot->status = ALNICO_SUCCESS;
    for (size_t i = 0; i < slot->count && slot->status == ALNICO_SUCCESS; i++)
        slot->status = prepare_image(data, epoch, data->order[first + i], slot->images + i * pixels,
                                     slot->labels + i * info->labels);
    if (slot->status != ALNICO_SUCCESS)
        snprintf(slot->detail, sizeof slot->detail, "%s", alnico_error_detail());
}

static void *work(void *argument)
{
    struct data *data = argument;
    for (uint64_t number = data->first;; number++) {
        pthread_mutex_lock(&data->lock);
        while (!data->stop && number - data->returned >= DATA_SLOTS)
            pthread_cond_wait(&data->returned_one, &data->lock);
        bool stop = data->stop;
        pthread_mutex_unlock(&data->lock);
        if (stop)
            return NULL;
        prepare(data, number, &data->slots[number % DATA_SLOTS]);
        pthread_mutex_lock(&data->lock);
        data->prepared = number + 1;
        pthread_cond_signal(&data->prepared_one);
        pthread_mutex_unlock(&data->lock);
    }
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
    if (options->size < 1 || options->rank < 0 || options->rank >= options->size)
        return error_set(ALNICO_ERROR_ARGUMENT, "rank %d of size %d, expected 0 <= rank < size",
                         options->rank, options->size);
    return ALNICO_SUCCESS;
}

/* Whole batches of all ranks when training, enough for every image when testing. */
static alnico_status_t count_batches(struct data *data)
{
    size_t all = data->source.info.images, joined = data->batch * (size_t)data->size;
    bool overflow = joined / (size_t)data->size != data->batch;
    data->batches = overflow ? 0 : all / joined;
    if (!data->train && (overflow || all % joined))
        data->batches++;
    if (data->batches == 0)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "batch %zu on each of %d ranks, but only %zu images", data->batch,
                         data->size, all);
    return ALNICO_SUCCESS;
}

static alnico_status_t out_of_memory(const struct data *data, size_t images, size_t pixels)
{
    return error_set(ALNICO_ERROR_MEMORY,
                     "batch %zu: no memory for %d of %zu images, %.1f MiB each", data->batch,
                     DATA_SLOTS, images, (double)images * (double)pixels * sizeof(float) / 1048576);
}

static alnico_status_t allocate(struct data *data)
{
    const struct data_info *info = &data->source.info;
    const size_t pixels = info->height * info->width * info->channels, all = info->images;
    size_t most =
        data->batch < all ? data->batch : all; /* a test batch may be larger than the set */
    if (pixels > (SIZE_MAX / 2 - ALIGNMENT) / sizeof(float) / most)
        return out_of_memory(data, most, pixels);
    size_t bytes = (most * pixels * sizeof(float) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    data->order = calloc(all, sizeof *data->order);
    data->image = calloc(1, source_image(info));
    data->moved = calloc(1, source_image(info));
    bool enough = data->order && data->image && data->moved;
    for (int i = 0; i < DATA_SLOTS; i++) {
        data->slots[i].images = aligned_alloc(ALIGNMENT, bytes);
        data->slots[i].labels = calloc(most, info->labels * sizeof *data->slots[i].labels);
        enough = enough && data->slots[i].images && data->slots[i].labels;
    }
    return enough ? ALNICO_SUCCESS : out_of_memory(data, most, pixels);
}

static void release(struct data *data)
{
    for (int i = 0; i < DATA_SLOTS; i++) {
        free(data->slots[i].images);
        free(data->slots[i].labels);
    }
    free(data->order);
    free(data->image);
    free(data->moved);
    source_close(&data->source);
    free(data);
}

static alnico_status_t start_worker(struct data *data)
{
    pthread_mutex_init(&data->lock, NULL);
    pthread_cond_init(&data->prepared_one, NULL);
    pthread_cond_init(&data->returned_one, NULL);
    int error = thread_create(&data->worker, work, data);
    if (error == 0)
        return ALNICO_SUCCESS;
    pthread_cond_destroy(&data->returned_one);
    pthread_cond_destroy(&data->prepared_one);
    pthread_mutex_destroy(&data->lock);
    return error_set(ALNICO_ERROR_SYSTEM, "cannot start a thread: %s", strerror(error));
}

static alnico_status_t fill(const struct data_options *options, struct data *data)
{
    const struct source_setup setup = {
        .classes = options->classes, .seed = options->seed, .train = options->train};
    TRY(source_open(options->source, &setup, &data->source));
    for (int level = 0; level < 256; level++)
        data->levels[level] =
            (float)((level - data->source.info.mean) / data->source.info.deviation);
    TRY(count_batches(data));
    TRY(allocate(data));
    return start_worker(data);
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
    data->batch = options->batch;
    data->rank = options->rank;
    data->size = options->size;
    data->seed = options->seed;
    data->train = options->train;
    data->first = data->prepared = data->returned = options->first;
    status = fill(options, data);
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

alnico_status_t data_next(struct data *data, struct batch *out)
{
    pthread_mutex_lock(&data->lock);
    if (data->lent) {
        data->returned++;
        pthread_cond_signal(&data->returned_one);
    }
    data->lent = true;
    while (data->prepared == data->returned)
        pthread_cond_wait(&data->prepared_one, &data->lock);
    const struct slot *slot = &data->slots[data->returned % DATA_SLOTS];
    pthread_mutex_unlock(&data->lock);
    *out = (struct batch){slot->images, slot->labels, slot->count};
    return slot->status == ALNICO_SUCCESS ? ALNICO_SUCCESS
                                          : error_set(slot->status, "%s", slot->detail);
}

void data_close(struct data *data)
{
    if (!data)
        return;
    pthread_mutex_lock(&data->lock);
    data->stop = true;
    pthread_cond_signal(&data->returned_one);
    pthread_mutex_unlock(&data->lock);
    pthread_join(data->worker, NULL);
    pthread_cond_destroy(&data->returned_one);
    pthread_cond_destroy(&data->prepared_one);
    pthread_mutex_destroy(&data->lock);
    release(data);
}
