/*
 * The source packed:FILE[@SIZE]: records of one length in a file that is mapped into memory. With a
 * size, images are cut to SIZE x SIZE.
 */
#include "base/status.h"
#include "train/input/packed_file.h"
#include "train/input/place.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

/* A record of more bytes is fetched as a whole, not page by page as it is read. */
enum { FETCH_BYTES = 1 << 16 };

struct packed {
    struct place place;
    struct data_info stored; /* as the file has the images */
    size_t height, width;    /* that are cut from them */
    int file;
    uint8_t *bytes;               /* the file */
    size_t length, record, first; /* first: record of the part */
};

/* The file as it was opened: a page that is not there any more would end the process. */
static alnico_status_t check_unchanged(const struct packed *packed)
{
    struct stat about;
    if (fstat(packed->file, &about) == 0 && (size_t)about.st_size == packed->length)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_SYSTEM, "%s: its length changed while it was open",
                     packed->place.path);
}

static const uint8_t *record_at(const struct packed *packed, size_t index)
{
    return packed->bytes + PACKED_HEADER_BYTES + (packed->first + index) * packed->record;
}

/* Asks the kernel for the pages of some records. */
static void records_fetch(const struct packed *packed, size_t index, size_t count)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
    const uintptr_t begin = (uintptr_t)record_at(packed, index) / page * page;
    const uintptr_t end = (uintptr_t)record_at(packed, index + count);
    madvise((void *)begin, end - begin, MADV_WILLNEED);
}

static void expect_images(const void *self, size_t index, size_t count)
{
    records_fetch(self, index, count);
}

static alnico_status_t check_record(const struct packed *packed, size_t index,
                                    const struct packed_record *record)
{
    const struct data_info *info = &packed->stored;
    const size_t number = packed->first + index;
    if (record->checksum != packed_checksum(record->labels, packed_content_bytes(info)))
        return error_set(
            ALNICO_ERROR_ARGUMENT, "%s: record %zu, at byte %zu, is damaged: its checksum is wrong",
            packed->place.path, number, (size_t)((const uint8_t *)record - packed->bytes));
    for (size_t i = 0; i < info->labels; i++)
        if (record->labels[i] < 0 || (size_t)record->labels[i] >= info->classes)
            return error_set(ALNICO_ERROR_ARGUMENT,
                             "%s: record %zu has the label %d, not below the %zu classes",
                             packed->place.path, number, record->labels[i], info->classes);
    return ALNICO_SUCCESS;
}

static size_t offset_of(size_t stored, size_t image, double crop)
{
    return (size_t)((double)(stored - image) * crop + 0.5);
}

static void cut(const struct packed *packed, const struct source_crop *crop, const uint8_t *stored,
                uint8_t *out)
{
    const size_t pixel = source_pixel(&packed->stored), row = packed->width * pixel;
    const size_t top = offset_of(packed->stored.height, packed->height, crop->down);
    const size_t left = offset_of(packed->stored.width, packed->width, crop->right);
    for (size_t y = 0; y < packed->height; y++)
        memcpy(out + y * row, stored + ((top + y) * packed->stored.width + left) * pixel, row);
}

static alnico_status_t read_image(const void *self, size_t index, const struct source_crop *crop,
                                  void *pixels, int32_t *labels)
{
    static const struct source_crop middle = {0.5, 0.5};
    const struct packed *packed = self;
    const struct packed_record *record = (const void *)record_at(packed, index);
    TRY(check_unchanged(packed));
    if (packed->record >= FETCH_BYTES)
        records_fetch(packed, index, 1);
    TRY(check_record(packed, index, record));
    memcpy(labels, record->labels, packed->stored.labels * sizeof *labels);
    cut(packed, crop ? crop : &middle, (const uint8_t *)(record->labels + packed->stored.labels),
        pixels);
    return ALNICO_SUCCESS;
}

/* ---- Opening ---- */

static alnico_status_t file_map(struct packed *out)
{
    struct stat about;
    out->file = open(out->place.path, O_RDONLY | O_CLOEXEC);
    if (out->file < 0)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: %s", out->place.path, strerror(errno));
    if (fstat(out->file, &about) != 0 || !S_ISREG(about.st_mode))
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: expected a regular file", out->place.path);
    out->length = (size_t)about.st_size;
    if (out->length < sizeof(struct packed_header)) /* an empty file cannot be mapped */
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: cut, %zu bytes do not hold its header of %d",
                         out->place.path, out->length, PACKED_HEADER_BYTES);
    void *bytes = mmap(NULL, out->length, PROT_READ, MAP_SHARED, out->file, 0);
    if (bytes == MAP_FAILED)
        return error_set(ALNICO_ERROR_SYSTEM, "%s: mapping it: %s", out->place.path,
                         strerror(errno));
    out->bytes = bytes;
    return ALNICO_SUCCESS;
}

/* What is cut from the images. */
static alnico_status_t view_set(struct packed *packed, struct data_info *info)
{
    const size_t size = packed->place.size;
    packed->height = size ? size : info->height;
    packed->width = size ? size : info->width;
    if (packed->height > info->height || packed->width > info->width)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "%s: images of %zu x %zu, of which %zu x %zu are to "
                         "be cut",
                         packed->place.path, info->height, info->width, size, size);
    if (size && info->labels > 1)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: images with a label a pixel are not cut",
                         packed->place.path);
    info->height = packed->height;
    info->width = packed->width;
    if (size) {
        info->augments |= AUGMENT_CROP;
        info->augment = (info->augment & ~(unsigned)AUGMENT_SHIFT) | AUGMENT_CROP;
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t open_file(const struct source_setup *setup, struct data_info *info,
                                 struct packed *out)
{
    place_parse(setup->place, &out->place);
    TRY(file_map(out));
    const struct packed_header *header = (const void *)out->bytes;
    TRY(packed_header_read(header, out->place.path, out->length, info));
    out->record = packed_record_bytes(info);
    if (!setup->train) {
        out->first = info->images;
        info->images = header->images[1];
    }
    if (!info->images)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: no test images in it", out->place.path);
    out->stored = *info;
    return view_set(out, info);
}

static void close_packed(void *self)
{
    struct packed *packed = self;
    if (packed->bytes)
        munmap(packed->bytes, packed->length);
    if (packed->file >= 0)
        close(packed->file);
    free(packed);
}

static alnico_status_t open_packed(const struct source_setup *setup, struct data_info *info,
                                   void **self)
{
    struct packed *packed = calloc(1, sizeof *packed);
    if (!packed)
        return error_set(ALNICO_ERROR_MEMORY, "source packed: no memory");
    packed->file = -1;
    const alnico_status_t status = open_file(setup, info, packed);
    if (status == ALNICO_SUCCESS)
        *self = packed;
    else
        close_packed(packed);
    return status;
}

static bool accepts_file(const char *text)
{
    struct place place;
    return place_parse(text, &place) && place.margin == SIZE_MAX;
}

const struct source_ops source_packed = {.name = "packed",
                                         .about = "packed:FILE[@SIZE]",
                                         .own_classes = true,
                                         .accepts = accepts_file,
                                         .open = open_packed,
                                         .close = close_packed,
                                         .expect = expect_images,
                                         .read = read_image};
