/* What data_open refuses: impossible options, and IDX folders damaged in every way. The message
 * names the option or the file, and what is wrong with it. */
#include "train/input/data.h"

#include "tests/train/input/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

/* Opening fails, and the message says each of the two things. */
static void expect_error(const struct data_options *options, const char *first, const char *second)
{
    struct data *data = (void *)&data;
    assert_int_equal(data_open(options, &data), ALNICO_ERROR_ARGUMENT);
    assert_null(data);
    if (!strstr(alnico_error_detail(), first) || !strstr(alnico_error_detail(), second))
        fail_msg("'%s' lacks '%s' or '%s'", alnico_error_detail(), first, second);
}

static void impossible_options_are_refused(void **state)
{
    (void)state;
    struct folder folder;
    folder_describe(&folder);
    folder_write(&folder, "wb");
    const struct data_options good = {
        .source = folder.source, .batch = 2, .size = 1, .train = true};
    struct data_options options = good;
    options.batch = 0;
    expect_error(&options, "batch 0", "at least 1");
    options = good, options.batch = TRAIN + 1;
    expect_error(&options, "batch 62", "61 images");
    options = good, options.batch = SIZE_MAX / 2, options.size = 4;
    expect_error(&options, "on each of 4 ranks", "61 images");
    options = good, options.rank = 1;
    expect_error(&options, "rank 1 of size 1", "rank < size");
    options = good, options.rank = -1;
    expect_error(&options, "rank -1", "rank < size");
    options = good, options.size = 0;
    expect_error(&options, "size 0", "rank < size");
    options = good, options.classes = (size_t)1 << 40;
    expect_error(&options, "classes 1099511627776", "at most");
    options = good, options.loaders = 257, options.prefetch = 1;
    expect_error(&options, "257 loaders", "at most 256");
    options = good, options.loaders = 3, options.prefetch = 0;
    expect_error(&options, "3 loaders", "at least 1 batch");
    options = good, options.source = NULL;
    expect_error(&options, "source is NULL", "data_open");
    static const char *const sources[] = {"",
                                          "idx",
                                          "idx:",
                                          "cifar",
                                          "Synthetic",
                                          "synthetic:",
                                          "synthetic:0x4x4",
                                          "synthetic:4x4",
                                          "synthetic:4x4x4x4",
                                          "synthetic:-4x4x1",
                                          "synthetic:4x4x99999999999999999999",
                                          "synthetic:4x4x1 "};
    for (size_t i = 0; i < sizeof sources / sizeof *sources; i++) {
        options = good, options.source = sources[i];
        expect_error(&options, sources[i], "expected");
    }
    options = good, options.source = "idx:/nonexistent";
    expect_error(&options, "/nonexistent/train-images-idx3-ubyte", "no such file");
    folder_remove(&folder);
}

struct damage {
    int file;
    size_t at; /* where to write a byte; SIZE_MAX: nowhere */
    uint8_t byte;
    long longer; /* change of the length */
    const char *expected;
};

static const struct damage damages[] = {
    {TRAIN_IMAGES, SIZE_MAX, 0, -1, "truncated"},
    {TRAIN_IMAGES, SIZE_MAX, 0, -TRAIN *PIXELS, "truncated"},
    {TRAIN_IMAGES, SIZE_MAX, 0, -TRAIN *PIXELS - 5, "truncated"},
    {TRAIN_IMAGES, SIZE_MAX, 0, -TRAIN *PIXELS - 14, "truncated"},
    {TRAIN_IMAGES, SIZE_MAX, 0, -TRAIN *PIXELS - 16, "truncated"},
    {TRAIN_IMAGES, SIZE_MAX, 0, 1, "longer than its header says"},
    {TRAIN_LABELS, SIZE_MAX, 0, -1, "truncated"},
    {TRAIN_LABELS, SIZE_MAX, 0, 3, "longer than its header says"},
    {TRAIN_IMAGES, 0, 'P', 0, "begins with 50000803, expected 00000803"},
    {TRAIN_IMAGES, 2, 0x0d, 0, "begins with 00000d03, expected 00000803"},
    {TRAIN_IMAGES, 3, 4, 0, "begins with 00000804, expected 00000803"},
    {TRAIN_LABELS, 3, 3, 0, "begins with 00000803, expected 00000801"},
    {TRAIN_IMAGES, 4, 0xff, 0, "cannot hold 4278190141 items"},
    {TRAIN_IMAGES, 8, 0xff, 0, "items of 4278190086 x 5, expected at most 16384 x 16384"},
    {TRAIN_IMAGES, 14, 0x41, 0, "items of 6 x 16645, expected at most 16384 x 16384"},
    {TRAIN_IMAGES, 7, 0, 0, "empty, 0 items of 6 x 5"},
    {TRAIN_IMAGES, 11, 0, 0, "empty, 61 items of 0 x 5"},
    {TRAIN_LABELS, 7, TRAIN - 1, -1, "60 labels for the 61 images of"},
    {TRAIN_LABELS, 8 + 5, 10, 0, "label 5 is 10, not below the 10 classes"},
    {TEST_LABELS, 8 + 22, 255, 0, "label 22 is 255, not below the 10 classes"},
    {TEST_LABELS, SIZE_MAX, 0, -1, "truncated"},
    {TEST_IMAGES, SIZE_MAX, 0, -30, "truncated"},
    {TEST_IMAGES, 15, 6, 23 * 6, "images of 6 x 6, but 6 x 5 for training"},
};

static void damaged_files_are_named_with_what_is_wrong(void **state)
{
    (void)state;
    for (size_t i = 0; i < sizeof damages / sizeof *damages; i++)
        for (int gzip = 0; gzip < 2; gzip++) {
            const struct damage *damage = &damages[i];
            struct folder folder;
            folder_describe(&folder);
            uint8_t *bytes = folder.files[damage->file].bytes;
            size_t *length = &folder.files[damage->file].length;
            if (damage->at != SIZE_MAX)
                bytes[damage->at] = damage->byte;
            *length = (size_t)((long)*length + damage->longer);
            folder_write(&folder, gzip ? "wb" : "wbT");
            struct data_options options = {.source = folder.source,
                                           .batch = 1,
                                           .size = 1,
                                           .train = damage->file <= TRAIN_LABELS};
            expect_error(&options, folder_names[damage->file], damage->expected);
            folder_remove(&folder);
        }
}

static void missing_files_are_named(void **state)
{
    (void)state;
    for (int f = 0; f < FILES; f++) {
        struct folder folder;
        char path[160];
        folder_describe(&folder);
        folder_write(&folder, "wb");
        folder_path(&folder, f, ".gz", path, sizeof path);
        assert_int_equal(unlink(path), 0);
        struct data_options options = {
            .source = folder.source, .batch = 1, .size = 1, .train = f <= TRAIN_LABELS};
        expect_error(&options, folder_names[f], "no such file");
        folder_path(&folder, f, "", path, sizeof path);
        assert_int_equal(mkdir(path, 0700), 0);
        expect_error(&options, folder_names[f], "directory");
        assert_int_equal(rmdir(path), 0);
        folder_remove(&folder);
    }
}

/* Gzip files cut at every length, and with any one byte changed. */
static void damaged_gzip_never_passes(void **state)
{
    (void)state;
    struct folder folder;
    char path[160];
    uint8_t whole[4096];
    folder_describe(&folder);
    folder_write(&folder, "wb");
    folder_path(&folder, TRAIN_LABELS, ".gz", path, sizeof path);
    FILE *file = fopen(path, "rb");
    assert_non_null(file);
    size_t length = fread(whole, 1, sizeof whole, file);
    fclose(file);
    struct data_options options = {.source = folder.source, .batch = 1, .size = 1, .train = true};
    for (size_t i = 0; i < 2 * length; i++) {
        uint8_t bytes[4096];
        memcpy(bytes, whole, length);
        bytes[i % length] ^= 0x55;
        bool cut = i < length;
        if (!cut && i % length >= 4 && i % length < 10)
            continue; /* gzip's time, flags and system: not what it protects */
        file = fopen(path, "wb");
        assert_non_null(file);
        fwrite(cut ? whole : bytes, 1, cut ? i : length, file);
        fclose(file);
        expect_error(&options, folder_names[TRAIN_LABELS], "");
    }
    folder_remove(&folder);
}

static void a_missing_data_set_names_its_package(void **state)
{
    (void)state;
    struct data_options options = {.source = "fashion-mnist", .batch = 1, .size = 1};
    if (access("/usr/share/datasets/fashion-mnist", R_OK) == 0)
        skip();
    expect_error(&options, "fashion-mnist", "install the Debian package dataset-fashion-mnist");
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { LIMITED = false }; /* sanitizers take all addresses */
#else
enum { LIMITED = true };
#endif

/* The message names the batch and what it takes. */
static void a_batch_too_large_for_memory_is_named(void **state)
{
    (void)state;
    const struct data_options options = {.source = "synthetic:64x64x3",
                                         .batch = 40000,
                                         .size = 1,
                                         .train = true,
                                         .loaders = 1,
                                         .prefetch = 2,
                                         .held = 2};
    struct data *data;
    struct rlimit before, few;
    if (!LIMITED)
        skip();
    assert_int_equal(getrlimit(RLIMIT_AS, &before), 0);
    few = before;
    few.rlim_cur = (rlim_t)4 << 30;
    assert_int_equal(setrlimit(RLIMIT_AS, &few), 0);
    const alnico_status_t status = data_open(&options, &data);
    assert_int_equal(setrlimit(RLIMIT_AS, &before), 0);
    assert_int_equal(status, ALNICO_ERROR_MEMORY);
    assert_string_equal(alnico_error_detail(), "data_open: batch 40000: no memory for 4 of 40000 "
                                               "images, 1875.0 MiB each");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(impossible_options_are_refused),
        cmocka_unit_test(damaged_files_are_named_with_what_is_wrong),
        cmocka_unit_test(missing_files_are_named),
        cmocka_unit_test(damaged_gzip_never_passes),
        cmocka_unit_test(a_missing_data_set_names_its_package),
        cmocka_unit_test(a_batch_too_large_for_memory_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
