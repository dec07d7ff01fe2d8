/* The same images as IDX files, as a folder of PNG files and packed: the same pixels, the same
 * parameters after training, and what happens to files that are damaged, foreign, or change while
 * they are open. */
#include "tests/train/input/pictures.h"

#include "train/input/bad_images.h"
#include "train/input/data.h"
#include "train/input/packed_file.h"
#include "train/trainer/trainer.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <cmocka.h>

enum {
    SIDE = 12,
    PIXELS = SIDE * SIDE,
    CLASSES = 4,
    EACH = 13, /* training images of a class, and of a test 5 */
    TEST_EACH = 5,
    RECORD = 8 + 4 + PIXELS + 4
};

static const int each_of[PACKED_PARTS] = {EACH, TEST_EACH};
static uint64_t seed;
static char root[64], idx_text[80], folder_text[96], packed_path[96], packed_text[112];

/* Image `n` of a part is of class n / each. */
static void image_make(int part, int n, uint8_t out[PIXELS])
{
    uint64_t state = seed + (uint64_t)(1000 * part + n);
    for (int i = 0; i < PIXELS; i++) {
        state = state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        out[i] = (uint8_t)((state >> 60) + (uint64_t)(60 * (n / each_of[part])));
    }
}

static void idx_write(int part, const char *name, const uint8_t *header, size_t bytes, bool labels)
{
    char path[160];
    snprintf(path, sizeof path, "%s/%s", root, name);
    FILE *out = fopen(path, "wb");
    assert_non_null(out);
    fwrite(header, 1, bytes, out);
    for (int n = 0; n < CLASSES * each_of[part]; n++) {
        uint8_t pixels[PIXELS];
        image_make(part, n, pixels);
        if (labels)
            fputc(n / each_of[part], out);
        else
            fwrite(pixels, 1, PIXELS, out);
    }
    fclose(out);
}

static void idx_make(void)
{
    static const char *const names[PACKED_PARTS][2] = {
        {"train-images-idx3-ubyte", "train-labels-idx1-ubyte"},
        {"t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"}};
    for (int part = 0; part < PACKED_PARTS; part++) {
        const uint8_t count = (uint8_t)(CLASSES * each_of[part]);
        const uint8_t images[16] = {0, 0, 8, 3, 0, 0, 0, count, 0, 0, 0, SIDE, 0, 0, 0, SIDE};
        const uint8_t labels[8] = {0, 0, 8, 1, 0, 0, 0, count};
        idx_write(part, names[part][0], images, sizeof images, false);
        idx_write(part, names[part][1], labels, sizeof labels, true);
    }
}

static void folder_path(int part, int n, char out[160])
{
    snprintf(out, 160, "%s/png/%s/class%d/%03d.png", root, part ? "val" : "train",
             n / each_of[part], n);
}

static void folder_make(void)
{
    pictures_make("%s/png", root);
    for (int part = 0; part < PACKED_PARTS; part++) {
        pictures_make("%s/png/%s", root, part ? "val" : "train");
        for (int class = 0; class < CLASSES; class ++)
            pictures_make("%s/png/%s/class%d", root, part ? "val" : "train", class);
        for (int n = 0; n < CLASSES * each_of[part]; n++) {
            uint8_t pixels[PIXELS];
            char path[160];
            const struct picture picture = {PICTURE_GREY, SIDE, SIDE, 8, n % 2, pixels, NULL};
            image_make(part, n, pixels);
            folder_path(part, n, path);
            picture_png(path, &picture);
        }
    }
}

static void packed_make(const char *source, int threads)
{
    const struct pack_options options = {.source = source,
                                         .path = packed_path,
                                         .classes = source == idx_text ? CLASSES : 0,
                                         .threads = threads};
    if (pack(&options) != ALNICO_SUCCESS)
        fail_msg("%s", alnico_error_detail());
}

static int files_make(void **state)
{
    (void)state;
    pictures_folder(root);
    snprintf(idx_text, sizeof idx_text, "idx:%s", root);
    snprintf(folder_text, sizeof folder_text, "folder:%s/png", root);
    snprintf(packed_path, sizeof packed_path, "%s/packed", root);
    snprintf(packed_text, sizeof packed_text, "packed:%s", packed_path);
    idx_make();
    folder_make();
    packed_make(idx_text, 1);
    return 0;
}

static int files_remove(void **state)
{
    (void)state;
    pictures_remove(root);
    return 0;
}

static struct source open_part(const char *text, bool train)
{
    const struct source_setup setup = {.classes = text == idx_text ? CLASSES : 0, .train = train};
    struct source source;
    if (source_open(text, &setup, &source) != ALNICO_SUCCESS)
        fail_msg("%s", alnico_error_detail());
    return source;
}

/* ---- The same images ---- */

static void check_alike(const struct source *a, const struct source *b)
{
    assert_int_equal(a->info.images, b->info.images);
    assert_true(a->info.height == b->info.height && a->info.width == b->info.width);
    assert_true(a->info.channels == b->info.channels && a->info.classes == b->info.classes);
    assert_memory_equal(&a->info.mean, &b->info.mean, sizeof a->info.mean);
    assert_memory_equal(&a->info.deviation, &b->info.deviation, sizeof a->info.deviation);
    for (size_t i = 0; i < a->info.images; i++) {
        uint8_t x[PIXELS], y[PIXELS];
        int32_t label, other;
        assert_int_equal(source_read(a, i, NULL, x, &label), ALNICO_SUCCESS);
        assert_int_equal(source_read(b, i, NULL, y, &other), ALNICO_SUCCESS);
        assert_memory_equal(x, y, PIXELS);
        assert_int_equal(label, other);
    }
}

static void all_sources_read_alike(void **state)
{
    (void)state;
    for (int part = 0; part < PACKED_PARTS; part++)
        for (int way = 0; way < 4; way++) {
            if (way == 1)
                packed_make(idx_text, 3);
            if (way == 2)
                packed_make(folder_text, 2);
            struct source idx = open_part(idx_text, !part);
            struct source other = open_part(way == 3 ? folder_text : packed_text, !part);
            check_alike(&idx, &other);
            source_close(&idx);
            source_close(&other);
        }
}

static void floats_and_pixel_labels_are_packed_too(void **state)
{
    (void)state;
    static const char *const texts[] = {"synthetic:5x7x2", "mesh:9", "step"};
    char path[96], packed[112];
    snprintf(path, sizeof path, "%s/floats", root);
    snprintf(packed, sizeof packed, "packed:%s", path);
    for (size_t i = 1; i < sizeof texts / sizeof *texts; i++) {
        const struct pack_options options = {
            .source = texts[i], .path = path, .seed = 5, .threads = 2, .train_only = true};
        const struct source_setup setup = {.seed = 5, .train = true};
        static float x[9 * 9 * 18], y[9 * 9 * 18];
        static int32_t labels[2][81];
        struct source source, again;
        assert_int_equal(pack(&options), ALNICO_SUCCESS);
        assert_int_equal(source_open(texts[i], &setup, &source), ALNICO_SUCCESS);
        assert_int_equal(source_open(packed, &setup, &again), ALNICO_SUCCESS);
        assert_int_equal(again.info.type, SOURCE_FLOAT32);
        assert_int_equal(again.info.labels, source.info.labels);
        for (size_t n = 0; n < 50; n++) {
            source_read(&source, n * 20, NULL, x, labels[0]);
            assert_int_equal(source_read(&again, n * 20, NULL, y, labels[1]), ALNICO_SUCCESS);
            assert_memory_equal(x, y, source_image(&source.info));
            assert_memory_equal(labels[0], labels[1], source.info.labels * sizeof(int32_t));
        }
        source_close(&source);
        source_close(&again);
        const struct source_setup test = {.train = false};
        assert_int_equal(source_open(packed, &test, &again), ALNICO_ERROR_ARGUMENT);
        assert_non_null(strstr(alnico_error_detail(), "no test images"));
        source_close(&again);
    }
}

enum { STEPS = 19, STOP = 6 };

static size_t shuffle_block; /* of train */

static void stop_after(void *stop, const struct trainer_progress *progress)
{
    if (progress->step == STOP)
        atomic_store((atomic_bool *)stop, true);
}

/* With `save`: stopped in the middle. */
static struct trainer_report train(const char *data, const char *save, const char *load)
{
    const struct trainer_place place = {.host = NULL};
    atomic_bool stop = false;
    const struct trainer_options options = {.model = "cnn",
                                            .data = data,
                                            .kernels = "naive",
                                            .strategy = "allreduce",
                                            .batch = 4,
                                            .steps = STEPS,
                                            .classes = data == idx_text ? CLASSES : 0,
                                            .tests = 1000,
                                            .seed = 3,
                                            .progress = save ? stop_after : NULL,
                                            .context = &stop,
                                            .stop = &stop,
                                            .save = save,
                                            .load = load,
                                            .rule = BUCKETS_OF_COUNT,
                                            .buckets = 3,
                                            .compute = {.threads = 1, .deterministic = true},
                                            .wire = ALNICO_FLOAT32,
                                            .augment = AUGMENT_SHIFT | AUGMENT_FLIP,
                                            .shuffle_block = shuffle_block,
                                            .optimizer = optimizer_defaults(OPTIMIZER_SGD, 4)};
    struct trainer_report report;
    if (trainer_run(&options, &place, &report) != ALNICO_SUCCESS)
        fail_msg("%s", alnico_error_detail());
    return report;
}

/* An epoch is 13 steps. */
static void all_sources_train_alike(void **state)
{
    (void)state;
    packed_make(folder_text, 1);
    const struct trainer_report idx = train(idx_text, NULL, NULL);
    const struct trainer_report folder = train(folder_text, NULL, NULL);
    const struct trainer_report packed = train(packed_text, NULL, NULL);
    assert_true(idx.hash == folder.hash && idx.hash == packed.hash);
    assert_int_equal(idx.test.images, CLASSES * TEST_EACH);
    assert_memory_equal(&idx.test, &folder.test, sizeof idx.test);
    assert_memory_equal(&idx.test, &packed.test, sizeof idx.test);
}

/* Shuffled fully, and by blocks of 2 images. */
static void training_goes_on_in_the_middle_of_an_epoch(void **state)
{
    (void)state;
    const char *const texts[] = {folder_text, packed_text};
    uint64_t hashes[2][2];
    char saved[96];
    snprintf(saved, sizeof saved, "%s/checkpoint", root);
    for (size_t i = 0; i < 4; i++) {
        shuffle_block = i / 2 * 2;
        hashes[i / 2][i % 2] = train(texts[i % 2], NULL, NULL).hash;
        assert_int_equal(train(texts[i % 2], saved, NULL).steps, STOP);
        assert_true(train(texts[i % 2], NULL, saved).hash == hashes[i / 2][i % 2]);
    }
    assert_true(hashes[0][0] == hashes[0][1] && hashes[1][0] == hashes[1][1]);
    assert_true(hashes[0][0] != hashes[1][0]);
    shuffle_block = 0;
}

/* ---- Packed files that are wrong ---- */

static void expect_refused(const char *text, bool train, const char *name, const char *what)
{
    const struct source_setup setup = {.train = train};
    struct source source;
    if (source_open(text, &setup, &source) == ALNICO_SUCCESS)
        fail_msg("%s: opened, expected '%s'", text, what);
    if (!strstr(alnico_error_detail(), name) || !strstr(alnico_error_detail(), what))
        fail_msg("'%s' lacks '%s' or '%s'", alnico_error_detail(), name, what);
    source_close(&source);
}

static void expect_unread(const struct source *source, size_t index, const char *name,
                          const char *what)
{
    uint8_t pixels[64 * 64 * 3];
    int32_t label;
    if (source_read(source, index, NULL, pixels, &label) == ALNICO_SUCCESS)
        fail_msg("image %zu was read, expected '%s'", index, what);
    if (!strstr(alnico_error_detail(), name) || !strstr(alnico_error_detail(), what))
        fail_msg("'%s' lacks '%s' or '%s'", alnico_error_detail(), name, what);
}

/* Flips bits of a byte of the packed file. */
static void packed_damage(size_t at, uint8_t bits)
{
    const int file = open(packed_path, O_RDWR);
    uint8_t byte;
    assert_int_equal(pread(file, &byte, 1, (off_t)at), 1);
    byte ^= bits;
    assert_int_equal(pwrite(file, &byte, 1, (off_t)at), 1);
    close(file);
}

static void foreign_and_damaged_headers_are_refused(void **state)
{
    (void)state;
    packed_make(idx_text, 1);
    for (size_t at = 0; at < sizeof(struct packed_header); at++) {
        packed_damage(at, 4);
        expect_refused(packed_text, true, packed_path,
                       at < 8 ? "not a packed file"
                       : at >= offsetof(struct packed_header, version) &&
                               at < offsetof(struct packed_header, checksum)
                           ? "version"
                           : "header damaged");
        packed_damage(at, 4);
    }
    struct packed_header header;
    FILE *file = fopen(packed_path, "r+b");
    assert_int_equal(fread(&header, sizeof header, 1, file), 1);
    header.order = __builtin_bswap32(header.order);
    rewind(file);
    fwrite(&header, sizeof header, 1, file);
    fclose(file);
    expect_refused(packed_text, true, packed_path, "the other endianness");
}

static void packed_files_of_another_length_are_refused(void **state)
{
    (void)state;
    packed_make(idx_text, 1);
    const off_t whole = PACKED_HEADER_BYTES + CLASSES * (EACH + TEST_EACH) * RECORD;
    const struct {
        off_t bytes;
        const char *what;
    } cases[] = {{whole + 1, "longer"},
                 {whole + RECORD, "longer"},
                 {whole - 1, "cut"},
                 {whole - RECORD, "cut"},
                 {PACKED_HEADER_BYTES, "cut"},
                 {PACKED_HEADER_BYTES - 1, "cut"},
                 {100, "cut"},
                 {0, "cut"}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (i)
            packed_make(idx_text, 1);
        assert_int_equal(truncate(packed_path, cases[i].bytes), 0);
        expect_refused(packed_text, true, packed_path, cases[i].what);
    }
    assert_int_equal(unlink(packed_path), 0);
    expect_refused(packed_text, true, packed_path, "No such file");
    packed_make(idx_text, 1);
}

static void damaged_records_are_named(void **state)
{
    (void)state;
    packed_make(idx_text, 1);
    struct source train = open_part(packed_text, true), test = open_part(packed_text, false);
    for (size_t at = 0; at < RECORD - 4; at++) { /* but for the zeros behind it */
        uint8_t pixels[PIXELS];
        int32_t label;
        const size_t begin = PACKED_HEADER_BYTES + (CLASSES * EACH + 2) * RECORD;
        if (at >= 4 && at < 8)
            continue;
        packed_damage(begin + at, 0x10);
        expect_unread(&test, 2, packed_path, "record 54, at byte 12736, is damaged");
        assert_int_equal(source_read(&test, 1, NULL, pixels, &label), ALNICO_SUCCESS);
        assert_int_equal(source_read(&test, 3, NULL, pixels, &label), ALNICO_SUCCESS);
        packed_damage(begin + at, 0x10);
    }
    assert_int_equal(truncate(packed_path, PACKED_HEADER_BYTES + RECORD), 0);
    expect_unread(&train, 0, packed_path, "its length changed");
    source_close(&train);
    source_close(&test);
    packed_make(idx_text, 1);
}

static void packed_images_are_cut(void **state)
{
    (void)state;
    char text[128];
    uint8_t whole[PIXELS], part[5 * 5];
    const struct source_crop crop = {1, 0};
    int32_t label;
    packed_make(idx_text, 1);
    snprintf(text, sizeof text, "%s@5", packed_text);
    struct source source = open_part(text, true), stored = open_part(packed_text, true);
    assert_int_equal(source_read(&stored, 20, NULL, whole, &label), ALNICO_SUCCESS);
    assert_int_equal(source_read(&source, 20, NULL, part, &label), ALNICO_SUCCESS);
    for (size_t i = 0; i < 25; i++) /* (12 - 5) / 2 rounded up */
        assert_int_equal(part[i], whole[(4 + i / 5) * SIDE + 4 + i % 5]);
    assert_int_equal(source_read(&source, 20, &crop, part, &label), ALNICO_SUCCESS);
    for (size_t i = 0; i < 25; i++)
        assert_int_equal(part[i], whole[(7 + i / 5) * SIDE + i % 5]);
    assert_true(source.info.augment & AUGMENT_CROP);
    source_close(&source);
    source_close(&stored);
    snprintf(text, sizeof text, "%s@13", packed_text);
    expect_refused(text, true, packed_path, "of which 13 x 13 are to be cut");
}

/* ---- Folders that are wrong ---- */

static void write_text(const char *path, const char *text)
{
    FILE *file = fopen(path, "wb");
    assert_non_null(file);
    fputs(text, file);
    fclose(file);
}

static void folders_that_are_wrong_are_named(void **state)
{
    (void)state;
    char text[160], path[160];
    snprintf(text, sizeof text, "folder:%s/wrong", root);
    expect_refused(text, true, "/wrong/train", "No such file");
    pictures_make("%s/wrong", root);
    pictures_make("%s/wrong/train", root);
    expect_refused(text, true, "/wrong/train", "no class folder");
    pictures_make("%s/wrong/train/a", root);
    expect_refused(text, true, "/wrong/train/a", "no image in it");
    snprintf(path, sizeof path, "%s/wrong/train/a/notes.txt", root);
    write_text(path, "x");
    expect_refused(text, true, "/wrong/train/a", "no image in it");
    snprintf(path, sizeof path, "%s/wrong/train/a/one.JPG", root);
    write_text(path, "x");
    expect_refused(text, true, "/wrong/train/a/one.JPG", "neither JPEG nor PNG");
    const uint8_t pixels[4 * 6 * 3] = {1, 2, 3};
    const struct picture picture = {PICTURE_COLOUR, 4, 6, 8, 0, pixels, NULL};
    picture_jpeg(path, &picture, 90);
    expect_refused(text, false, "/wrong", "neither test nor val");
    pictures_make("%s/wrong/test", root);
    pictures_make("%s/wrong/test/b", root);
    snprintf(path, sizeof path, "%s/wrong/test/b/two.png", root);
    picture_png(path, &picture);
    expect_refused(text, false, "/wrong/test/b", "no such class in");
}

static void folders_may_change_while_they_are_open(void **state)
{
    (void)state;
    static const uint8_t pixels[SIDE * SIDE * 3];
    char path[160], other[200];
    struct picture picture = {PICTURE_GREY, SIDE, SIDE - 1, 8, 0, pixels, NULL};
    struct source source = open_part(folder_text, true);
    folder_path(0, 7, path);
    snprintf(other, sizeof other, "%s/kept", root);
    assert_int_equal(rename(path, other), 0);
    expect_unread(&source, 7, path, "No such file");
    picture_png(path, &picture);
    expect_unread(&source, 7, path, "12 x 11 pixels, but others 12 x 12");
    picture.kind = PICTURE_COLOUR, picture.width = SIDE;
    picture_png(path, &picture);
    expect_unread(&source, 7, path, "in colour");
    picture.kind = PICTURE_GREY;
    picture_png(path, &picture);
    assert_int_equal(truncate(path, 60), 0);
    expect_unread(&source, 7, path, "damaged PNG");
    assert_int_equal(rename(other, path), 0);
    source_close(&source);
}

static void a_damaged_image_ends_training(void **state)
{
    (void)state;
    const struct trainer_place place = {.host = NULL};
    struct trainer_options options = {.model = "cnn",
                                      .data = packed_text,
                                      .kernels = "naive",
                                      .strategy = "allreduce",
                                      .batch = 4,
                                      .epochs = 1,
                                      .rule = BUCKETS_OF_COUNT,
                                      .buckets = 1,
                                      .compute = {.threads = 1},
                                      .wire = ALNICO_FLOAT32,
                                      .optimizer = optimizer_defaults(OPTIMIZER_SGD, 4)};
    struct trainer_report report;
    packed_make(idx_text, 1);
    packed_damage(PACKED_HEADER_BYTES + 30 * RECORD + 20, 1);
    assert_int_equal(trainer_run(&options, &place, &report), ALNICO_ERROR_ARGUMENT);
    assert_non_null(strstr(alnico_error_detail(), packed_path));
    assert_non_null(strstr(alnico_error_detail(), "record 30"));
    packed_make(idx_text, 1);
}

/* Trains with so many images that may be bad; the status. */
static alnico_status_t train_skipping(const char *data, size_t skip, struct trainer_report *report)
{
    const struct trainer_place place = {.host = NULL};
    const struct trainer_options options = {.model = "cnn",
                                            .data = data,
                                            .kernels = "naive",
                                            .strategy = "allreduce",
                                            .batch = 4,
                                            .epochs = 3,
                                            .tests = 1000,
                                            .skip_bad = skip,
                                            .rule = BUCKETS_OF_COUNT,
                                            .buckets = 1,
                                            .compute = {.threads = 1, .deterministic = true},
                                            .wire = ALNICO_FLOAT32,
                                            .optimizer = optimizer_defaults(OPTIMIZER_SGD, 4)};
    return trainer_run(&options, &place, report);
}

static void images_that_are_bad_can_be_left_out(void **state)
{
    (void)state;
    struct trainer_report report, again;
    packed_make(idx_text, 1);
    assert_int_equal(train_skipping(packed_text, 2, &report), ALNICO_SUCCESS);
    assert_int_equal(report.skipped, 0);
    const int bad[] = {30, 31, CLASSES * EACH + 3}; /* the last is of the test */
    for (int i = 0; i < 3; i++)
        packed_damage((size_t)(PACKED_HEADER_BYTES + bad[i] * RECORD + 20), 1);
    assert_int_equal(train_skipping(packed_text, 1, &report), ALNICO_ERROR_ARGUMENT);
    assert_non_null(strstr(alnico_error_detail(), packed_path));
    assert_non_null(strstr(alnico_error_detail(), "record 3"));
    assert_int_equal(train_skipping(packed_text, 2, &report), ALNICO_SUCCESS);
    assert_int_equal(report.skipped, 3);
    assert_int_equal(report.test.images, CLASSES * TEST_EACH);
    assert_int_equal(train_skipping(packed_text, 5, &again), ALNICO_SUCCESS);
    assert_true(again.hash == report.hash);
    packed_make(idx_text, 1);
}

/* The next image that can be read takes the place of one that cannot. */
static void another_image_takes_the_place(void **state)
{
    (void)state;
    packed_make(idx_text, 1);
    packed_damage(PACKED_HEADER_BYTES + 20, 1);
    packed_damage(PACKED_HEADER_BYTES + (CLASSES * EACH - 1) * RECORD + 20, 1);
    struct source idx = open_part(idx_text, true), source = open_part(packed_text, true);
    struct bad_images *bad;
    uint8_t expected[PIXELS], pixels[PIXELS];
    int32_t label;
    assert_int_equal(source_read(&idx, 1, NULL, expected, &label), ALNICO_SUCCESS);
    assert_int_equal(bad_images_create(&source, 2, &bad), ALNICO_SUCCESS);
    for (int i = 0; i < 4; i++) {
        const size_t index = i % 2 ? CLASSES * EACH - 1 : 0;
        assert_int_equal(bad_images_read(bad, index, NULL, pixels, &label), ALNICO_SUCCESS);
        assert_memory_equal(pixels, expected, PIXELS);
        assert_int_equal(bad_images_count(bad), i ? 2 : 1);
    }
    bad_images_destroy(bad);
    source_close(&idx);
    source_close(&source);
    packed_make(idx_text, 1);
}

static void packing_names_what_it_cannot_read_or_write(void **state)
{
    (void)state;
    char path[160], kept[200], out[100];
    struct pack_options options = {.source = folder_text, .path = out, .threads = 3};
    snprintf(out, sizeof out, "%s/none/packed", root);
    assert_int_equal(pack(&options), ALNICO_ERROR_SYSTEM);
    assert_non_null(strstr(alnico_error_detail(), "/none/packed.part: making it: No such file"));
    snprintf(out, sizeof out, "%s/second", root);
    folder_path(0, 30, path);
    snprintf(kept, sizeof kept, "%s/kept", root);
    assert_int_equal(rename(path, kept), 0);
    write_text(path, "\x89PNG");
    assert_int_equal(pack(&options), ALNICO_ERROR_ARGUMENT);
    if (!strstr(alnico_error_detail(), path))
        fail_msg("'%s' lacks '%s'", alnico_error_detail(), path);
    assert_int_equal(access(out, F_OK), -1);
    snprintf(out, sizeof out, "%s/second.part", root);
    assert_int_equal(access(out, F_OK), -1);
    assert_int_equal(rename(kept, path), 0);
}

static void places_are_parsed(void **state)
{
    (void)state;
    static const char *const good[] = {"folder:a",   "folder:a@224",  "folder:a@224+32",
                                       "folder:a@b", "folder:a@224+", "packed:a",
                                       "packed:a@7", "packed:a@7x"};
    static const char *const bad[] = {"folder", "folder:", "folder:@224",
                                      "packed", "packed:", "packed:a@7+1"};
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (!source_find(good[i]))
            fail_msg("%s", good[i]);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (source_find(bad[i]))
            fail_msg("%s", bad[i]);
}

int main(void)
{
    const char *given = getenv("TEST_SEED");
    seed = given ? strtoull(given, NULL, 10) : (uint64_t)time(NULL);
    printf("TEST_SEED=%llu\n", (unsigned long long)seed);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_sources_read_alike),
        cmocka_unit_test(floats_and_pixel_labels_are_packed_too),
        cmocka_unit_test(all_sources_train_alike),
        cmocka_unit_test(training_goes_on_in_the_middle_of_an_epoch),
        cmocka_unit_test(foreign_and_damaged_headers_are_refused),
        cmocka_unit_test(packed_files_of_another_length_are_refused),
        cmocka_unit_test(damaged_records_are_named),
        cmocka_unit_test(packed_images_are_cut),
        cmocka_unit_test(folders_that_are_wrong_are_named),
        cmocka_unit_test(folders_may_change_while_they_are_open),
        cmocka_unit_test(a_damaged_image_ends_training),
        cmocka_unit_test(images_that_are_bad_can_be_left_out),
        cmocka_unit_test(another_image_takes_the_place),
        cmocka_unit_test(packing_names_what_it_cannot_read_or_write),
        cmocka_unit_test(places_are_parsed),
    };
    return cmocka_run_group_tests(tests, files_make, files_remove);
}
