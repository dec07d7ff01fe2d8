/* Batches of images from a small IDX folder, plain and gzip, and from Debian's Fashion-MNIST where
 * it is installed: who gets which, how they are changed, and when they are prepared. */
#include "train/input/data.h"

#include "tests/train/input/folder.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static uint64_t seed;

static int make_folder(void **state)
{
    static struct folder folder;
    folder_describe(&folder);
    folder_write(&folder, "wb");
    *state = &folder;
    return 0;
}

static int drop_folder(void **state)
{
    folder_remove(*state);
    return 0;
}

static struct data *open_data(const char *source, size_t batch, int rank, int size, bool train)
{
    struct data_options options = {.source = source,
                                   .batch = batch,
                                   .rank = rank,
                                   .size = size,
                                   .seed = seed,
                                   .train = train,
                                   .augment = AUGMENT_SHIFT | AUGMENT_FLIP,
                                   .loaders = 1,
                                   .prefetch = 3};
    struct data *data = NULL;
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

/* Which image of the folder this is, by its center pixel. */
static int identify(const struct data *data, const struct batch *batch, size_t i)
{
    const struct data_info *info = data_info(data);
    double value = (double)batch->images[i * PIXELS + CENTER];
    double level = value * info->deviation + info->mean;
    int image = (int)lround(level / 4);
    assert_true(fabs(level - 4 * image) < 0.01);
    assert_int_equal(batch->labels[i], folder_label(image));
    return image;
}

static void testing_covers_every_image_once(void **state)
{
    const struct folder *folder = *state;
    static const size_t batches[] = {1, 2, 3, 7, 23, 50};
    for (int size = 1; size <= 4; size++)
        for (size_t b = 0; b < sizeof batches / sizeof *batches; b++) {
            int seen[TEST] = {0};
            size_t joined = batches[b] * (size_t)size;
            for (int rank = 0; rank < size; rank++) {
                struct data *data = open_data(folder->source, batches[b], rank, size, false);
                assert_int_equal(data_batches(data), (TEST + joined - 1) / joined);
                assert_int_equal(data_info(data)->images, TEST);
                for (size_t i = 0; i < data_batches(data); i++) {
                    struct batch batch = next(data);
                    assert_true(batch.count <= batches[b]);
                    assert_true(batch.count == batches[b] || i + 1 == data_batches(data));
                    for (size_t j = 0; j < batch.count; j++)
                        seen[identify(data, &batch, j)]++;
                }
                data_close(data);
            }
            for (int i = 0; i < TEST; i++)
                assert_int_equal(seen[i], 1);
        }
}

/* The images of one training epoch, in order. Returns how many. */
static int read_epoch(struct data *data, int *out)
{
    int count = 0;
    for (size_t i = 0; i < data_batches(data); i++) {
        struct batch batch = next(data);
        for (size_t j = 0; j < batch.count; j++)
            out[count++] = identify(data, &batch, j);
    }
    return count;
}

static void training_ranks_are_disjoint_and_whole(void **state)
{
    const struct folder *folder = *state;
    enum { BATCH = 5, SIZE = 3, EPOCHS = 4 };
    struct data *ranks[SIZE];
    for (int rank = 0; rank < SIZE; rank++) {
        ranks[rank] = open_data(folder->source, BATCH, rank, SIZE, true);
        assert_int_equal(data_batches(ranks[rank]), TRAIN / (BATCH * SIZE));
    }
    for (int epoch = 0; epoch < EPOCHS; epoch++) {
        int seen[TRAIN] = {0}, images[TRAIN];
        for (int rank = 0; rank < SIZE; rank++) {
            int count = read_epoch(ranks[rank], images);
            assert_int_equal(count, TRAIN / (BATCH * SIZE) * BATCH);
            for (int i = 0; i < count; i++)
                assert_int_equal(seen[images[i]]++, 0);
        }
    }
    for (int rank = 0; rank < SIZE; rank++)
        data_close(ranks[rank]);
}

static void ranks_together_read_what_one_rank_reads(void **state)
{
    const struct folder *folder = *state;
    enum { BATCH = 4, SIZE = 2, BATCHES = 20 };
    struct data *whole = open_data(folder->source, BATCH * SIZE, 0, 1, true), *ranks[SIZE];
    for (int rank = 0; rank < SIZE; rank++)
        ranks[rank] = open_data(folder->source, BATCH, rank, SIZE, true);
    for (int i = 0; i < BATCHES; i++) {
        struct batch all = next(whole);
        for (size_t rank = 0; rank < SIZE; rank++) {
            struct batch part = next(ranks[rank]);
            assert_memory_equal(part.images, all.images + rank * BATCH * PIXELS,
                                BATCH * PIXELS * sizeof(float));
            assert_memory_equal(part.labels, all.labels + rank * BATCH, BATCH * sizeof(int32_t));
        }
    }
    data_close(whole);
    for (int rank = 0; rank < SIZE; rank++)
        data_close(ranks[rank]);
}

static void the_seed_and_the_epoch_decide_the_order(void **state)
{
    const struct folder *folder = *state;
    int first[TRAIN], again[TRAIN], later[TRAIN], other[TRAIN], sorted = 0;
    struct data *a = open_data(folder->source, 1, 0, 1, true);
    struct data *b = open_data(folder->source, 1, 0, 1, true);
    seed++;
    struct data *c = open_data(folder->source, 1, 0, 1, true);
    seed--;
    assert_int_equal(read_epoch(a, first), TRAIN);
    read_epoch(b, again);
    read_epoch(a, later);
    read_epoch(c, other);
    assert_memory_equal(first, again, sizeof first);
    assert_memory_not_equal(first, later, sizeof first);
    assert_memory_not_equal(first, other, sizeof first);
    assert_memory_not_equal(later, other, sizeof later);
    for (int i = 0; i < TRAIN; i++)
        sorted += first[i] == i;
    assert_true(sorted < TRAIN / 2);
    data_close(a);
    data_close(b);
    data_close(c);
}

static void plain_and_gzip_files_read_alike(void **state)
{
    const struct folder *folder = *state;
    struct folder plain = *folder;
    folder_write(&plain, "wbT");
    for (int train = 0; train < 2; train++) {
        struct data *a = open_data(folder->source, TEST, 0, 1, train);
        struct data *b = open_data(plain.source, TEST, 0, 1, train);
        struct batch x = next(a), y = next(b);
        assert_int_equal(x.count, TEST);
        assert_memory_equal(x.images, y.images, TEST * PIXELS * sizeof(float));
        assert_memory_equal(x.labels, y.labels, TEST * sizeof(int32_t));
        data_close(a);
        data_close(b);
    }
    folder_remove(&plain);
}

static void both_parts_are_normalised_by_the_training_part(void **state)
{
    const struct folder *folder = *state;
    double sum = 0, squares = 0;
    for (int i = 0; i < TRAIN; i++) {
        sum += 4 * i;
        squares += 16.0 * i * i;
    }
    double mean = sum / TRAIN, deviation = sqrt(squares / TRAIN - mean * mean);
    for (int train = 0; train < 2; train++) {
        struct data *data = open_data(folder->source, 5, 0, 1, train);
        assert_true(fabs(data_info(data)->mean - mean) < 1e-12);
        assert_true(fabs(data_info(data)->deviation - deviation) < 1e-12);
        struct batch batch = next(data);
        int image = identify(data, &batch, 3);
        double expected = (4 * image - mean) / deviation;
        assert_true(fabs((double)batch.images[3 * PIXELS + CENTER] - expected) < 1e-6);
        data_close(data);
    }
}

static void images_of_one_level_stay_finite(void **state)
{
    (void)state;
    struct folder folder;
    folder_describe(&folder);
    memset(folder.files[TRAIN_IMAGES].bytes + 16, 9, TRAIN * PIXELS);
    folder_write(&folder, "wb");
    struct data *data = open_data(folder.source, TRAIN, 0, 1, true);
    struct batch batch = next(data);
    for (size_t i = 0; i < TRAIN * PIXELS; i++)
        assert_true(isfinite(batch.images[i]));
    data_close(data);
    folder_remove(&folder);
}

/* What an image of distinct levels becomes: shifted by (down, right), black outside, then
 * mirrored. */
static int moved_level(int y, int x, int down, int right, bool flip)
{
    int row = y + down, column = (flip ? WIDTH - 1 - x : x) + right;
    bool inside = row >= 0 && row < HEIGHT && column >= 0 && column < WIDTH;
    return inside ? 50 + row * WIDTH + column : 0;
}

static bool is_moved(const int *levels, int down, int right, bool flip)
{
    for (int i = 0; i < PIXELS; i++)
        if (levels[i] != moved_level(i / WIDTH, i % WIDTH, down, right, flip))
            return false;
    return true;
}

static void training_images_are_shifted_and_flipped(void **state)
{
    (void)state;
    enum { EPOCHS = 40, WAYS = 50 };
    struct folder folder;
    int seen[WAYS] = {0}, ways = 0;
    folder_describe(&folder);
    for (int i = 0; i < TRAIN * PIXELS; i++)
        folder.files[TRAIN_IMAGES].bytes[16 + i] = (uint8_t)(50 + i % PIXELS);
    folder_write(&folder, "wb");
    struct data *data = open_data(folder.source, TRAIN, 0, 1, true);
    for (int n = 0; n < EPOCHS; n++) {
        struct batch batch = next(data);
        for (int i = 0; i < TRAIN; i++) {
            int levels[PIXELS], way = 0;
            for (int j = 0; j < PIXELS; j++)
                levels[j] =
                    (int)lround((double)batch.images[i * PIXELS + j] * data_info(data)->deviation +
                                data_info(data)->mean);
            while (way < WAYS && !is_moved(levels, way / 10 - 2, way / 2 % 5 - 2, way % 2))
                way++;
            assert_true(way < WAYS);
            seen[way]++;
        }
    }
    for (int way = 0; way < WAYS; way++) /* 49 expected of each */
        ways += seen[way] > 10 && seen[way] < 120;
    assert_int_equal(ways, WAYS);
    data_close(data);
    folder_remove(&folder);
}

static void a_batch_stays_while_others_are_prepared(void **state)
{
    const struct folder *folder = *state;
    struct data *data = open_data(folder->source, 7, 0, 1, true);
    for (int i = 0; i < 10; i++) {
        float copy[7 * PIXELS];
        struct batch batch = next(data);
        memcpy(copy, batch.images, sizeof copy);
        usleep(2000);
        assert_memory_equal(copy, batch.images, sizeof copy);
    }
    data_close(data);
}

static double seconds_of(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static double processor_seconds(void)
{
    return seconds_of(CLOCK_PROCESS_CPUTIME_ID);
}

static double wall_seconds(void)
{
    return seconds_of(CLOCK_MONOTONIC);
}

/* Once at least: on a busy machine the thread may not have run in all that time. */
enum { TRIES = 10 };

static void the_thread_sleeps_when_enough_is_prepared(void **state)
{
    (void)state;
    struct data *data = open_data("synthetic", 16, 0, 1, true);
    const double begin = wall_seconds();
    for (int i = 0; i < 100; i++)
        next(data);
    const double each = (wall_seconds() - begin) / 100; /* what it takes to wait for a batch */
    bool slept = false;
    for (int i = 0; i < TRIES && !slept; i++) {
        usleep(100000);
        double start = processor_seconds();
        usleep(200000);
        slept = processor_seconds() - start < 0.02;
        start = wall_seconds();
        next(data);
        slept = slept && wall_seconds() - start < each / 2;
    }
    assert_true(slept);
    data_close(data);
}

static void closing_does_not_depend_on_reading(void **state)
{
    (void)state;
    data_close(NULL);
    for (int i = 0; i < 50; i++) {
        struct data *data = open_data("synthetic:8x8x2", 1 + (size_t)i, 0, 1, i % 2);
        for (int j = 0; j < i % 7; j++)
            next(data);
        data_close(data);
    }
}

/* A test batch far larger than the set takes no more memory than the set. */
static void a_huge_test_batch_is_the_whole_part(void **state)
{
    const struct folder *folder = *state;
    struct data *data = open_data(folder->source, SIZE_MAX / 2, 0, 4, false);
    assert_int_equal(data_batches(data), 1);
    assert_int_equal(next(data).count, TEST);
    data_close(data);
    data = open_data(folder->source, SIZE_MAX / 2, 3, 4, false);
    assert_int_equal(next(data).count, 0);
    data_close(data);
}

static void fashion_mnist_is_read(void **state)
{
    (void)state;
    struct data_options options = {.source = "fashion-mnist", .batch = 1000, .size = 1};
    struct data *data;
    if (access("/usr/share/datasets/fashion-mnist", R_OK) != 0)
        skip();
    assert_int_equal(data_open(&options, &data), ALNICO_SUCCESS);
    assert_int_equal(data_info(data)->images, 10000);
    assert_int_equal(data_info(data)->height, 28);
    assert_int_equal(data_info(data)->width, 28);
    assert_int_equal(data_info(data)->channels, 1);
    assert_true(fabs(data_info(data)->mean / 255 - 0.2860) < 5e-5);
    assert_true(fabs(data_info(data)->deviation / 255 - 0.3530) < 5e-5);
    int counts[10] = {0};
    for (size_t i = 0; i < data_batches(data); i++) {
        struct batch batch = next(data);
        for (size_t j = 0; j < batch.count; j++)
            counts[batch.labels[j]]++;
    }
    for (int label = 0; label < 10; label++)
        assert_int_equal(counts[label], 1000);
    data_close(data);
    options.train = true;
    assert_int_equal(data_open(&options, &data), ALNICO_SUCCESS);
    assert_int_equal(data_info(data)->images, 60000);
    data_close(data);
}

int main(void)
{
    const char *given = getenv("TEST_SEED");
    seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    printf("TEST_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(testing_covers_every_image_once),
        cmocka_unit_test(training_ranks_are_disjoint_and_whole),
        cmocka_unit_test(ranks_together_read_what_one_rank_reads),
        cmocka_unit_test(the_seed_and_the_epoch_decide_the_order),
        cmocka_unit_test(plain_and_gzip_files_read_alike),
        cmocka_unit_test(both_parts_are_normalised_by_the_training_part),
        cmocka_unit_test(images_of_one_level_stay_finite),
        cmocka_unit_test(training_images_are_shifted_and_flipped),
        cmocka_unit_test(a_batch_stays_while_others_are_prepared),
        cmocka_unit_test(the_thread_sleeps_when_enough_is_prepared),
        cmocka_unit_test(closing_does_not_depend_on_reading),
        cmocka_unit_test(a_huge_test_batch_is_the_whole_part),
        cmocka_unit_test(fashion_mnist_is_read),
    };
    return cmocka_run_group_tests(tests, make_folder, drop_folder);
}
