/*
 * Reading images: decoding a folder of JPEG files against libjpeg-turbo's own rate, which decodes
 * the same files from memory as they are; and a packed file against the folder of small files that
 * it was made from, warm and cold (each file's pages given back by posix_fadvise). Files are written
 * to a folder of its own, which is removed.
 *
 *     input --threads 16 --jpeg 2000 --small 100000 --folder /var/tmp
 */
#include "tools/common/options.h"
#include "tools/common/program.h"
#include "train/base/clock.h"
#include "train/base/random.h"
#include "train/input/packed_file.h"

#include <errno.h>
#include <fcntl.h>
#include <ftw.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jpeglib.h>

enum { CLASSES = 10, MOST_PATH = 512, TRIALS = 3 };

struct options {
    int threads;
    size_t jpeg, small, size, side;
    const char *folder, *json;
};

struct images {
    char root[MOST_PATH];
    size_t count, height, width;
};

static void fail_errno(const char *what)
{
    program_fail("%s: %s", what, strerror(errno));
}

/* ---- Files ---- */

static void image_path(const struct images *images, size_t n, char out[MOST_PATH + 64])
{
    snprintf(out, MOST_PATH + 64, "%s/train/class%zu/%07zu.jpg", images->root, n % CLASSES, n);
}

static void folders_make(const struct images *images)
{
    char path[MOST_PATH + 64];
    snprintf(path, sizeof path, "%s/train", images->root);
    if (mkdir(images->root, 0700) != 0 || mkdir(path, 0700) != 0)
        fail_errno(path);
    for (int class = 0; class < CLASSES; class ++) {
        snprintf(path, sizeof path, "%s/train/class%d", images->root, class);
        if (mkdir(path, 0700) != 0)
            fail_errno(path);
    }
}

/* Waves in each colour and noise: about two bits a pixel at quality 85, as photographs. */
static void pixels_make(const struct images *images, size_t n, uint8_t *out)
{
    uint64_t state = random_stream(7, n);
    const double down = 0.02 + 0.2 * random_unit(&state), right = 0.02 + 0.2 * random_unit(&state);
    for (size_t y = 0; y < images->height; y++)
        for (size_t x = 0; x < images->width; x++) {
            const double wave = sin(down * (double)y) * cos(right * (double)x);
            const uint64_t noise = random_next(&state);
            for (int c = 0; c < 3; c++)
                *out++ = (uint8_t)(110 + 70 * wave + 10 * c + (double)(noise >> 8 * c & 31));
        }
}

static void jpeg_write(const struct images *images, size_t n, const uint8_t *pixels)
{
    struct jpeg_compress_struct jpeg;
    struct jpeg_error_mgr errors;
    char path[MOST_PATH + 64];
    image_path(images, n, path);
    FILE *file = fopen(path, "wb");
    if (!file)
        fail_errno(path);
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, file);
    jpeg.image_height = (JDIMENSION)images->height;
    jpeg.image_width = (JDIMENSION)images->width;
    jpeg.input_components = 3;
    jpeg.in_color_space = JCS_RGB;
    jpeg_set_defaults(&jpeg);
    jpeg_set_quality(&jpeg, 85, TRUE);
    jpeg_start_compress(&jpeg, TRUE);
    while (jpeg.next_scanline < jpeg.image_height) {
        JSAMPROW row = (JSAMPROW)(pixels + jpeg.next_scanline * images->width * 3);
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    if (fclose(file) != 0)
        fail_errno(path);
}

static void files_make(const struct images *images, int threads)
{
    folders_make(images);
#pragma omp parallel num_threads(threads)
    {
        uint8_t *pixels = malloc(images->height * images->width * 3);
        if (!pixels)
            program_fail("no memory for an image");
#pragma omp for schedule(dynamic)
        for (size_t n = 0; n < images->count; n++) {
            pixels_make(images, n, pixels);
            jpeg_write(images, n, pixels);
        }
        free(pixels);
    }
}

static int entry_remove(const char *path, const struct stat *about, int kind, struct FTW *where)
{
    (void)about;
    (void)kind;
    (void)where;
    return remove(path);
}

/* Writes a file's pages to the disk and gives them back. */
static void file_cool(const char *path)
{
    const int file = open(path, O_RDONLY);
    if (file < 0 || fdatasync(file) != 0 || posix_fadvise(file, 0, 0, POSIX_FADV_DONTNEED) != 0)
        fail_errno(path);
    close(file);
}

static void files_cool(const struct images *images)
{
    for (size_t n = 0; n < images->count; n++) {
        char path[MOST_PATH + 64];
        image_path(images, n, path);
        file_cool(path);
    }
}

/* ---- libjpeg-turbo alone ---- */

struct bytes {
    uint8_t *data;
    size_t length;
};

static struct bytes file_load(const char *path)
{
    struct stat about;
    FILE *file = fopen(path, "rb");
    if (!file || fstat(fileno(file), &about) != 0)
        fail_errno(path);
    struct bytes bytes = {malloc((size_t)about.st_size), (size_t)about.st_size};
    if (!bytes.data || fread(bytes.data, 1, bytes.length, file) != bytes.length)
        program_fail("%s: cannot be read", path);
    fclose(file);
    return bytes;
}

static void jpeg_decode(const struct bytes *bytes, uint8_t *out)
{
    struct jpeg_decompress_struct jpeg;
    struct jpeg_error_mgr errors;
    jpeg.err = jpeg_std_error(&errors);
    jpeg_create_decompress(&jpeg);
    jpeg_mem_src(&jpeg, bytes->data, bytes->length);
    jpeg_read_header(&jpeg, TRUE);
    jpeg_start_decompress(&jpeg);
    while (jpeg.output_scanline < jpeg.output_height) {
        JSAMPROW row = out + (size_t)jpeg.output_scanline * jpeg.output_width * 3;
        jpeg_read_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_decompress(&jpeg);
    jpeg_destroy_decompress(&jpeg);
}

/* Images a second of all threads, each of which decodes all files by itself. */
static double rate_alone(const struct images *images, int threads)
{
    struct bytes *files = calloc(images->count, sizeof *files);
    double sum = 0;
    for (size_t n = 0; n < images->count; n++) {
        char path[MOST_PATH + 64];
        image_path(images, n, path);
        files[n] = file_load(path);
    }
#pragma omp parallel num_threads(threads) reduction(+ : sum)
    {
        uint8_t *pixels = malloc(images->height * images->width * 3);
        const size_t share = images->count / (size_t)threads + 1;
        const size_t first = (size_t)omp_get_thread_num() * share;
        const double begin = clock_seconds();
        for (size_t i = 0; i < share; i++)
            jpeg_decode(&files[(first + i) % images->count], pixels);
        sum += (double)share / (clock_seconds() - begin);
        free(pixels);
    }
    for (size_t n = 0; n < images->count; n++)
        free(files[n].data);
    free(files);
    return sum;
}

/* ---- Sources ---- */

static struct source part_open(const char *text)
{
    const struct source_setup setup = {.train = true};
    struct source source;
    program_check(source_open(text, &setup, &source), text);
    return source;
}

static uint32_t *order_make(size_t count)
{
    uint32_t *order = malloc(count * sizeof *order);
    uint64_t state = 1;
    for (size_t i = 0; i < count; i++)
        order[i] = (uint32_t)i;
    for (size_t i = count; i > 1; i--) {
        const size_t j = random_next(&state) % i;
        const uint32_t other = order[j];
        order[j] = order[i - 1];
        order[i - 1] = other;
    }
    return order;
}

/* Images a second of one pass through a source, shuffled. */
static double rate_of(const struct source *source, int threads)
{
    const size_t count = source->info.images;
    uint32_t *order = order_make(count);
    const double begin = clock_seconds();
#pragma omp parallel num_threads(threads)
    {
        uint8_t *pixels = malloc(source_image(&source->info));
#pragma omp for schedule(dynamic, 16)
        for (size_t i = 0; i < count; i++) {
            int32_t label;
            program_check(source_read(source, order[i], NULL, pixels, &label), "reading");
        }
        free(pixels);
    }
    const double rate = (double)count / (clock_seconds() - begin);
    free(order);
    return rate;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values)
{
    qsort(values, TRIALS, sizeof *values, by_value);
    return values[TRIALS / 2];
}

static void print_rates(const char *what, const char *first, double a, const char *second, double b,
                        cJSON *json)
{
    printf("%-28s %-14s %10.0f images/s   %-8s %10.0f images/s   ratio %.2f\n", what, first, a,
           second, b, b / a);
    json_add(json_row(json), "what %s first %s first_rate %g second %s second_rate %g", what, first,
             a, second, b);
}

static void decode_measure(const struct options *o, struct images *images, cJSON *json)
{
    char text[MOST_PATH + 64];
    double alone[TRIALS], ours[TRIALS];
    files_make(images, o->threads);
    snprintf(text, sizeof text, "folder:%s@%zu", images->root, o->size);
    struct source source = part_open(text);
    for (int i = 0; i < TRIALS; i++) {
        alone[i] = rate_alone(images, o->threads);
        ours[i] = rate_of(&source, o->threads);
    }
    print_rates("decode, warm", "libjpeg-turbo", median(alone), "folder", median(ours), json);
    source_close(&source);
}

/* The packed file of the folder, and both read. */
static void packed_measure(const struct options *o, struct images *images, cJSON *json)
{
    char folder_text[MOST_PATH + 64], path[MOST_PATH + 64], packed_text[MOST_PATH + 80];
    files_make(images, o->threads);
    snprintf(folder_text, sizeof folder_text, "folder:%s", images->root);
    snprintf(path, sizeof path, "%s/packed", images->root);
    snprintf(packed_text, sizeof packed_text, "packed:%s", path);
    const struct pack_options pack_options = {
        .source = folder_text, .path = path, .threads = o->threads, .train_only = true};
    program_check(pack(&pack_options), "packing");
    struct source folder = part_open(folder_text), packed = part_open(packed_text);
    for (int cold = 0; cold < 2; cold++) {
        double slow[TRIALS], fast[TRIALS];
        for (int i = 0; i < TRIALS; i++) {
            if (cold)
                files_cool(images);
            slow[i] = rate_of(&folder, o->threads);
            if (cold) {
                source_close(&packed); /* pages that are mapped stay */
                file_cool(path);
                packed = part_open(packed_text);
            }
            fast[i] = rate_of(&packed, o->threads);
        }
        print_rates(cold ? "small files, cold" : "small files, warm", "folder", median(slow),
                    "packed", median(fast), json);
    }
    source_close(&folder);
    source_close(&packed);
}

static struct options options_parse(int argc, char **argv)
{
    static const struct option_row table[] = {
        {"threads", 't', "N", "that read (the cores)", OPTION_NUMBER,
         OPTION_FIELD(struct options, threads), .least = 1, .most = 1024},
        {"jpeg", 0, "N", "images of 500 x 375 to decode", OPTION_NUMBER, .initial = "500",
         OPTION_FIELD(struct options, jpeg), .least = 1, .most = 1000000},
        {"size", 0, "N", "to which they are resized and cut", OPTION_NUMBER, .initial = "224",
         OPTION_FIELD(struct options, size), .least = 1, .most = 300},
        {"small", 0, "N", "small files to read", OPTION_NUMBER, .initial = "5000",
         OPTION_FIELD(struct options, small), .least = 1, .most = 10000000},
        {"side", 0, "N", "pixels a side of these", OPTION_NUMBER, .initial = "32",
         OPTION_FIELD(struct options, side), .least = 8, .most = 1024},
        {"folder", 0, "DIR", "where to write files", OPTION_TEXT, .initial = "/var/tmp",
         OPTION_FIELD(struct options, folder)},
        {"json", 'j', "FILE", "also write the rates to FILE", OPTION_TEXT,
         OPTION_FIELD(struct options, json)},
        {0}};
    static const struct option_table program = {
        .options = table,
        .about = "Times reading images: a folder of JPEG files against libjpeg-turbo alone, and a "
                 "packed file against a folder of small files."};
    struct options options = {.threads = (int)sysconf(_SC_NPROCESSORS_ONLN)};
    options_read(&program, argc, argv, &options);
    return options;
}

int main(int argc, char **argv)
{
    program_start();
    const struct options o = options_parse(argc, argv);
    char root[MOST_PATH - 16];
    program_json_try(o.json);
    snprintf(root, sizeof root, "%s/alnico-input-XXXXXX", o.folder);
    if (!mkdtemp(root))
        fail_errno(root);
    struct images large = {.count = o.jpeg, .height = 375, .width = 500};
    struct images small = {.count = o.small, .height = o.side, .width = o.side};
    snprintf(large.root, sizeof large.root, "%s/large", root);
    snprintf(small.root, sizeof small.root, "%s/small", root);
    cJSON *json = json_add(cJSON_CreateObject(), "program %s date %s threads %d", "input",
                           program_date(), o.threads);
    cJSON_AddItemToObject(json, "machine", program_machine());
    cJSON *rates = cJSON_AddArrayToObject(json, "rates");
    decode_measure(&o, &large, rates);
    packed_measure(&o, &small, rates);
    program_json_write(o.json, json);
    if (nftw(root, entry_remove, 16, FTW_DEPTH | FTW_PHYS) != 0)
        fail_errno(root);
    return EXIT_SUCCESS;
}
