/* Headers and records of packed files. See packed_file.h. */
#include "train/input/packed_file.h"

#include "base/status.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <zlib.h>

enum { MOST_CHANNELS = 1 << 14, ALIGNMENT = 8 };

size_t packed_content_bytes(const struct data_info *info)
{
    return info->labels * sizeof(int32_t) + source_image(info);
}

size_t packed_record_bytes(const struct data_info *info)
{
    const size_t bytes = sizeof(struct packed_record) + packed_content_bytes(info);
    return (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

uint32_t packed_checksum(const void *bytes, size_t count)
{
    return (uint32_t)crc32_z(0, bytes, count);
}

static uint32_t header_checksum(const struct packed_header *header)
{
    struct packed_header cleared = *header;
    cleared.checksum = 0;
    return packed_checksum(&cleared, sizeof cleared);
}

void packed_header_fill(const struct data_info *info, const uint64_t images[PACKED_PARTS],
                        const char *source, struct packed_header *out)
{
    memset(out, 0, sizeof *out);
    memcpy(out->magic, PACKED_MAGIC, sizeof out->magic);
    out->order = PACKED_ORDER;
    out->version = PACKED_VERSION;
    out->type = info->type;
    memcpy(out->images, images, sizeof out->images);
    out->height = info->height;
    out->width = info->width;
    out->channels = info->channels;
    out->classes = info->classes;
    out->labels = info->labels;
    out->augment = info->augment & ~(unsigned)AUGMENT_CROP;
    out->augments = info->augments & ~(unsigned)AUGMENT_CROP;
    out->mean = info->mean;
    out->deviation = info->deviation;
    snprintf(out->source, sizeof out->source, "%s", source);
    out->checksum = header_checksum(out);
}

/* That it is such a file, whole, and of this machine's kind. */
static alnico_status_t check_marks(const struct packed_header *header, const char *path)
{
    const uint32_t swapped = __builtin_bswap32(PACKED_ORDER);
    if (memcmp(header->magic, PACKED_MAGIC, sizeof header->magic) != 0)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: not a packed file, by its first 8 bytes",
                         path);
    if (header->order == swapped)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "%s: packed on a machine of the other endianness, pack it again here",
                         path);
    if (header->order != PACKED_ORDER)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: header damaged, its order of bytes is %08x",
                         path, header->order);
    if (header->version != PACKED_VERSION)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: version %u, expected %d", path,
                         header->version, PACKED_VERSION);
    if (header->checksum != header_checksum(header))
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: header damaged, its checksum is wrong", path);
    return ALNICO_SUCCESS;
}

static alnico_status_t check_numbers(const struct packed_header *h, const char *path)
{
    const bool sides = h->height >= 1 && h->height <= SOURCE_MOST_SIDE && h->width >= 1 &&
                       h->width <= SOURCE_MOST_SIDE && h->channels >= 1 &&
                       h->channels <= MOST_CHANNELS;
    const bool labels = sides && (h->labels == 1 || h->labels == h->height * h->width);
    const bool classes = h->classes >= 1 && h->classes <= INT32_MAX;
    const bool ways = !((h->augment | h->augments) & ~(uint64_t)(AUGMENT_SHIFT | AUGMENT_FLIP));
    const bool levels = isfinite(h->mean) && isfinite(h->deviation) && h->deviation > 0;
    if (sides && labels && classes && ways && levels && h->type <= SOURCE_FLOAT32)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "%s: impossible header: images of %llu x %llu x %llu, type %u, %llu labels of "
                     "%llu classes, deviation %g",
                     path, (unsigned long long)h->height, (unsigned long long)h->width,
                     (unsigned long long)h->channels, h->type, (unsigned long long)h->labels,
                     (unsigned long long)h->classes, h->deviation);
}

static alnico_status_t check_length(const struct packed_header *header, const char *path,
                                    size_t bytes, size_t record)
{
    const uint64_t train = header->images[0], test = header->images[1];
    const uint64_t there = (bytes - PACKED_HEADER_BYTES) / record;
    const bool exact = (bytes - PACKED_HEADER_BYTES) % record == 0;
    if (train >= 1 && train <= there && test == there - train && exact)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "%s: %s, its %zu bytes hold %llu records%s, expected %llu + %llu", path,
                     train > there || test > there - train ? "cut" : "longer than its header says",
                     bytes, (unsigned long long)there, exact ? "" : " and a part",
                     (unsigned long long)train, (unsigned long long)test);
}

alnico_status_t packed_header_read(const struct packed_header *header, const char *path,
                                   size_t bytes, struct data_info *info)
{
    if (bytes < PACKED_HEADER_BYTES)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: cut, %zu bytes do not hold its header of %d",
                         path, bytes, PACKED_HEADER_BYTES);
    TRY(check_marks(header, path));
    TRY(check_numbers(header, path));
    *info = (struct data_info){.images = header->images[0],
                               .height = header->height,
                               .width = header->width,
                               .channels = header->channels,
                               .classes = header->classes,
                               .labels = header->labels,
                               .type = (enum source_type)header->type,
                               .mean = header->mean,
                               .deviation = header->deviation,
                               .augment = (unsigned)header->augment,
                               .augments = (unsigned)header->augments};
    return check_length(header, path, bytes, packed_record_bytes(info));
}
