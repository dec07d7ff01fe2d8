/* The sources one by one: what their images and labels are, and which files they refuse. */
#include "train/input/augment.h"
#include "train/input/data.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

static uint64_t seed;

static struct source open_part(const char *text, bool train)
{
    const struct source_setup setup = {.seed = seed, .train = train};
    struct source source;
    if (source_open(text, &setup, &source) != ALNICO_SUCCESS)
        fail_msg("%s", alnico_error_detail());
    return source;
}

/* ---- CIFAR-10 ---- */

enum { CIFAR_SIDE = 32, CIFAR_PLANE = 1024, CIFAR_RECORD = 3073, CIFAR_FILES = 6, RECORDS = 3 };

static const char *const cifar_names[CIFAR_FILES] = {"data_batch_1.bin", "data_batch_2.bin",
                                                     "data_batch_3.bin", "data_batch_4.bin",
                                                     "data_batch_5.bin", "test_batch.bin"};

struct cifar_folder {
    char path[64], source[80];
};

/* Byte `at` of record `record` of a file. */
static uint8_t cifar_byte(int file, int record, int at)
{
    if (at == 0)
        return (uint8_t)((3 * file + record) % 10);
    return (uint8_t)(file * 37 + record * 11 + at * 7 + at / 251);
}

static void cifar_path(const struct cifar_folder *folder, int file, char *out, size_t bytes)
{
    snprintf(out, bytes, "%s/%s", folder->path, cifar_names[file]);
}

static void cifar_write(struct cifar_folder *folder)
{
    strcpy(folder->path, "/tmp/alnico-cifar-XXXXXX");
    assert_non_null(mkdtemp(folder->path));
    snprintf(folder->source, sizeof folder->source, "cifar10:%s", folder->path);
    for (int file = 0; file < CIFAR_FILES; file++) {
        char path[128];
        cifar_path(folder, file, path, sizeof path);
        FILE *out = fopen(path, "wb");
        assert_non_null(out);
        for (int i = 0; i < RECORDS * CIFAR_RECORD; i++)
            fputc(cifar_byte(file, i / CIFAR_RECORD, i % CIFAR_RECORD), out);
        fclose(out);
    }
}

static void cifar_remove(const struct cifar_folder *folder)
{
    for (int file = 0; file < CIFAR_FILES; file++) {
        char path[128];
        cifar_path(folder, file, path, sizeof path);
        unlink(path);
        rmdir(path);
    }
    assert_int_equal(rmdir(folder->path), 0);
}

static void cifar_image_is(const struct source *source, size_t index, int file, int record)
{
    uint8_t image[CIFAR_RECORD - 1];
    int32_t label;
    assert_int_equal(source_read(source, index, NULL, image, &label), ALNICO_SUCCESS);
    assert_int_equal(label, cifar_byte(file, record, 0));
    for (int pixel = 0; pixel < CIFAR_PLANE; pixel++)
        for (int colour = 0; colour < 3; colour++)
            assert_int_equal(image[pixel * 3 + colour],
                             cifar_byte(file, record, 1 + colour * CIFAR_PLANE + pixel));
}

static void cifar_images_are_those_of_its_files(void **state)
{
    (void)state;
    struct cifar_folder folder;
    double sum = 0, squares = 0;
    cifar_write(&folder);
    struct source train = open_part(folder.source, true), test = open_part(folder.source, false);
    assert_int_equal(train.info.images, 5 * RECORDS);
    assert_int_equal(test.info.images, RECORDS);
    for (int i = 0; i < 5 * RECORDS; i++)
        cifar_image_is(&train, (size_t)i, i / RECORDS, i % RECORDS);
    for (int i = 0; i < RECORDS; i++)
        cifar_image_is(&test, (size_t)i, 5, i);
    for (int i = 0; i < 5 * RECORDS; i++)
        for (int at = 1; at < CIFAR_RECORD; at++) {
            const double level = cifar_byte(i / RECORDS, i % RECORDS, at);
            sum += level;
            squares += level * level;
        }
    const double count = 5.0 * RECORDS * (CIFAR_RECORD - 1), mean = sum / count;
    const double deviation = sqrt(squares / count - mean * mean);
    for (int part = 0; part < 2; part++) {
        const struct data_info *info = part ? &test.info : &train.info;
        assert_true(info->height == 32 && info->width == 32 && info->channels == 3);
        assert_true(info->classes == 10 && info->labels == 1 && info->type == SOURCE_UINT8);
        assert_true(fabs(info->mean - mean) < 1e-9 && fabs(info->deviation - deviation) < 1e-9);
    }
    source_close(&train);
    source_close(&test);
    cifar_remove(&folder);
}

static void expect_refused(const char *text, bool train, const char *first, const char *second)
{
    const struct source_setup setup = {.train = train};
    struct source source;
    assert_int_equal(source_open(text, &setup, &source), ALNICO_ERROR_ARGUMENT);
    if (!strstr(alnico_error_detail(), first) || !strstr(alnico_error_detail(), second))
        fail_msg("'%s' lacks '%s' or '%s'", alnico_error_detail(), first, second);
    source_close(&source);
}

static void damaged_cifar_files_are_named(void **state)
{
    (void)state;
    for (int file = 0; file < CIFAR_FILES; file++) {
        struct cifar_folder folder;
        char path[128];
        cifar_write(&folder);
        cifar_path(&folder, file, path, sizeof path);
        FILE *out = fopen(path, "r+b");
        assert_non_null(out);
        fseek(out, 2 * CIFAR_RECORD, SEEK_SET);
        fputc(10, out);
        fclose(out);
        expect_refused(folder.source, file < 5, cifar_names[file], "label 2 is 10, not below");
        assert_int_equal(truncate(path, RECORDS * CIFAR_RECORD - 1), 0);
        expect_refused(folder.source, file < 5, cifar_names[file],
                       "9218 bytes, expected a multiple");
        assert_int_equal(truncate(path, 0), 0);
        expect_refused(folder.source, file < 5, cifar_names[file], "0 bytes, expected a multiple");
        assert_int_equal(unlink(path), 0);
        expect_refused(folder.source, file < 5, cifar_names[file], "No such file");
        assert_int_equal(mkdir(path, 0700), 0);
        expect_refused(folder.source, file < 5, cifar_names[file], "expected a regular file");
        cifar_remove(&folder);
    }
}

static void sources_with_classes_of_their_own_take_no_others(void **state)
{
    (void)state;
    static const char *const texts[] = {"cifar10:/tmp", "mesh:4", "step"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        const struct source_setup setup = {.classes = 7};
        struct source source;
        assert_int_equal(source_open(texts[i], &setup, &source), ALNICO_ERROR_ARGUMENT);
        assert_non_null(strstr(alnico_error_detail(), "7 classes, but it has its own"));
        source_close(&source);
    }
}

/* ---- Images that are made up ---- */

static void a_step_has_its_labels_on_both_sides(void **state)
{
    (void)state;
    enum { IMAGES = 2000 };
    struct source source = open_part("step", true), test = open_part("step", false);
    double sum = 0;
    int common = 0;
    assert_true(source.info.height == 1 && source.info.width == 1 && source.info.channels == 1);
    for (size_t i = 0; i < IMAGES; i++) {
        float x, other;
        int32_t label, unused;
        assert_int_equal(source_read(&source, i, NULL, &x, &label), ALNICO_SUCCESS);
        assert_int_equal(source_read(&test, i, NULL, &other, &unused), ALNICO_SUCCESS);
        assert_true(x >= 0 && x <= 1);
        assert_int_equal(label, x > 0.5F ? 1 : 0);
        common += x == other;
        sum += (double)x;
    }
    assert_true(fabs(sum / IMAGES - 0.5) < 0.05); /* 0.0065 is a deviation */
    assert_true(common < 5);
    source_close(&source);
    source_close(&test);
}

enum { MESH_SIDE = 24, MESH_PIXELS = MESH_SIDE * MESH_SIDE, MESH_CHANNELS = 18, MESH_IMAGES = 40 };

/* The class means of each channel, over training pixels, as a linear rule. */
static double mesh_rule(const struct source *source, double *weights)
{
    static float pixels[MESH_PIXELS][MESH_CHANNELS];
    static int32_t labels[MESH_PIXELS];
    double sums[2][MESH_CHANNELS] = {{0}}, counts[2] = {0};
    for (size_t i = 0; i < MESH_IMAGES; i++) {
        assert_int_equal(source_read(source, i, NULL, pixels, labels), ALNICO_SUCCESS);
        for (size_t p = 0; p < MESH_PIXELS; p++) {
            assert_true(labels[p] == 0 || labels[p] == 1);
            counts[labels[p]]++;
            for (size_t c = 0; c < MESH_CHANNELS; c++)
                sums[labels[p]][c] += (double)pixels[p][c];
        }
    }
    double middle = 0;
    for (size_t c = 0; c < MESH_CHANNELS; c++) {
        const double zero = sums[0][c] / counts[0], one = sums[1][c] / counts[1];
        weights[c] = one - zero;
        middle += weights[c] * (one + zero) / 2;
    }
    const double share = counts[1] / (counts[0] + counts[1]);
    assert_true(share > 0.2 && share < 0.8);
    return middle;
}

static void mesh_labels_follow_from_all_channels(void **state)
{
    (void)state;
    static float pixels[MESH_PIXELS][MESH_CHANNELS];
    static int32_t labels[MESH_PIXELS];
    struct source train = open_part("mesh:24", true), test = open_part("mesh:24", false);
    double weights[MESH_CHANNELS];
    int right = 0, alone = 0;
    assert_int_equal(train.info.labels, MESH_PIXELS);
    assert_int_equal(train.info.classes, 2);
    const double middle = mesh_rule(&train, weights);
    for (size_t i = 0; i < MESH_IMAGES; i++) {
        assert_int_equal(source_read(&test, i, NULL, pixels, labels), ALNICO_SUCCESS);
        for (size_t p = 0; p < MESH_PIXELS; p++) {
            double sum = 0;
            for (size_t c = 0; c < MESH_CHANNELS; c++)
                sum += weights[c] * (double)pixels[p][c];
            right += (sum > middle) == labels[p];
            alone += ((double)pixels[p][0] * weights[0] > 0) == labels[p];
        }
    }
    const double all = MESH_IMAGES * MESH_PIXELS;
    assert_true(right > 0.85 * all);
    assert_true(alone < 0.85 * all && alone < right);
    source_close(&train);
    source_close(&test);
}

static void images_are_the_same_from_every_read(void **state)
{
    (void)state;
    static const char *const texts[] = {"synthetic:8x8x2", "mesh:8", "step"};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) {
        float first[8 * 8 * 18] = {0}, again[8 * 8 * 18] = {0};
        int32_t labels[2][64] = {{0}};
        struct source a = open_part(texts[i], true), b = open_part(texts[i], true);
        source_read(&a, 5, NULL, first, labels[0]);
        source_read(&b, 6, NULL, again, labels[1]);
        assert_memory_not_equal(first, again, sizeof first);
        source_read(&b, 5, NULL, again, labels[1]);
        assert_memory_equal(first, again, sizeof first);
        assert_memory_equal(labels[0], labels[1], sizeof labels[0]);
        source_close(&a);
        source_close(&b);
    }
}

/* ---- Augmentation ---- */

static void augmentation_is_parsed_by_its_names(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned ways;
    } good[] = {{"default", AUGMENT_DEFAULT},
                {"none", AUGMENT_NONE},
                {"shift", AUGMENT_SHIFT},
                {"flip,crop", AUGMENT_FLIP | AUGMENT_CROP},
                {"crop,shift,flip", AUGMENT_SHIFT | AUGMENT_FLIP | AUGMENT_CROP}};
    static const char *const bad[] = {"",      "Shift",       "shift,", ",flip",     "none,flip",
                                      "flips", "shift,shift", "fli",    "flip,none", "flip crop"};
    unsigned ways;
    for (size_t i = 0; i < sizeof good / sizeof *good; i++) {
        assert_true(augment_parse(good[i].text, &ways));
        assert_int_equal(ways, good[i].ways);
    }
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        assert_false(augment_parse(bad[i], &ways));
}

/* How many of a batch of training images are as the source has them. */
static size_t unmoved(const char *text, unsigned augment)
{
    enum { BATCH = 200, SIDE = 8 };
    const struct data_options options = {
        .source = text, .batch = BATCH, .size = 1, .seed = seed, .train = true, .augment = augment};
    struct source source = open_part(text, true);
    struct data *data;
    struct batch batch;
    bool found[BATCH] = {false};
    size_t count = 0;
    assert_int_equal(data_open(&options, &data), ALNICO_SUCCESS);
    assert_int_equal(data_next(data, &batch), ALNICO_SUCCESS);
    for (size_t i = 0; i < source.info.images; i++) {
        float image[SIDE * SIDE];
        int32_t label;
        source_read(&source, i, NULL, image, &label);
        for (size_t j = 0; j < BATCH; j++)
            found[j] |= memcmp(image, batch.images + j * SIDE * SIDE, sizeof image) == 0;
    }
    for (size_t j = 0; j < BATCH; j++)
        count += found[j];
    data_close(data);
    source_close(&source);
    return count;
}

static void augmentation_can_be_chosen(void **state)
{
    (void)state;
    assert_int_equal(unmoved("synthetic:8x8x1", AUGMENT_NONE), 200);
    const size_t flipped = unmoved("synthetic:8x8x1", AUGMENT_FLIP); /* 100 expected */
    assert_true(flipped > 50 && flipped < 150);
    const size_t shifted = unmoved("synthetic:8x8x1", AUGMENT_SHIFT); /* 8 */
    assert_true(shifted > 0 && shifted < 35);
    assert_true(unmoved("synthetic:8x8x1", AUGMENT_DEFAULT) < 30); /* 4 */
}

static void augmentation_that_cannot_be_is_refused(void **state)
{
    (void)state;
    struct data_options options = {.batch = 1, .size = 1, .train = true};
    struct data *data;
    options.source = "mesh:4", options.augment = AUGMENT_FLIP;
    assert_int_equal(data_open(&options, &data), ALNICO_ERROR_ARGUMENT);
    assert_non_null(strstr(alnico_error_detail(), "'flip'"));
    assert_non_null(strstr(alnico_error_detail(), "a label a pixel"));
    options.source = "synthetic:4x4x1", options.augment = AUGMENT_SHIFT | AUGMENT_CROP;
    assert_int_equal(data_open(&options, &data), ALNICO_ERROR_ARGUMENT);
    assert_non_null(strstr(alnico_error_detail(), "'crop'"));
    assert_non_null(strstr(alnico_error_detail(), "nothing around"));
    options.augment = AUGMENT_NONE, options.source = "mesh:4";
    assert_int_equal(data_open(&options, &data), ALNICO_SUCCESS);
    data_close(data);
}

int main(void)
{
    const char *given = getenv("TEST_SEED");
    seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    printf("TEST_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cifar_images_are_those_of_its_files),
        cmocka_unit_test(damaged_cifar_files_are_named),
        cmocka_unit_test(sources_with_classes_of_their_own_take_no_others),
        cmocka_unit_test(a_step_has_its_labels_on_both_sides),
        cmocka_unit_test(mesh_labels_follow_from_all_channels),
        cmocka_unit_test(images_are_the_same_from_every_read),
        cmocka_unit_test(augmentation_is_parsed_by_its_names),
        cmocka_unit_test(augmentation_can_be_chosen),
        cmocka_unit_test(augmentation_that_cannot_be_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
