/* Leaving out images. See bad_images.h. */
#include "train/input/bad_images.h"

#include "base/log.h"
#include "base/status.h"

#include <pthread.h>
#include <stdlib.h>

struct bad_images {
    const struct source *source;
    size_t most;
    pthread_mutex_t lock;
    size_t count;
    uint8_t marks[]; /* a bit for each image */
};

alnico_status_t bad_images_create(const struct source *source, size_t most, struct bad_images **out)
{
    struct bad_images *bad = calloc(1, sizeof *bad + source->info.images / 8 + 1);
    *out = bad;
    if (!bad)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for marks of %zu images",
                         source->info.images);
    bad->source = source;
    bad->most = most;
    pthread_mutex_init(&bad->lock, NULL);
    return ALNICO_SUCCESS;
}

void bad_images_destroy(struct bad_images *bad)
{
    if (!bad)
        return;
    pthread_mutex_destroy(&bad->lock);
    free(bad);
}

size_t bad_images_count(struct bad_images *bad)
{
    pthread_mutex_lock(&bad->lock);
    const size_t count = bad->count;
    pthread_mutex_unlock(&bad->lock);
    return count;
}

static bool is_marked(struct bad_images *bad, size_t index)
{
    pthread_mutex_lock(&bad->lock);
    const bool marked = bad->marks[index / 8] >> index % 8 & 1;
    pthread_mutex_unlock(&bad->lock);
    return marked;
}

/* Marks an image that failed; the status where that is one too many. Two threads may have tried the
 * same. */
static alnico_status_t mark(struct bad_images *bad, size_t index, alnico_status_t status)
{
    const uint8_t bit = (uint8_t)(1U << index % 8);
    pthread_mutex_lock(&bad->lock);
    const bool known = bad->marks[index / 8] & bit, full = bad->count == bad->most;
    if (!known && !full) {
        bad->marks[index / 8] |= bit;
        bad->count++;
    }
    pthread_mutex_unlock(&bad->lock);
    if (!known && !full)
        log_write(LOG_WARNING, "image %zu is left out: %s", index, alnico_error_detail());
    return known || !full ? ALNICO_SUCCESS : status;
}

alnico_status_t bad_images_read(struct bad_images *bad, size_t index,
                                const struct source_crop *crop, void *pixels, int32_t *labels)
{
    const size_t images = bad->source->info.images;
    for (size_t i = 0; i < images; i++) {
        const size_t other = (index + i) % images;
        if (bad->most && is_marked(bad, other))
            continue;
        const alnico_status_t status = source_read(bad->source, other, crop, pixels, labels);
        if (status == ALNICO_SUCCESS)
            return status;
        TRY(mark(bad, other, status));
    }
    return error_set(ALNICO_ERROR_ARGUMENT, "none of the %zu images can be read", images);
}
