/*
 * The sources idx:DIR and fashion-mnist: a folder with train-images-idx3-ubyte,
 * train-labels-idx1-ubyte, t10k-images-idx3-ubyte and t10k-labels-idx1-ubyte, each as such or with
 * .gz, read whole into memory when it is opened. What is not fashion may be digits or letters, which
 * are not flipped.
 */
#include "train/input/idx.h"

#include "base/status.h"
#include "train/input/source.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define FASHION_MNIST "/usr/share/datasets/fashion-mnist"

struct idx_part {
    struct idx pixels, labels;
};

static void normalise_by(const struct idx *pixels, struct data_info *info)
{
    const size_t total = pixels->count * pixels->height * pixels->width;
    size_t histogram[256] = {0};
    for (size_t i = 0; i < total; i++)
        histogram[pixels->bytes[i]]++;
    source_normalise(histogram, info);
}

static alnico_status_t check_labels(const struct idx_part *part, size_t classes)
{
    const struct idx *pixels = &part->pixels, *labels = &part->labels;
    if (labels->count != pixels->count)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: %zu labels for the %zu images of %s",
                         labels->path, labels->count, pixels->count, pixels->path);
    for (size_t i = 0; i < labels->count; i++)
        if (labels->bytes[i] >= classes)
            return error_set(ALNICO_ERROR_ARGUMENT,
                             "%s: label %zu is %d, not below the %zu classes", labels->path, i,
                             labels->bytes[i], classes);
    return ALNICO_SUCCESS;
}

/* The test part is normalised as the training part is, so that is read first either way. */
static alnico_status_t read_folder(const char *folder, bool train, struct data_info *info,
                                   struct idx_part *out)
{
    TRY(idx_read(folder, "train-images-idx3-ubyte", 3, &out->pixels));
    info->height = out->pixels.height;
    info->width = out->pixels.width;
    info->channels = 1;
    info->type = SOURCE_UINT8;
    info->augments = AUGMENT_SHIFT | AUGMENT_FLIP;
    info->augment = AUGMENT_SHIFT;
    normalise_by(&out->pixels, info);
    if (!train) {
        idx_finish(&out->pixels);
        TRY(idx_read(folder, "t10k-images-idx3-ubyte", 3, &out->pixels));
    }
    if (out->pixels.height != info->height || out->pixels.width != info->width)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "%s: images of %zu x %zu, but %zu x %zu for training", out->pixels.path,
                         out->pixels.height, out->pixels.width, info->height, info->width);
    info->images = out->pixels.count;
    const char *labels = train ? "train-labels-idx1-ubyte" : "t10k-labels-idx1-ubyte";
    TRY(idx_read(folder, labels, 1, &out->labels));
    return check_labels(out, info->classes);
}

static void close_part(void *self)
{
    struct idx_part *part = self;
    idx_finish(&part->pixels);
    idx_finish(&part->labels);
    free(part);
}

static alnico_status_t open_folder(const struct source_setup *setup, struct data_info *info,
                                   void **self)
{
    struct idx_part *part = calloc(1, sizeof *part);
    if (!part)
        return error_set(ALNICO_ERROR_MEMORY, "source idx: no memory");
    info->classes = setup->classes ? setup->classes : SOURCE_DEFAULT_CLASSES;
    const alnico_status_t status = read_folder(setup->place, setup->train, info, part);
    if (status == ALNICO_SUCCESS)
        *self = part;
    else
        close_part(part);
    return status;
}

static alnico_status_t open_fashion_mnist(const struct source_setup *setup, struct data_info *info,
                                          void **self)
{
    struct source_setup placed = *setup;
    placed.place = FASHION_MNIST;
    if (access(FASHION_MNIST, R_OK) != 0)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "source fashion-mnist: %s is missing, install the Debian package "
                         "dataset-fashion-mnist",
                         FASHION_MNIST);
    TRY(open_folder(&placed, info, self));
    info->augment = AUGMENT_SHIFT | AUGMENT_FLIP;
    return ALNICO_SUCCESS;
}

static alnico_status_t read_image(const void *self, size_t index, const struct source_crop *unused,
                                  void *pixels, int32_t *labels)
{
    (void)unused;
    const struct idx_part *part = self;
    const size_t bytes = part->pixels.height * part->pixels.width;
    memcpy(pixels, part->pixels.bytes + index * bytes, bytes);
    labels[0] = part->labels.bytes[index];
    return ALNICO_SUCCESS;
}

const struct source_ops source_idx = {.name = "idx",
                                      .about = "idx:DIR",
                                      .accepts = source_accepts_path,
                                      .open = open_folder,
                                      .close = close_part,
                                      .read = read_image};

const struct source_ops source_fashion_mnist = {.name = "fashion-mnist",
                                                .about = "fashion-mnist",
                                                .accepts = source_accepts_nothing,
                                                .open = open_fashion_mnist,
                                                .close = close_part,
                                                .read = read_image};
