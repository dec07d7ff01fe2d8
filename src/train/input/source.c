/* The table of sources, their names, and what all of them need. See source.h. */
#include "train/input/source.h"

#include "base/status.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

const struct source_ops *const sources_all[] = {
    &source_fashion_mnist, &source_idx,    &source_cifar10,
    &source_folder,        &source_packed, &source_synthetic,
    &source_mesh,          &source_step,   NULL};

static const char *place_of(const char *text)
{
    const char *colon = strchr(text, ':');
    return colon ? colon + 1 : NULL;
}

const struct source_ops *source_find(const char *text)
{
    const size_t length = strcspn(text, ":");
    for (size_t i = 0; sources_all[i]; i++)
        if (strlen(sources_all[i]->name) == length && !memcmp(sources_all[i]->name, text, length))
            return sources_all[i]->accepts(place_of(text)) ? sources_all[i] : NULL;
    return NULL;
}

void source_forms(char *out, size_t bytes)
{
    size_t length = 0;
    out[0] = '\0';
    for (size_t i = 0; sources_all[i] && length < bytes; i++) {
        const char *before = i == 0 ? "" : sources_all[i + 1] ? ", " : " or ";
        length +=
            (size_t)snprintf(out + length, bytes - length, "%s%s", before, sources_all[i]->about);
    }
}

alnico_status_t source_open(const char *text, const struct source_setup *setup, struct source *out)
{
    struct source_setup placed = *setup;
    char forms[512];
    *out = (struct source){.ops = source_find(text), .info = {.labels = 1}};
    source_forms(forms, sizeof forms);
    if (!out->ops)
        return error_set(ALNICO_ERROR_ARGUMENT, "source '%s', expected %s", text, forms);
    if (setup->classes && out->ops->own_classes)
        return error_set(ALNICO_ERROR_ARGUMENT, "source %s: %zu classes, but it has its own", text,
                         setup->classes);
    placed.place = place_of(text);
    return out->ops->open(&placed, &out->info, &out->self);
}

void source_close(struct source *source)
{
    if (source->self)
        source->ops->close(source->self);
    source->self = NULL;
}

alnico_status_t source_read(const struct source *source, size_t index,
                            const struct source_crop *crop, void *pixels, int32_t *labels)
{
    return source->ops->read(source->self, index, crop, pixels, labels);
}

bool source_accepts_path(const char *place)
{
    return place && *place;
}

bool source_accepts_nothing(const char *place)
{
    return !place;
}

size_t source_element(const struct data_info *info)
{
    return info->type == SOURCE_UINT8 ? 1 : sizeof(float);
}

size_t source_pixel(const struct data_info *info)
{
    return info->channels * source_element(info);
}

size_t source_image(const struct data_info *info)
{
    return info->height * info->width * source_pixel(info);
}

void source_normalise(const size_t histogram[256], struct data_info *info)
{
    double total = 0, sum = 0, squares = 0;
    for (int level = 0; level < 256; level++) {
        total += (double)histogram[level];
        sum += (double)histogram[level] * level;
        squares += (double)histogram[level] * level * level;
    }
    const double mean = sum / total, variance = squares / total - mean * mean;
    info->mean = mean;
    info->deviation = variance > 0 ? sqrt(variance) : 1; /* all alike: nothing to scale */
}
