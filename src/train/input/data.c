/*
 * Batches of images, prepared ahead. The caller's thread opens, takes batches and closes; one
 * worker prepares them in a ring of slots and sleeps while the ring is full. Which images a batch
 * holds, and how they are shifted and flipped, follows from the seed, the epoch and the image
 * alone.
 */
#include "train/input/data.h"

#include "base/status.h"
#include "base/thread.h"
#include "train/base/random.h"
#include "train/input/images.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_SHIFT = 2, ALIGNMENT = 64 };

enum stream { STREAM_ORDER = 101, STREAM_AUGMENTATION };

struct slot {
    float *images;
    int32_t *labels;
    size_t count;
};

struct data {
    size_t batch, batches;
    int rank, size;
    uint64_t seed, first;
    bool train;
    struct images images;
    struct slot slots[DATA_SLOTS];
    /* the worker's */
    uint32_t *order; /* this epoch's permutation of the part */
    float *image;    /* the one that is being shifted */
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
    for (size_t i = 0; i < data->images.info.images; i++)
        data->order[i] = (uint32_t)i;
    for (size_t i = data->images.info.images; data->train && i > 1; i--) {
        size_t j = random_next(&state) % i;
        uint32_t other = data->order[j];
        data->order[j] = data->order[i - 1];
        data->order[i - 1] = other;
    }
}

static void blacken(float *out, size_t count, float black)
{
    for (size_t i = 0; i < count; i++)
        out[i] = black;
}

/* out[x] = in[x + right] over a row's pixels, black where there is none. */
static void shift_row(const float *in, const struct images *images, int right, float *out)
{
    size_t channels = images->info.channels, all = images->info.width * channels;
    size_t moved = (size_t)abs(right) * channels;
    size_t edge = moved < all ? moved : all, rest = all - edge;
    if (right >= 0) {
        memcpy(out, in + edge, rest * sizeof *out);
        blacken(out + rest, edge, images->black);
    } else {
        memcpy(out + edge, in, rest * sizeof *out);
        blacken(out, edge, images->black);
    }
}

static void mirror_row(float *row, size_t width, size_t channels)
{
    for (size_t left = 0, right = width - 1; left < right; left++, right--)
        for (size_t c = 0; c < channels; c++) {
            float other = row[left * channels + c];
            row[left * channels + c] = row[right * channels + c];
            row[right * channels + c] = other;
        }
}

/* out[y][x] = in[y + down][x + right], or black outside; then mirrored if `flip`. */
static void move(const struct images *images, const float *in, int down, int right, bool flip,
                 float *out)
{
    int height = (int)images->info.height;
    size_t row = images->info.width * images->info.channels;
    for (int y = 0; y < height; y++, out += row) {
        int from = y + down;
        if (from < 0 || from >= height)
            blacken(out, row, images->black);
        else
            shift_row(in + (size_t)from * row, images, right, out);
        if (flip)
            mirror_row(out, images->info.width, images->info.channels);
    }
}

static int32_t prepare_image(struct data *data, uint64_t epoch, size_t index, float *out)
{
    if (!data->train)
        return images_get(&data->images, index, out);
    uint64_t stream = epoch * data->images.info.images + index;
    uint64_t bits = random_stream(random_stream(data->seed, STREAM_AUGMENTATION), stream);
    int range = 2 * MOST_SHIFT + 1;
    int down = (int)(bits % (uint64_t)range) - MOST_SHIFT;
    int right = (int)((bits >> 16) % (uint64_t)range) - MOST_SHIFT;
    int32_t label = images_get(&data->images, index, data->image);
    move(&data->images, data->image, down, right, bits >> 63, out);
    return label;
}

static void prepare(struct data *data, uint64_t number, struct slot *slot)
{
    uint64_t epoch = number / data->batches;
    size_t all = data->images.info.images, pixels = images_pixels(&data->images.info);
    size_t share = (size_t)(number % data->batches) * (size_t)data->size + (size_t)data->rank;
    size_t first = share < all / data->batch + 1 ? share * data->batch : all;
    if (number % data->batches == 0 || number == data->first)
        arrange(data, epoch);
    slot->count = first >= all ? 0 : all - first < data->batch ? all - first : data->batch;
    for (size_t i = 0; i < slot->count; i++)
        slot->labels[i] =
            prepare_image(data, epoch, data->order[first + i], slot->images + i * pixels);
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
    size_t all = data->images.info.images, joined = data->batch * (size_t)data->size;
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
    size_t pixels = images_pixels(&data->images.info), all = data->images.info.images;
    size_t most =
        data->batch < all ? data->batch : all; /* a test batch may be larger than the set */
    if (pixels > (SIZE_MAX / 2 - ALIGNMENT) / sizeof(float) / most)
        return out_of_memory(data, most, pixels);
    size_t bytes = (most * pixels * sizeof(float) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    data->order = calloc(all, sizeof *data->order);
    data->image = calloc(pixels, sizeof *data->image);
    bool enough = data->order && data->image;
    for (int i = 0; i < DATA_SLOTS; i++) {
        data->slots[i].images = aligned_alloc(ALIGNMENT, bytes);
        data->slots[i].labels = calloc(most, sizeof *data->slots[i].labels);
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
    images_finish(&data->images);
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
    TRY(images_open(options, &data->images));
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
    return &data->images.info;
}

size_t data_batches(const struct data *data)
{
    return data->batches;
}

struct batch data_next(struct data *data)
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
    return (struct batch){slot->images, slot->labels, slot->count};
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
