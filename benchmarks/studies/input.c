/*
 * What input costs training (Shi, Chu 2017; Keuper, Pfreundt 2016): AlexNet on small JPEG files, on a
 * packed file of the same images, and on images of memory, by numbers of loader threads, on a GPU
 * from pinned and from pageable memory. Exposed is what a step waits for a batch and for its copy.
 */
#include "benchmarks/jpeg_files.h"
#include "benchmarks/studies/network_times.h"
#include "benchmarks/studies/study.h"
#include "train/input/packed_file.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    LOADERS_MOST = 8,
    ROWS_MOST = 3 * 2 * LOADERS_MOST,
    HEIGHT = 375,
    WIDTH = 500,
    NOT_HERE = 77
};

struct options {
    struct study_options study;
    alnico_device_t device;
    const char *model, *folder;
    int loaders[LOADERS_MOST], loaders_count;
    size_t batch, images, steps;
    bool cold;
};

static void read_loaders(struct argp_state *state, char *text, void *out)
{
    struct options *options = out;
    char *copy = strdup(text), *rest = copy;
    while (rest) {
        if (options->loaders_count == LOADERS_MOST)
            argp_error(state, "--loaders %s: expected at most %d numbers", text, LOADERS_MOST);
        options->loaders[options->loaders_count++] =
            (int)option_number(state, "--loaders", strsep(&rest, ","), 1, 256);
    }
    free(copy);
}

static const struct option_row option_rows[] = {
    STUDY_DEVICE(struct options, device),
    {.name = "model",
     .value = "NAME",
     .help = "network for images of three colours",
     .kind = OPTION_TEXT,
     .initial = "alexnet",
     OPTION_FIELD(struct options, model)},
    {.name = "batch",
     .value = "N",
     .help = "images a step (8; with --full or on a GPU 256)",
     .kind = OPTION_NUMBER,
     OPTION_FIELD(struct options, batch),
     .least = 1,
     .most = 65536},
    {.name = "images",
     .value = "N",
     .help = "files of 500 x 375 to write (96; with --full or on a GPU 4096)",
     .kind = OPTION_NUMBER,
     OPTION_FIELD(struct options, images),
     .least = 1,
     .most = 1000000},
    {.name = "steps",
     .value = "N",
     .help = "of a measurement (6; with --full or on a GPU 60)",
     .kind = OPTION_NUMBER,
     OPTION_FIELD(struct options, steps),
     .least = 2,
     .most = 100000},
    {.name = "loaders",
     .value = "N,...",
     .help = "threads that prepare batches (1,2; with --full or on a GPU 1,2,4,8,16,32)",
     .kind = OPTION_OTHER,
     .read = read_loaders},
    {.name = "cold",
     .help = "gives the files' pages back before each measurement",
     .kind = OPTION_FLAG,
     OPTION_FIELD(struct options, cold)},
    {.name = "folder",
     .value = "DIR",
     .help = "where files are written, and removed from",
     .kind = OPTION_TEXT,
     .initial = "/var/tmp",
     OPTION_FIELD(struct options, folder)},
    STUDY_OPTIONS(struct options, study),
    {0}};

static const struct option_table option_table = {
    .options = option_rows,
    .about = "Exposed input time of training on small files, a packed file and memory, by loader "
             "threads; on a GPU from pinned and pageable memory, too."};

enum way { WAY_FILES, WAY_PACKED, WAY_MEMORY, WAYS };

static const char *const way_names[WAYS] = {"files", "packed", "memory"};

/* All that is measured on. */
struct input {
    const struct options *options;
    struct study_device device;
    struct jpeg_files files;
    char plans[JPEG_FILES_PATH];          /* file of the engines that were the fastest on a GPU */
    char packed[JPEG_FILES_PATH];         /* path of the packed file */
    char data[WAYS][JPEG_FILES_PATH * 2]; /* as trainer_options has it */
};

/* Sums of a run's steps after the first fifth. */
struct row {
    enum way way;
    bool pageable;
    int loaders;
    size_t steps, step, first;
    double io, copy, all; /* seconds */
};

static char root[JPEG_FILES_ROOT];

static void root_remove(void)
{
    folder_remove(root);
}

static void options_complete(struct options *options)
{
    const bool large = options->study.full || options->device == ALNICO_DEVICE_CUDA;
    const int most = large ? 32 : 2;
    options->batch = options->batch ? options->batch : large ? 256 : 8;
    options->images = options->images ? options->images : large ? 4096 : 96;
    options->steps = options->steps ? options->steps : large ? 60 : 6;
    const bool given = options->loaders_count;
    for (int n = 1; !given && n <= most; n *= 2)
        options->loaders[options->loaders_count++] = n;
    if (network_named(options->model).images.channels != 3)
        argp_failure(NULL, EXIT_USAGE, 0, "--model %s: its images are not of three colours",
                     options->model);
    if (options->batch > options->images)
        argp_failure(NULL, EXIT_USAGE, 0, "--batch %zu: expected at most --images %zu",
                     options->batch, options->images);
}

/* The packed file keeps an eighth more of each side, for random places. */
static void data_make(struct input *input)
{
    const struct model_images images = network_named(input->options->model).images;
    const size_t side = images.height, kept = side + side / 8;
    const int threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    char source[JPEG_FILES_PATH];
    snprintf(input->files.root, sizeof input->files.root, "%.480s/files", root);
    jpeg_files_make(&input->files, threads);
    snprintf(source, sizeof source, "folder:%s@%zu", input->files.root, kept);
    snprintf(input->packed, sizeof input->packed, "%s/packed", root);
    snprintf(input->plans, sizeof input->plans, "%s/plans.json", root);
    const struct pack_options packing = {
        .source = source, .path = input->packed, .threads = threads, .train_only = true};
    program_check(pack(&packing), "packing");
    snprintf(input->data[WAY_FILES], sizeof *input->data, "folder:%s@%zu", input->files.root, side);
    snprintf(input->data[WAY_PACKED], sizeof *input->data, "packed:%s@%zu", input->packed, side);
    snprintf(input->data[WAY_MEMORY], sizeof *input->data, "synthetic:%zux%zux3", side, side);
}

static void row_add(void *context, const struct trainer_progress *progress)
{
    struct row *row = context;
    const size_t steps = progress->step - row->step;
    row->step = progress->step;
    if (row->step <= row->first)
        return;
    row->steps += steps;
    row->io += progress->latest_phases[PHASE_IO];
    row->copy += progress->latest_phases[PHASE_COPY];
    for (int i = 0; i < PHASES; i++)
        row->all += progress->latest_phases[i];
}

/* Trains alone. */
static void row_measure(const struct input *input, struct row *row)
{
    const struct options *options = input->options;
    const bool files = row->way == WAY_FILES;
    const struct trainer_place place = {.stream = input->device.stream};
    struct trainer_report report;
    row->first = options->steps / 5;
    const struct trainer_options training = {
        .model = options->model,
        .data = input->data[row->way],
        .kernels = kernels_default(input->device.ops->kind)->name,
        .strategy = "allreduce",
        .batch = options->batch,
        .steps = options->steps,
        .classes = row->way == WAY_MEMORY ? JPEG_FILES_CLASSES : 0,
        .seed = 1,
        .compute = {.cache = options->device == ALNICO_DEVICE_CUDA ? input->plans : NULL},
        .optimizer = {.kind = OPTIMIZER_SGD, .rate = 1e-4, .drops = {1, 1, 1}},
        .wire = ALNICO_FLOAT32,
        .rule = BUCKETS_OF_COUNT,
        .buckets = 1,
        .loaders = (size_t)row->loaders,
        .prefetch = 2,
        .pageable = row->pageable,
        .progress = row_add,
        .context = row};
    if (options->cold && files)
        jpeg_files_cool(&input->files);
    if (options->cold && row->way == WAY_PACKED)
        file_cool(input->packed);
    const alnico_status_t status = trainer_run(&training, &place, &report);
    if (status == ALNICO_ERROR_MEMORY) {
        fprintf(stderr, "--batch %zu: %s\n", options->batch, alnico_error_detail());
        exit(NOT_HERE);
    }
    program_check(status, "training");
}

static double row_step(const struct row *row)
{
    return row->all / (double)row->steps;
}

/* Per cent of a step. */
static double row_exposed(const struct row *row)
{
    return 100 * (row->io + row->copy) / row->all;
}

static void row_tell(const struct options *options, const struct row *row, const char *memory,
                     cJSON *rows)
{
    const double step = row_step(row), steps = (double)row->steps;
    printf("%-7s %-9s %7d %10.2f %8.2f %8.2f %9.2f %% %10.0f\n", way_names[row->way], memory,
           row->loaders, 1e3 * step, 1e3 * row->io / steps, 1e3 * row->copy / steps,
           row_exposed(row), (double)options->batch / step);
    fflush(stdout);
    json_add(json_row(rows),
             "source %s memory %s loaders %d step %g io %g h2d %g exposed_percent %g "
             "images_per_second %g",
             way_names[row->way], memory, row->loaders, step, row->io / steps, row->copy / steps,
             row_exposed(row), (double)options->batch / step);
}

static int rows_measure(const struct input *input, struct row rows[ROWS_MOST], cJSON *list)
{
    const struct options *options = input->options;
    const bool gpu = options->device == ALNICO_DEVICE_CUDA;
    int count = 0;
    printf("%-7s %-9s %7s %10s %8s %8s %11s %10s\n", "source", "memory", "loaders", "step, ms",
           "io, ms", "h2d, ms", "exposed", "images/s");
    for (int pageable = 0; pageable <= gpu; pageable++)
        for (int i = 0; i < options->loaders_count; i++)
            for (enum way way = 0; way < WAYS; way++, count++) {
                rows[count] =
                    (struct row){.way = way, .pageable = pageable, .loaders = options->loaders[i]};
                row_measure(input, &rows[count]);
                row_tell(options, &rows[count], pageable || !gpu ? "pageable" : "pinned", list);
            }
    return count;
}

/* The least exposed share of the packed file's rows. */
static double packed_least(const struct row *rows, int count)
{
    double least = 100;
    for (int i = 0; i < count; i++)
        if (rows[i].way == WAY_PACKED && row_exposed(&rows[i]) < least)
            least = row_exposed(&rows[i]);
    return least;
}

static void picture_draw(FILE *picture, const struct row *rows, int count, bool gpu)
{
    if (!picture)
        return;
    fprintf(picture, "set logscale x 2\nset xlabel 'loader threads'\n"
                     "set ylabel 'exposed input, %% of a step'\nset yrange [0:*]\n");
    for (int line = 0; line < (gpu ? 2 : 1) * WAYS; line++) {
        fprintf(picture, "$line%d << END\n", line);
        for (int i = 0; i < count; i++)
            if ((int)rows[i].way + rows[i].pageable * WAYS == line)
                fprintf(picture, "%d %g\n", rows[i].loaders, row_exposed(&rows[i]));
        fprintf(picture, "END\n");
    }
    fprintf(picture, "plot ");
    for (int line = 0; line < (gpu ? 2 : 1) * WAYS; line++)
        fprintf(picture, "%s$line%d with linespoints lt %d title '%s%s'", line ? ", " : "", line,
                line + 1, way_names[line % WAYS], line >= WAYS ? ", pageable" : "");
    fprintf(picture, "\n");
}

int main(int argc, char **argv)
{
    static struct row rows[ROWS_MOST];
    static struct input input;
    struct options options = {0};
    program_start();
    options_read(&option_table, argc, argv, &options);
    options_complete(&options);
    study_begin(&options.study);
    program_json_try(options.study.json);
    input = (struct input){.options = &options,
                           .device = study_device_open(options.device),
                           .files = {.count = options.images, .height = HEIGHT, .width = WIDTH}};
    FILE *picture = study_picture_begin(&options.study, options.model, 1, 0.5);
    folder_make(options.folder, root);
    atexit(root_remove);
    data_make(&input);
    cJSON *report =
              json_add(study_report("input"), "device %s model %s batch %zu cold %hhd",
                       option_devices[options.device], options.model, options.batch, options.cold),
          *list = cJSON_AddArrayToObject(report, "rows");
    const int count = rows_measure(&input, rows, list);
    const double least = packed_least(rows, count);
    printf("packed: exposed %.2f %% at best, %s 2 %%\n", least, least <= 2 ? "within" : "above");
    json_add(report, "packed_exposed_percent %g", least);
    picture_draw(picture, rows, count, options.device == ALNICO_DEVICE_CUDA);
    study_picture_end(picture);
    program_json_write(options.study.json, report);
    return 0;
}
