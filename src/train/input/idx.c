/*
 * IDX files, the format of the MNIST family: two zero bytes, the element type, the number of
 * dimensions, each dimension as a big-endian 32-bit number, then the elements. zlib reads gzip and
 * plain files alike. Called when a data set is opened.
 */
#include "train/input/idx.h"

#include "base/status.h"
#include "train/input/source.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

enum {
    TYPE_UNSIGNED_BYTE = 8,
    MOST_DIMENSIONS = 3,
    MOST_PER_READ = 1 << 30,
    BUFFER_BYTES = 1 << 17,
    GZIP_MOST = 1032 /* deflate makes at most this many bytes from one */
};

static alnico_status_t find(const char *directory, const char *name, struct idx *idx)
{
    static const char *const endings[] = {"", ".gz"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++) {
        int length = snprintf(idx->path, sizeof idx->path, "%s/%s%s", directory, name, endings[i]);
        if (length < 0 || (size_t)length >= sizeof idx->path)
            return error_set(ALNICO_ERROR_ARGUMENT, "%.100s...: the path is longer than %zu bytes",
                             directory, sizeof idx->path - 1);
        if (access(idx->path, F_OK) == 0)
            return ALNICO_SUCCESS;
    }
    return error_set(ALNICO_ERROR_ARGUMENT, "%s/%s: there is no such file, with or without .gz",
                     directory, name);
}

/* Exactly `bytes` bytes. */
static alnico_status_t read_all(gzFile file, const char *path, void *to, size_t bytes)
{
    size_t done = 0;
    while (done < bytes) {
        size_t ask = bytes - done < MOST_PER_READ ? bytes - done : MOST_PER_READ;
        int got = gzread(file, (char *)to + done, (unsigned)ask);
        if (got <= 0)
            break;
        done += (size_t)got;
    }
    if (done == bytes)
        return ALNICO_SUCCESS;
    int code;
    const char *why = gzerror(file, &code);
    if (code == Z_OK || code == Z_BUF_ERROR)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "%s: truncated, %zu of %zu expected bytes are there", path, done, bytes);
    return error_set(ALNICO_ERROR_ARGUMENT, "%s: damaged after %zu of %zu bytes (%s)", path, done,
                     bytes, code == Z_ERRNO ? strerror(errno) : why);
}

static size_t big_endian(const uint8_t *bytes)
{
    return (size_t)bytes[0] << 24 | (size_t)bytes[1] << 16 | (size_t)bytes[2] << 8 | bytes[3];
}

/* The header's numbers, refused if no file of this size can hold so much. */
static alnico_status_t check_sizes(struct idx *idx, const size_t *sizes, size_t *bytes)
{
    struct stat file;
    if (stat(idx->path, &file) != 0)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: %s", idx->path, strerror(errno));
    double bytes_claimed = (double)sizes[0] * (double)sizes[1] * (double)sizes[2];
    if (bytes_claimed == 0)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: empty, %zu items of %zu x %zu", idx->path,
                         sizes[0], sizes[1], sizes[2]);
    if (sizes[1] > SOURCE_MOST_SIDE || sizes[2] > SOURCE_MOST_SIDE)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: items of %zu x %zu, expected at most %d x %d",
                         idx->path, sizes[1], sizes[2], SOURCE_MOST_SIDE, SOURCE_MOST_SIDE);
    if (bytes_claimed > GZIP_MOST * (double)file.st_size)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "%s: truncated, a file of %lld bytes cannot hold %zu items of %zu x %zu",
                         idx->path, (long long)file.st_size, sizes[0], sizes[1], sizes[2]);
    idx->count = sizes[0];
    idx->height = sizes[1];
    idx->width = sizes[2];
    *bytes = sizes[0] * sizes[1] * sizes[2];
    return ALNICO_SUCCESS;
}

static alnico_status_t read_header(gzFile file, int dimensions, struct idx *idx, size_t *bytes)
{
    uint8_t header[4 + 4 * MOST_DIMENSIONS];
    size_t sizes[MOST_DIMENSIONS] = {1, 1, 1};
    const uint8_t expected[4] = {0, 0, TYPE_UNSIGNED_BYTE, (uint8_t)dimensions};
    TRY(read_all(file, idx->path, header, sizeof expected));
    if (memcmp(header, expected, sizeof expected) != 0)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "%s: begins with %02x%02x%02x%02x, expected %02x%02x%02x%02x (IDX, bytes, "
                         "%d dimensions)",
                         idx->path, header[0], header[1], header[2], header[3], expected[0],
                         expected[1], expected[2], expected[3], dimensions);
    TRY(read_all(file, idx->path, header + 4, 4 * (size_t)dimensions));
    for (int i = 0; i < dimensions; i++)
        sizes[i] = big_endian(header + 4 + 4 * i);
    return check_sizes(idx, sizes, bytes);
}

/* Reading past the last element also makes zlib compare the checksum. */
static alnico_status_t expect_end(gzFile file, const char *path)
{
    char more;
    int got = gzread(file, &more, 1), code;
    const char *why = gzerror(file, &code);
    if (got > 0)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: longer than its header says", path);
    if (code == Z_BUF_ERROR)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: truncated before its checksum", path);
    if (got < 0 || code != Z_OK)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: damaged (%s)", path, why);
    return ALNICO_SUCCESS;
}

static alnico_status_t read_file(gzFile file, int dimensions, struct idx *idx)
{
    size_t bytes = 0;
    TRY(read_header(file, dimensions, idx, &bytes));
    idx->bytes = malloc(bytes);
    if (!idx->bytes)
        return error_set(ALNICO_ERROR_MEMORY, "%s: no memory for %zu bytes", idx->path, bytes);
    TRY(read_all(file, idx->path, idx->bytes, bytes));
    return expect_end(file, idx->path);
}

alnico_status_t idx_read(const char *directory, const char *name, int dimensions, struct idx *out)
{
    memset(out, 0, sizeof *out);
    TRY(find(directory, name, out));
    gzFile file = gzopen(out->path, "rb");
    if (!file)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: %s", out->path, strerror(errno));
    gzbuffer(file, BUFFER_BYTES);
    alnico_status_t status = read_file(file, dimensions, out);
    gzclose_r(file);
    if (status != ALNICO_SUCCESS)
        idx_finish(out);
    return status;
}

void idx_finish(struct idx *idx)
{
    free(idx->bytes);
    idx->bytes = NULL;
    idx->count = 0;
}
