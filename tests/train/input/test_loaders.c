/* Loaders and the memory that they fill change nothing in the batches: any number of threads, from
 * any batch on, as levels or normalised. */
#include "train/input/data.h"

#include "tests/train/input/folder.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { BATCH = 7, BATCHES = 40, SIDE = 12, SYNTHETIC = SIDE * SIDE * 3 };

static const size_t loader_counts[] = {0, 1, 2, 3, 8, 32};
enum { COUNTS = sizeof loader_counts / sizeof *loader_counts };

static uint64_t seed;
static struct folder folder;

static int make_folder(void **unused)
{
    (void)unused;
    uint64_t state = seed;
    folder_describe(&folder);
    for (size_t i = 16; i < folder.files[TRAIN_IMAGES].length; i++) {
        state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
        folder.files[TRAIN_IMAGES].bytes[i] = (uint8_t)(state >> 56);
    }
    folder_write(&folder, "wb");
    return 0;
}

static int drop_folder(void **unused)
{
    (void)unused;
    folder_remove(&folder);
    return 0;
}

static struct data *open_data(struct data_options options)
{
    struct data *data;
    options.batch = BATCH;
    options.size = 1;
    options.seed = seed;
    if (data_open(&options, &data) != ALNICO_SUCCESS)
        fail_msg("%s", alnico_error_detail());
    return data;
}

static struct batch next(struct data *data)
{
    struct batch batch = {0};
    if (data_next(data, &batch) != ALNICO_SUCCESS)
        fail_msg("%s", alnico_error_detail());
    return batch;
}

/* Takes the batches of both; of the second `each` bytes an image. */
static void check_same(struct data *expected, struct data *data, size_t each)
{
    for (int i = 0; i < BATCHES; i++) {
        const struct batch a = next(expected), b = next(data);
        assert_int_equal(a.count, b.count);
        assert_memory_equal(a.images, b.images, a.count * each);
        assert_memory_equal(a.labels, b.labels, a.count * sizeof *a.labels);
    }
    data_close(expected);
    data_close(data);
}

static void any_loaders_give_the_same_batches(void **unused)
{
    (void)unused;
    for (size_t c = 0; c < COUNTS; c++)
        for (int train = 0; train < 2; train++)
            for (int levels = 0; levels < 2; levels++) {
                struct data_options options = {
                    .source = folder.source, .train = train, .levels = levels};
                const size_t each = PIXELS * (levels ? 1 : sizeof(float));
                struct data *alone = open_data(options);
                options.loaders = loader_counts[c];
                options.prefetch = 1 + c % 3;
                options.held = 1 + c % 2;
                options.device = c % 2 ? &device_cpu : NULL;
                check_same(alone, open_data(options), each);
            }
}

static void a_source_of_floats_stays_so(void **unused)
{
    (void)unused;
    for (size_t c = 0; c < COUNTS; c++)
        for (int train = 0; train < 2; train++) {
            struct data_options options = {.source = "synthetic:12x12x3", .train = train};
            struct data *alone = open_data(options);
            assert_null(data_levels(alone));
            options.loaders = loader_counts[c];
            options.prefetch = 2;
            options.levels = true;
            struct data *data = open_data(options);
            assert_null(data_levels(data));
            check_same(alone, data, SYNTHETIC * sizeof(float));
        }
}

/* As going on from a checkpoint does, in the middle of an epoch. */
static void it_begins_at_any_batch(void **unused)
{
    (void)unused;
    for (size_t first = 1; first < 20; first++) {
        struct data_options options = {.source = folder.source, .train = true};
        struct data *whole = open_data(options);
        options.first = first;
        options.loaders = loader_counts[first % COUNTS];
        options.prefetch = 3;
        for (size_t i = 0; i < first; i++)
            next(whole);
        check_same(whole, open_data(options), PIXELS * sizeof(float));
    }
}

/* To the bit. */
static void levels_are_what_is_normalised(void **unused)
{
    (void)unused;
    struct data_options options = {.source = folder.source, .train = true};
    struct data *normalised = open_data(options);
    options.levels = true;
    struct data *data = open_data(options);
    const float *values = data_levels(data);
    assert_null(data_levels(normalised));
    assert_non_null(values);
    for (int i = 0; i < BATCHES; i++) {
        const struct batch a = next(normalised), b = next(data);
        for (size_t j = 0; j < BATCH * PIXELS; j++)
            assert_memory_equal(&a.images[j], &values[b.levels[j]], sizeof(float));
    }
    data_close(normalised);
    data_close(data);
}

/* 8 batches of 7 images of 61, of which a multiple of 3 is left: 6. */
static void the_rest_of_an_epoch_is_left_out(void **unused)
{
    (void)unused;
    struct data_options options = {.source = folder.source, .train = true};
    struct data *all = open_data(options);
    options.multiple = 3;
    struct data *data = open_data(options);
    assert_int_equal(data_batches(all), 8);
    assert_int_equal(data_batches(data), 6);
    for (int i = 0; i < 5 * 6; i++) {
        const struct batch a = next(all), b = next(data);
        assert_memory_equal(a.images, b.images, BATCH * PIXELS * sizeof(float));
        for (int left = 0; i % 6 == 5 && left < 2; left++)
            next(all);
    }
    data_close(data);
    options.multiple = 9; /* more than there are: whoever asks says so */
    data = open_data(options);
    assert_int_equal(data_batches(data), 8);
    data_close(data);
    data_close(all);
}

/* What the caller keeps stays as it was while others are prepared. */
static void held_batches_stay(void **unused)
{
    (void)unused;
    enum { HELD = 3 };
    struct data_options options = {
        .source = folder.source, .train = true, .loaders = 3, .prefetch = 1, .held = HELD};
    struct data *data = open_data(options), *again = open_data(options);
    struct batch held[HELD];
    static float copies[HELD][BATCH * PIXELS];
    assert_int_equal(data_slots(&options), HELD + 1);
    for (int i = 0; i < BATCHES; i++) {
        held[i % HELD] = next(data);
        memcpy(copies[i % HELD], next(again).images, sizeof copies[0]);
        for (int j = 0; j < HELD && j <= i; j++)
            assert_memory_equal(held[j].images, copies[j], sizeof copies[0]);
    }
    data_close(data);
    data_close(again);
}

int main(void)
{
    const char *given = getenv("TEST_SEED");
    seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    printf("TEST_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_loaders_give_the_same_batches),
        cmocka_unit_test(a_source_of_floats_stays_so),
        cmocka_unit_test(it_begins_at_any_batch),
        cmocka_unit_test(levels_are_what_is_normalised),
        cmocka_unit_test(the_rest_of_an_epoch_is_left_out),
        cmocka_unit_test(held_batches_stay),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
