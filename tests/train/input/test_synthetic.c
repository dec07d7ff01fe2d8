/* Synthetic images: the same for the same seed, different otherwise, and worth training on. */
#include "train/input/data.h"
#include "train/input/source.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

static uint64_t seed;

static struct data *open_data(const char *source, size_t batch, int rank, int size, bool train)
{
    struct data_options options = {
        .source = source, .batch = batch, .rank = rank, .size = size, .seed = seed, .train = train};
    struct data *data = NULL;
    if (data_open(&options, &data) != ALNICO_SUCCESS)
        fail_msg("%s", alnico_error_detail());
    return data;
}

static struct source open_part(const char *text, bool train)
{
    const struct source_setup setup = {.seed = seed, .train = train};
    struct source source;
    if (source_open(text, &setup, &source) != ALNICO_SUCCESS)
        fail_msg("%s", alnico_error_detail());
    return source;
}

static struct batch next(struct data *data)
{
    struct batch batch = {0};
    if (data_next(data, &batch) != ALNICO_SUCCESS)
        fail_msg("%s", alnico_error_detail());
    return batch;
}

static void synthetic_images_follow_the_seed(void **state)
{
    (void)state;
    enum { BATCH = 64, BYTES = BATCH * 12 * 10 * 3 * sizeof(float) };
    struct data *a = open_data("synthetic:12x10x3", BATCH, 0, 1, true);
    struct data *b = open_data("synthetic:12x10x3", BATCH, 0, 1, true);
    struct data *test = open_data("synthetic:12x10x3", BATCH, 0, 1, false);
    seed++;
    struct data *c = open_data("synthetic:12x10x3", BATCH, 0, 1, true);
    seed--;
    assert_int_equal(data_info(a)->height, 12);
    assert_int_equal(data_info(a)->width, 10);
    assert_int_equal(data_info(a)->channels, 3);
    assert_int_equal(data_info(a)->classes, 10);
    struct batch x = next(a), y = next(b), z = next(c), t = next(test);
    assert_memory_equal(x.images, y.images, BYTES);
    assert_memory_equal(x.labels, y.labels, BATCH * sizeof(int32_t));
    assert_memory_not_equal(x.images, z.images, BYTES);
    assert_memory_not_equal(x.images, t.images, BYTES);
    data_close(a);
    data_close(b);
    data_close(c);
    data_close(test);
}

enum { HIGH = 6, WIDE = 5, COLOURS = 3, IMAGE = HIGH * WIDE * COLOURS, SHIFTS = 5 };

/* Whether `out` is `in` shifted and mirrored in this way, black outside, its colours in order. */
static bool is_moved(const float *out, const float *in, int down, int right, bool flip)
{
    for (int i = 0; i < IMAGE; i++) {
        const int colour = i % COLOURS, x = i / COLOURS % WIDE, y = i / COLOURS / WIDE;
        const int row = y + down, column = (flip ? WIDE - 1 - x : x) + right;
        const bool inside = row >= 0 && row < HIGH && column >= 0 && column < WIDE;
        if (out[i] != (inside ? in[(row * WIDE + column) * COLOURS + colour] : 0))
            return false;
    }
    return true;
}

static bool comes_from(const float *out, const float *in)
{
    for (int way = 0; way < 2 * SHIFTS * SHIFTS; way++)
        if (is_moved(out, in, way / 2 / SHIFTS - 2, way / 2 % SHIFTS - 2, way % 2))
            return true;
    return false;
}

static void moved_images_keep_their_colours(void **state)
{
    (void)state;
    enum { BATCH = 16 };
    const struct data_options options = {
        .source = "synthetic:6x5x3", .batch = BATCH, .size = 1, .seed = seed, .train = true};
    struct source source = open_part(options.source, true);
    float image[IMAGE];
    bool found[BATCH] = {false};
    struct data *data = open_data(options.source, BATCH, 0, 1, true);
    struct batch batch = next(data);
    for (size_t n = 0; n < source.info.images; n++) {
        int32_t label;
        assert_int_equal(source_read(&source, n, NULL, image, &label), ALNICO_SUCCESS);
        for (int i = 0; i < BATCH; i++)
            if (!found[i] && batch.labels[i] == label)
                found[i] = comes_from(batch.images + (size_t)i * IMAGE, image);
    }
    for (int i = 0; i < BATCH; i++)
        assert_true(found[i]);
    data_close(data);
    source_close(&source);
}

/* The class means of some training images classify test images of another rank's share. */
static void synthetic_images_can_be_learnt(void **state)
{
    (void)state;
    enum { SIDE = 16, SIZE = SIDE * SIDE, BATCH = 2000, CLASSES = 10 };
    static double means[CLASSES][SIZE];
    struct data *train = open_data("synthetic:16x16x1", BATCH, 0, 1, true);
    struct data *test = open_data("synthetic:16x16x1", BATCH, 1, 2, false);
    struct batch batch = next(train);
    double sum = 0, squares = 0;
    int right = 0, counts[CLASSES] = {0};
    memset(means, 0, sizeof means);
    for (size_t i = 0; i < BATCH; i++)
        counts[batch.labels[i]]++;
    for (size_t i = 0; i < BATCH * SIZE; i++) {
        double value = (double)batch.images[i];
        means[batch.labels[i / SIZE]][i % SIZE] += value / counts[batch.labels[i / SIZE]];
        sum += value;
        squares += value * value;
    }
    assert_true(fabs(sum / (BATCH * SIZE)) < 0.1);
    assert_true(fabs(squares / (BATCH * SIZE) - 1) < 0.2);
    batch = next(test);
    for (size_t i = 0; i < BATCH; i++) {
        double best = INFINITY;
        int guess = -1;
        for (int label = 0; label < CLASSES; label++) {
            double distance = 0;
            for (size_t j = 0; j < SIZE; j++)
                distance += pow((double)batch.images[i * SIZE + j] - means[label][j], 2);
            guess = distance < best ? label : guess;
            best = fmin(distance, best);
        }
        right += guess == batch.labels[i];
    }
    assert_true(right > BATCH * 9 / 10);
    data_close(train);
    data_close(test);
}

/* No training image turns up in the test part, where the noise would be known by heart. */
static void the_parts_have_no_image_in_common(void **state)
{
    (void)state;
    enum { IMAGES = 300, SIZE = 4 * 4 };
    static float train_images[IMAGES][SIZE], test_images[IMAGES][SIZE];
    struct source train = open_part("synthetic:4x4x1", true);
    struct source test = open_part("synthetic:4x4x1", false);
    for (size_t i = 0; i < IMAGES; i++) {
        int32_t label;
        assert_int_equal(source_read(&train, i, NULL, train_images[i], &label), ALNICO_SUCCESS);
        assert_int_equal(source_read(&test, i, NULL, test_images[i], &label), ALNICO_SUCCESS);
    }
    int common = 0;
    for (size_t i = 0; i < IMAGES; i++)
        for (size_t j = 0; j < IMAGES; j++)
            common += memcmp(train_images[i], test_images[j], sizeof *train_images) == 0;
    assert_true(common < 10); /* the noise starts at one of 65536 places: 0.14 by chance */
    source_close(&train);
    source_close(&test);
}

int main(void)
{
    const char *given = getenv("TEST_SEED");
    seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    printf("TEST_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(synthetic_images_follow_the_seed),
        cmocka_unit_test(moved_images_keep_their_colours),
        cmocka_unit_test(synthetic_images_can_be_learnt),
        cmocka_unit_test(the_parts_have_no_image_in_common),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
