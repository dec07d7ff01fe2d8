/*
 * The source cifar10:DIR: the binary version of CIFAR-10 (Krizhevsky 2009), data_batch_1.bin to
 * data_batch_5.bin and test_batch.bin. A record is a byte of label and 32 x 32 bytes each of red,
 * green and blue. Read whole into memory when it is opened.
 */
#include "base/status.h"
#include "train/input/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

enum { SIDE = 32, PLANE = SIDE * SIDE, CHANNELS = 3, RECORD = 1 + CHANNELS * PLANE, CLASSES = 10 };

static const char *const train_files[] = {"data_batch_1.bin", "data_batch_2.bin",
                                          "data_batch_3.bin", "data_batch_4.bin",
                                          "data_batch_5.bin", NULL};
static const char *const test_files[] = {"test_batch.bin", NULL};

struct cifar {
    uint8_t *records;
    size_t count;
};

static alnico_status_t check_labels(const char *path, const uint8_t *records, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (records[i * RECORD] >= CLASSES)
            return error_set(ALNICO_ERROR_ARGUMENT, "%s: label %zu is %d, not below the %d classes",
                             path, i, records[i * RECORD], CLASSES);
    return ALNICO_SUCCESS;
}

static alnico_status_t read_records(FILE *file, const char *path, size_t bytes, struct cifar *out)
{
    if (bytes == 0 || bytes % RECORD)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "%s: %zu bytes, expected a multiple of %d, a record of CIFAR-10", path,
                         bytes, RECORD);
    uint8_t *records = realloc(out->records, out->count * RECORD + bytes);
    if (!records)
        return error_set(ALNICO_ERROR_MEMORY, "%s: no memory for %zu bytes", path, bytes);
    out->records = records;
    uint8_t *to = records + out->count * RECORD;
    const size_t got = fread(to, 1, bytes, file);
    if (got != bytes)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: %zu of its %zu bytes could be read: %s", path,
                         got, bytes, ferror(file) ? strerror(errno) : "it was cut meanwhile");
    TRY(check_labels(path, to, bytes / RECORD));
    out->count += bytes / RECORD;
    return ALNICO_SUCCESS;
}

/* Adds the records of one file. */
static alnico_status_t read_file(const char *folder, const char *name, struct cifar *out)
{
    char path[512];
    struct stat about;
    const int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    if (length < 0 || (size_t)length >= sizeof path)
        return error_set(ALNICO_ERROR_ARGUMENT, "%.100s...: the path is longer than %zu bytes",
                         folder, sizeof path - 1);
    FILE *file = fopen(path, "rb");
    if (!file)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: %s", path, strerror(errno));
    alnico_status_t status;
    if (fstat(fileno(file), &about) != 0 || !S_ISREG(about.st_mode))
        status = error_set(ALNICO_ERROR_ARGUMENT, "%s: expected a regular file", path);
    else
        status = read_records(file, path, (size_t)about.st_size, out);
    fclose(file);
    return status;
}

static alnico_status_t read_files(const char *folder, const char *const *names, struct cifar *out)
{
    for (size_t i = 0; names[i]; i++)
        TRY(read_file(folder, names[i], out));
    return ALNICO_SUCCESS;
}

static void normalise_by(const struct cifar *cifar, struct data_info *info)
{
    size_t histogram[256] = {0};
    for (size_t i = 0; i < cifar->count; i++)
        for (size_t j = 1; j < RECORD; j++)
            histogram[cifar->records[i * RECORD + j]]++;
    source_normalise(histogram, info);
}

/* The test part is normalised as the training part is, so that is read first either way. */
static alnico_status_t read_part(const char *folder, bool train, struct data_info *info,
                                 struct cifar *out)
{
    TRY(read_files(folder, train_files, out));
    normalise_by(out, info);
    if (!train) {
        out->count = 0;
        TRY(read_files(folder, test_files, out));
    }
    info->images = out->count;
    info->height = info->width = SIDE;
    info->channels = CHANNELS;
    info->classes = CLASSES;
    info->type = SOURCE_UINT8;
    info->augment = info->augments = AUGMENT_SHIFT | AUGMENT_FLIP;
    return ALNICO_SUCCESS;
}

static void close_cifar(void *self)
{
    struct cifar *cifar = self;
    free(cifar->records);
    free(cifar);
}

static alnico_status_t open_cifar(const struct source_setup *setup, struct data_info *info,
                                  void **self)
{
    struct cifar *cifar = calloc(1, sizeof *cifar);
    if (!cifar)
        return error_set(ALNICO_ERROR_MEMORY, "source cifar10: no memory");
    const alnico_status_t status = read_part(setup->place, setup->train, info, cifar);
    if (status == ALNICO_SUCCESS)
        *self = cifar;
    else
        close_cifar(cifar);
    return status;
}

static alnico_status_t read_image(const void *self, size_t index, const struct source_crop *unused,
                                  void *pixels, int32_t *labels)
{
    const struct cifar *cifar = self;
    const uint8_t *record = cifar->records + index * RECORD;
    uint8_t *out = pixels;
    (void)unused;
    labels[0] = record[0];
    for (size_t i = 0; i < PLANE; i++)
        for (size_t c = 0; c < CHANNELS; c++)
            *out++ = record[1 + c * PLANE + i];
    return ALNICO_SUCCESS;
}

const struct source_ops source_cifar10 = {.name = "cifar10",
                                          .about = "cifar10:DIR",
                                          .own_classes = true,
                                          .accepts = source_accepts_path,
                                          .open = open_cifar,
                                          .close = close_cifar,
                                          .read = read_image};
