/* Any bytes as each of CIFAR-10's files, which lie in memory. Refused with a file's name, or every
 * image can be read. */
#include "tests/fuzz/fuzz.h"
#include "train/input/source.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { IMAGE = 32 * 32 * 3 };

static const char *const names[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                    "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};
static char folder[] = "/tmp/alnico-fuzz-XXXXXX";

static void folder_remove(void)
{
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        char path[64];
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        unlink(path);
    }
    rmdir(folder);
}

/* Its files are all one. */
static void folder_make(int file)
{
    char target[32], path[64];
    FUZZ_REQUIRE(mkdtemp(folder));
    atexit(folder_remove);
    snprintf(target, sizeof target, "/proc/self/fd/%d", file);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        snprintf(path, sizeof path, "%s/%s", folder, names[i]);
        FUZZ_REQUIRE(symlink(target, path) == 0);
    }
}

static void check_images(const struct source *source)
{
    uint8_t image[IMAGE];
    for (size_t i = 0; i < source->info.images; i++) {
        int32_t label;
        FUZZ_REQUIRE(source_read(source, i, NULL, image, &label) == ALNICO_SUCCESS);
        FUZZ_REQUIRE(label >= 0 && label < 10);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static int file = -1;
    static char text[64];
    if (size == 0)
        return 0;
    if (file < 0) {
        file = memfd_create("cifar10", MFD_CLOEXEC);
        FUZZ_REQUIRE(file >= 0);
        folder_make(file);
        snprintf(text, sizeof text, "cifar10:%s", folder);
    }
    FUZZ_REQUIRE(ftruncate(file, 0) == 0);
    FUZZ_REQUIRE(pwrite(file, data + 1, size - 1, 0) == (ssize_t)size - 1);
    const struct source_setup setup = {.train = data[0] % 2};
    struct source source;
    if (source_open(text, &setup, &source) == ALNICO_SUCCESS)
        check_images(&source);
    else
        FUZZ_REQUIRE(strstr(alnico_error_detail(), ".bin: "));
    source_close(&source);
    return 0;
}
