/*
 * Reading images: decoding a folder of JPEG files against libjpeg-turbo's own rate, which decodes
 * the same files from memory as they are; and a packed file against the folder of small files that
 * it was made from, warm and cold (each file's pages given back by posix_fadvise). Files are written
 * to a folder of its own, which is removed.
 *
 *     input --threads 16 --jpeg 2000 --small 100000 --folder /var/tmp
 */
#include "benchmarks/jpeg_files.h"
#include "tools/common/options.h"
#include "tools/common/program.h"
#include "train/base/clock.h"
#include "train/base/random.h"
#include "train/input/packed_file.h"

#include <omp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <jpeglib.h>

enum { TRIALS = 3 };

struct options {
    int threads;
    size_t jpeg, small, size, side;
    const char *folder, *json;
};

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
static double rate_alone(const struct jpeg_files *images, int threads)
{
    struct bytes *files = calloc(images->count, sizeof *files);
    double sum = 0;
    for (size_t n = 0; n < images->count; n++) {
        char path[JPEG_FILES_PATH];
        jpeg_files_path(images, n, path);
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

static void decode_measure(const struct options *o, struct jpeg_files *images, cJSON *json)
{
    char text[JPEG_FILES_PATH];
    double alone[TRIALS], ours[TRIALS];
    jpeg_files_make(images, o->threads);
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
static void packed_measure(const struct options *o, struct jpeg_files *images, cJSON *json)
{
    char folder_text[JPEG_FILES_PATH], path[JPEG_FILES_PATH], packed_text[JPEG_FILES_PATH + 16];
    jpeg_files_make(images, o->threads);
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
                jpeg_files_cool(images);
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
    char root[JPEG_FILES_ROOT];
    program_json_try(o.json);
    folder_make(o.folder, root);
    struct jpeg_files large = {.count = o.jpeg, .height = 375, .width = 500};
    struct jpeg_files small = {.count = o.small, .height = o.side, .width = o.side};
    snprintf(large.root, sizeof large.root, "%.480s/large", root);
    snprintf(small.root, sizeof small.root, "%.480s/small", root);
    cJSON *json = json_add(cJSON_CreateObject(), "program %s date %s threads %d", "input",
                           program_date(), o.threads);
    cJSON_AddItemToObject(json, "machine", program_machine());
    cJSON *rates = cJSON_AddArrayToObject(json, "rates");
    decode_measure(&o, &large, rates);
    packed_measure(&o, &small, rates);
    program_json_write(o.json, json);
    folder_remove(root);
    return EXIT_SUCCESS;
}
