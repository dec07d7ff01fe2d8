/* Any bytes as an IDX file: the first decides how many dimensions are asked for, the rest is the
 * file, which lies in memory. Refused with its name, or its elements are all there. */
#include "tests/fuzz/fuzz.h"
#include "train/input/idx.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

/* Reads every byte. */
static void check_elements(const struct idx *idx)
{
    size_t sum = 0, count = idx->count * idx->height * idx->width;
    for (size_t i = 0; i < count; i++)
        sum += idx->bytes[i];
    FUZZ_REQUIRE(sum <= 255 * count);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int file = -1;
    char name[16];
    if (size == 0)
        return 0;
    if (file < 0)
        file = memfd_create("idx", MFD_CLOEXEC);
    FUZZ_REQUIRE(file >= 0 && ftruncate(file, 0) == 0);
    FUZZ_REQUIRE(pwrite(file, data + 1, size - 1, 0) == (ssize_t)size - 1);
    snprintf(name, sizeof name, "%d", file);
    int dimensions = data[0] % 2 ? 1 : 3;
    struct idx idx;
    if (idx_read("/proc/self/fd", name, dimensions, &idx) == ALNICO_SUCCESS) {
        FUZZ_REQUIRE(idx.count > 0 && idx.height > 0 && idx.width > 0);
        FUZZ_REQUIRE(dimensions == 3 || idx.height * idx.width == 1);
        check_elements(&idx);
    } else {
        FUZZ_REQUIRE(strstr(alnico_error_detail(), "/proc/self/fd/"));
        FUZZ_REQUIRE(!idx.bytes && idx.count == 0);
    }
    idx_finish(&idx);
    return 0;
}
