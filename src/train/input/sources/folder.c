/*
 * The source folder:DIR[@SIZE[+MARGIN]]: JPEG and PNG files in DIR/train/CLASS/ and DIR/test/CLASS/
 * or DIR/val/CLASS/, decoded when they are read. Without a size all have one size; with it the
 * shorter side becomes SIZE + MARGIN pixels (SIZE / 7), and SIZE x SIZE of it are the image.
 */
#include "base/status.h"
#include "train/input/image.h"
#include "train/input/place.h"
#include "train/input/sources/class_folders.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

/* The mean and deviation are of images in equal steps, of about so many bytes in all. */
enum { SAMPLE_BYTES = 1 << 26, SHAPE_TRIES = 100 };

struct folder {
    struct class_folders files;
    struct image_view view;
};

static bool accepts_place(const char *text)
{
    struct place place;
    return place_parse(text, &place);
}

/* ---- Reading files ---- */

static alnico_status_t file_error(const char *path, const char *why)
{
    return error_set(ALNICO_ERROR_SYSTEM, "%s: %s", path, why);
}

static alnico_status_t read_bytes(int file, const char *path, uint8_t **bytes, size_t *length)
{
    struct stat about;
    if (fstat(file, &about) != 0 || !S_ISREG(about.st_mode))
        return file_error(path, "expected a regular file");
    *bytes = malloc((size_t)about.st_size + 1);
    if (!*bytes)
        return error_set(ALNICO_ERROR_MEMORY, "%s: no memory for %lld bytes", path,
                         (long long)about.st_size);
    for (*length = 0; *length < (size_t)about.st_size;) {
        const ssize_t got = read(file, *bytes + *length, (size_t)about.st_size - *length);
        if (got < 0)
            return file_error(path, strerror(errno));
        if (got == 0)
            return file_error(path, "it was cut while it was read");
        *length += (size_t)got;
    }
    return ALNICO_SUCCESS;
}

/* The caller frees *bytes, on errors too. */
static alnico_status_t read_path(const char *path, uint8_t **bytes, size_t *length)
{
    const int file = open(path, O_RDONLY | O_CLOEXEC);
    *bytes = NULL;
    if (file < 0)
        return file_error(path, strerror(errno));
    const alnico_status_t status = read_bytes(file, path, bytes, length);
    close(file);
    return status;
}

static alnico_status_t read_image(const void *self, size_t index, const struct source_crop *crop,
                                  void *pixels, int32_t *labels)
{
    const struct folder *folder = self;
    char path[CLASS_FOLDERS_PATH];
    struct image_file file = {.name = path};
    uint8_t *bytes;
    labels[0] = class_folders_file(&folder->files, index, path);
    alnico_status_t status = read_path(path, &bytes, &file.length);
    file.bytes = bytes;
    if (status == ALNICO_SUCCESS)
        status = image_read(&file, &folder->view, crop, pixels);
    free(bytes);
    return status;
}

/* ---- Opening ---- */

static alnico_status_t shape_of(const struct folder *folder, size_t index, struct raster *out)
{
    char path[CLASS_FOLDERS_PATH];
    struct image_file file = {.name = path};
    uint8_t *bytes;
    class_folders_file(&folder->files, index, path);
    alnico_status_t status = read_path(path, &bytes, &file.length);
    file.bytes = bytes;
    if (status == ALNICO_SUCCESS)
        status = image_shape(&file, out);
    free(bytes);
    return status;
}

/* The first file that can be read says how many channels there are, and without a size which. */
static alnico_status_t view_complete(struct folder *folder)
{
    alnico_status_t status = ALNICO_ERROR_ARGUMENT;
    struct raster shape;
    for (size_t i = 0; i < folder->files.files.count && i < SHAPE_TRIES; i++) {
        status = shape_of(folder, i, &shape);
        if (status == ALNICO_SUCCESS)
            break;
    }
    TRY(status);
    folder->view.channels = shape.channels;
    if (!folder->view.shorter) {
        folder->view.height = shape.height;
        folder->view.width = shape.width;
    }
    return ALNICO_SUCCESS;
}

/* Files that cannot be read are left out: an error for whoever reads them. */
static alnico_status_t normalise_by(const struct folder *folder, struct data_info *info)
{
    const size_t bytes = source_image(info), count = folder->files.files.count;
    const size_t most = SAMPLE_BYTES / bytes + 1, step = (count + most - 1) / most;
    size_t histogram[256] = {0}, read = 0;
    uint8_t *pixels = malloc(bytes);
    if (!pixels)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for an image of %zu bytes", bytes);
    alnico_status_t status = ALNICO_SUCCESS;
    for (size_t i = 0; i < count; i += step) {
        int32_t label;
        status = read_image(folder, i, NULL, pixels, &label);
        for (size_t j = 0; status == ALNICO_SUCCESS && j < bytes; j++)
            histogram[pixels[j]]++;
        read += status == ALNICO_SUCCESS;
    }
    free(pixels);
    if (read)
        source_normalise(histogram, info);
    return read ? ALNICO_SUCCESS : status;
}

static void info_fill(const struct folder *train, struct data_info *info)
{
    info->height = train->view.height;
    info->width = train->view.width;
    info->channels = train->view.channels;
    info->classes = train->files.classes.count;
    info->type = SOURCE_UINT8;
    info->augments = AUGMENT_SHIFT | AUGMENT_FLIP | (train->view.shorter ? AUGMENT_CROP : 0U);
    info->augment = train->view.shorter ? AUGMENT_CROP | AUGMENT_FLIP : AUGMENT_SHIFT;
}

/* Replaces the training files by those of a test. */
static alnico_status_t open_test(const char *path, struct folder *folder)
{
    static const char *const names[] = {"test", "val"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char part[PLACE_BYTES + sizeof "/train"];
        snprintf(part, sizeof part, "%s/%s", path, names[i]);
        if (access(part, F_OK) != 0)
            continue;
        struct class_folders files;
        TRY(class_folders_list(part, &files));
        const alnico_status_t status = class_folders_label(&files, &folder->files);
        class_folders_free(&folder->files);
        folder->files = files;
        return status;
    }
    return error_set(ALNICO_ERROR_ARGUMENT, "%s: neither test nor val in it", path);
}

static alnico_status_t open_files(const struct source_setup *setup, struct data_info *info,
                                  struct folder *out)
{
    char part[PLACE_BYTES + sizeof "/train"];
    struct place place;
    place_parse(setup->place, &place);
    snprintf(part, sizeof part, "%s/train", place.path);
    out->view.height = out->view.width = place.size;
    out->view.shorter = place.size + (place.margin < SIZE_MAX ? place.margin : place.size / 7);
    TRY(class_folders_list(part, &out->files));
    TRY(view_complete(out));
    info_fill(out, info);
    TRY(normalise_by(out, info));
    if (!setup->train)
        TRY(open_test(place.path, out));
    info->images = out->files.files.count;
    return ALNICO_SUCCESS;
}

static void close_folder(void *self)
{
    struct folder *folder = self;
    class_folders_free(&folder->files);
    free(folder);
}

static alnico_status_t open_folder(const struct source_setup *setup, struct data_info *info,
                                   void **self)
{
    struct folder *folder = calloc(1, sizeof *folder);
    if (!folder)
        return error_set(ALNICO_ERROR_MEMORY, "source folder: no memory");
    const alnico_status_t status = open_files(setup, info, folder);
    if (status == ALNICO_SUCCESS)
        *self = folder;
    else
        close_folder(folder);
    return status;
}

const struct source_ops source_folder = {.name = "folder",
                                         .about = "folder:DIR[@SIZE[+MARGIN]]",
                                         .own_classes = true,
                                         .accepts = accepts_place,
                                         .open = open_folder,
                                         .close = close_folder,
                                         .read = read_image};
