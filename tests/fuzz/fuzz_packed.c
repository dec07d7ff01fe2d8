/* Any bytes as a packed file, which lies in memory: the first decides on the part and on the header's
 * checksum, which is corrected in most. Refused with its name, or every image is read or refused by
 * its record. */
#include "tests/fuzz/fuzz.h"
#include "train/input/packed_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { MOST_IMAGE = 1 << 24 };

static void read_images(const struct source *source)
{
    const size_t labels_bytes = source->info.labels * sizeof(int32_t);
    if (source_image(&source->info) > MOST_IMAGE)
        return;
    uint8_t *pixels = malloc(source_image(&source->info));
    int32_t *labels = malloc(labels_bytes);
    FUZZ_REQUIRE(pixels && labels);
    for (size_t i = 0; i < source->info.images; i++) {
        if (source_read(source, i, NULL, pixels, labels) != ALNICO_SUCCESS) {
            FUZZ_REQUIRE(strstr(alnico_error_detail(), ": record "));
            continue;
        }
        for (size_t j = 0; j < source->info.labels; j++)
            FUZZ_REQUIRE(labels[j] >= 0 && (size_t)labels[j] < source->info.classes);
    }
    free(pixels);
    free(labels);
}

/* So that what is behind the checksum is tried. */
static void header_correct(int file, size_t size)
{
    struct packed_header header;
    if (size < sizeof header)
        return;
    FUZZ_REQUIRE(pread(file, &header, sizeof header, 0) == sizeof header);
    header.checksum = 0;
    header.checksum = packed_checksum(&header, sizeof header);
    FUZZ_REQUIRE(pwrite(file, &header, sizeof header, 0) == sizeof header);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int file = -1;
    char text[64];
    if (size == 0)
        return 0;
    if (file < 0)
        file = memfd_create("packed", MFD_CLOEXEC);
    FUZZ_REQUIRE(file >= 0 && ftruncate(file, 0) == 0);
    FUZZ_REQUIRE(pwrite(file, data + 1, size - 1, 0) == (ssize_t)size - 1);
    if (data[0] & 6)
        header_correct(file, size - 1);
    snprintf(text, sizeof text, "packed:/proc/self/fd/%d%s", file, data[0] & 8 ? "@2" : "");
    const struct source_setup setup = {.train = data[0] & 1};
    struct source source;
    if (source_open(text, &setup, &source) == ALNICO_SUCCESS)
        read_images(&source);
    else
        FUZZ_REQUIRE(strstr(alnico_error_detail(), "/proc/self/fd/"));
    source_close(&source);
    return 0;
}
