/* Writes and removes the data sets of the tests. */
#include "tests/train/input/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

const char *const folder_names[FILES] = {"train-images-idx3-ubyte", "train-labels-idx1-ubyte",
                                         "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"};

static void append(struct folder *folder, int file, uint8_t byte)
{
    folder->files[file].bytes[folder->files[file].length++] = byte;
}

static void append_word(struct folder *folder, int file, uint32_t word)
{
    for (int shift = 24; shift >= 0; shift -= 8)
        append(folder, file, (uint8_t)(word >> shift));
}

int folder_label(int image)
{
    return image * 7 % 10;
}

void folder_describe(struct folder *folder)
{
    memset(folder, 0, sizeof *folder);
    for (int file = 0; file < FILES; file++) {
        bool images = file == TRAIN_IMAGES || file == TEST_IMAGES;
        int count = file <= TRAIN_LABELS ? TRAIN : TEST;
        append_word(folder, file, images ? 0x803 : 0x801);
        append_word(folder, file, (uint32_t)count);
        if (images) {
            append_word(folder, file, HEIGHT);
            append_word(folder, file, WIDTH);
        }
        for (int i = 0; i < count; i++)
            for (int pixel = 0; pixel < (images ? PIXELS : 1); pixel++)
                append(folder, file, (uint8_t)(images ? 4 * i : folder_label(i)));
    }
}

void folder_path(const struct folder *folder, int file, const char *ending, char *out, size_t bytes)
{
    snprintf(out, bytes, "%s/%s%s", folder->path, folder_names[file], ending);
}

void folder_write(struct folder *folder, const char *mode)
{
    strcpy(folder->path, "/tmp/alnico-data-XXXXXX");
    assert_non_null(mkdtemp(folder->path));
    snprintf(folder->source, sizeof folder->source, "idx:%s", folder->path);
    for (int file = 0; file < FILES; file++) {
        char path[160];
        folder_path(folder, file, strchr(mode, 'T') ? "" : ".gz", path, sizeof path);
        gzFile out = gzopen(path, mode);
        assert_non_null(out);
        int length = (int)folder->files[file].length;
        assert_int_equal(gzwrite(out, folder->files[file].bytes, (unsigned)length), length);
        assert_int_equal(gzclose(out), Z_OK);
    }
}

void folder_remove(const struct folder *folder)
{
    for (int file = 0; file < FILES; file++) {
        char path[160];
        folder_path(folder, file, "", path, sizeof path);
        unlink(path);
        folder_path(folder, file, ".gz", path, sizeof path);
        unlink(path);
    }
    assert_int_equal(rmdir(folder->path), 0);
}
