/*
 * The times of a parameter server (Biswas, SHM-Learn-Dist): rank 0 gathers the workers' gradients,
 * averages them and broadcasts as many parameters, beside one allreduce by all. Workers are threads;
 * averages are checked against plain sums.
 */
#include "benchmarks/studies/study.h"
#include "tests/support/ranks.h"
#include "train/kernels/elementwise.h"
#ifdef ALNICO_HAVE_CUDNN
#include "train/kernels/cuda/codec.h"
#include "train/kernels/cuda/launch.h"
#endif

#include <alnico/alnico.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { SIZES = 4, PARTS = 4, REPEATS_MOST = 1000, NOT_HERE = 77 };

enum part { GATHER, AVERAGE, BROADCAST, ALLREDUCE };

static const char *const part_names[PARTS] = {"gather", "average", "broadcast", "allreduce"};

struct options {
    struct study_options study;
    alnico_device_t device;
    int gpus, numbers, repeats;
};

static const struct option_row option_rows[] = {
    STUDY_DEVICE(struct options, device),
    {.name = "gpus",
     .value = "N",
     .help = "as many workers at most, one on each; of --device cuda (2)",
     .kind = OPTION_NUMBER,
     OPTION_FIELD(struct options, gpus),
     .least = 2,
     .most = 8},
    {.name = "numbers",
     .value = "N",
     .help = "of float32 in a gradient (1192042; with --full 62378344, AlexNet's)",
     .kind = OPTION_NUMBER,
     OPTION_FIELD(struct options, numbers),
     .least = 1,
     .most = 1 << 28},
    {.name = "repeats",
     .value = "N",
     .help = "of which the median counts",
     .kind = OPTION_NUMBER,
     .initial = "15",
     OPTION_FIELD(struct options, repeats),
     .least = 1,
     .most = REPEATS_MOST},
    STUDY_OPTIONS(struct options, study),
    {0}};

static void options_finish(struct argp_state *state, void *out)
{
    struct options *options = out;
    if (options->gpus && options->device == ALNICO_DEVICE_CPU)
        argp_error(state, "--gpus %d: is of --device cuda", options->gpus);
    if (!options->gpus)
        options->gpus = 2;
}

static const struct option_table option_table = {
    .options = option_rows,
    .finish = options_finish,
    .about = "Milliseconds of a parameter server's gathering, averaging and broadcasting on 1 to 8 "
             "workers, beside an allreduce.\v--full measures gradients of AlexNet."};

/* A number of workers. */
struct run {
    const struct options *options;
    double ms[PARTS]; /* rank 0's medians */
    double (*all)[REPEATS_MOST];
};

/* A worker, its device's memory, and the host's copy of its gradient. At rank 0 memory of all, one
 * block after the other, of which the first is its own. */
struct worker {
    struct rank *rank;
    struct study_device device;
    alnico_comm_t comm;
    size_t numbers, stride; /* stride: those of a block, a multiple of 64 bytes */
    float *gradient, *gathered, *host;
#ifdef ALNICO_HAVE_CUDNN
    struct train_gpu gpu;
#endif
};

static void worker_wait(const struct worker *worker)
{
    program_check(worker->device.ops->stream_synchronize(worker->device.stream), "the stream");
}

/* Whole numbers up to 2^24 in all: sums are exact. */
static float number_at(int rank, size_t i)
{
    return (float)((i * 31 + (size_t)rank * 7) % 1000);
}

static void gradient_fill(const struct worker *worker)
{
    for (size_t i = 0; i < worker->numbers; i++)
        worker->host[i] = number_at(worker->rank->rank, i);
    program_check(worker->device.ops->copy(worker->gradient, worker->host,
                                           worker->numbers * sizeof(float), worker->device.stream),
                  "filling a gradient");
}

/* Averages as the trainer's server does. */
static void average(const struct worker *worker)
{
    const size_t count = worker->numbers;
    const int others = worker->rank->size - 1;
    if (worker->rank->rank != 0 || others == 0)
        return;
#ifdef ALNICO_HAVE_CUDNN
    const struct train_average pass = {.mine = worker->gathered,
                                       .others = worker->gathered + worker->stride,
                                       .stride = worker->stride,
                                       .count = count,
                                       .blocks = others,
                                       .type = ALNICO_FLOAT32};
    if (!worker->device.ops->host_accessible) {
        if (train_average(&worker->gpu, &pass))
            program_fail("averaging on the GPU failed");
        return;
    }
#endif
    elementwise_average(worker->gathered, worker->gathered + worker->stride, worker->stride, others,
                        count);
}

static void part_run(const struct worker *worker, enum part part)
{
    const size_t count = worker->numbers;
    switch (part) {
    case GATHER:
        program_check(alnico_gather(worker->gradient, worker->gathered, worker->stride,
                                    ALNICO_FLOAT32, 0, worker->comm),
                      "gathering");
        break;
    case AVERAGE:
        average(worker);
        break;
    case BROADCAST:
        program_check(alnico_broadcast(worker->rank->rank ? worker->gradient : worker->gathered,
                                       count, ALNICO_FLOAT32, 0, worker->comm),
                      "broadcasting");
        break;
    case ALLREDUCE:
        program_check(alnico_allreduce(ALNICO_IN_PLACE, worker->gradient, count, ALNICO_FLOAT32,
                                       ALNICO_AVERAGE, worker->comm),
                      "allreduce");
    }
    worker_wait(worker);
}

static void average_check(const struct worker *worker, const float *memory, const char *of)
{
    float *got = worker->host;
    study_get(&worker->device, got, memory, worker->numbers * sizeof *got);
    for (size_t i = 0; i < worker->numbers; i++) {
        double sum = 0;
        for (int r = 0; r < worker->rank->size; r++)
            sum += number_at(r, i);
        const double mean = sum / worker->rank->size;
        if (fabs(got[i] - mean) > 1e-6 * mean)
            program_fail("%s of %d workers: number %zu is %.9g, expected %.9g", of,
                         worker->rank->size, i, got[i], mean);
    }
}

/* Once, before anything is timed: both ways end with the same means on every rank. */
static void worker_check(const struct worker *worker)
{
    gradient_fill(worker);
    part_run(worker, ALLREDUCE);
    average_check(worker, worker->gradient, "the allreduce");
    gradient_fill(worker);
    for (int part = GATHER; part <= BROADCAST; part++)
        part_run(worker, (enum part)part);
    average_check(worker, worker->rank->rank ? worker->gradient : worker->gathered, "the server");
}

static void worker_measure(const struct worker *worker, struct run *run)
{
    const int repeats = run->options->repeats;
    for (int i = 0; i < repeats; i++)
        for (int part = 0; part < PARTS; part++) {
            program_check(alnico_barrier(worker->comm), "a barrier");
            worker_wait(worker);
            const double begin = seconds_now();
            part_run(worker, (enum part)part);
            if (worker->rank->rank == 0)
                run->all[part][i] = 1e3 * (seconds_now() - begin);
        }
    for (int part = 0; part < PARTS && worker->rank->rank == 0; part++)
        run->ms[part] = study_median(run->all[part], repeats);
}

static void worker_open(struct worker *worker, const struct options *options)
{
    const struct rank *rank = worker->rank;
    const size_t unit = 16;
    const struct device_ops *ops = device_find(options->device);
    if (ops && ops->enter)
        program_check(ops->enter(rank->rank), "--gpus");
    worker->device = study_device_open(options->device);
    program_check(
        alnico_comm_create(&rank->bootstrap, options->device, worker->device.stream, &worker->comm),
        "a communicator");
    worker->numbers = (size_t)options->numbers;
    worker->stride = (worker->numbers + unit - 1) / unit * unit;
    worker->host = study_memory(worker->numbers * sizeof(float));
    worker->gradient = study_put(&worker->device, NULL, worker->stride * sizeof(float));
    if (rank->rank == 0)
        worker->gathered =
            study_put(&worker->device, NULL, (size_t)rank->size * worker->stride * sizeof(float));
#ifdef ALNICO_HAVE_CUDNN
    worker->gpu.stream = worker->device.stream;
    if (!worker->device.ops->host_accessible &&
        train_codec_load(&worker->gpu.multiprocessors, &worker->gpu.programmatic))
        program_fail("loading the kernels failed");
#endif
}

static void work(struct rank *rank)
{
    struct run *run = rank->argument;
    struct worker worker = {.rank = rank};
    worker_open(&worker, run->options);
    worker_check(&worker);
    worker_measure(&worker, run);
    alnico_comm_destroy(worker.comm);
    worker.device.ops->free(worker.gradient);
    worker.device.ops->free(worker.gathered);
    if (worker.device.stream)
        worker.device.ops->stream_destroy(worker.device.stream);
    free(worker.host);
}

/* ---- What the runs show ---- */

/* The line of least squares through the times of averaging from 2 workers on, and the share of their
 * variance that it explains. */
struct fit {
    double first, each, explained;
};

static struct fit average_fit(const struct run *runs, int sizes)
{
    double x = 0, y = 0, xx = 0, xy = 0, yy = 0;
    const int count = sizes - 1;
    for (int i = 1; i < sizes; i++) {
        const double workers = 1 << i, ms = runs[i].ms[AVERAGE];
        x += workers;
        y += ms;
        xx += workers * workers;
        xy += workers * ms;
        yy += ms * ms;
    }
    const double cov = count * xy - x * y, var = count * xx - x * x, all = count * yy - y * y;
    const double each = cov / var;
    return (struct fit){(y - each * x) / count, each, all > 0 ? cov * cov / (var * all) : 0};
}

static double server_ms(const struct run *run)
{
    return run->ms[GATHER] + run->ms[AVERAGE] + run->ms[BROADCAST];
}

/* Fewest workers from which on the allreduce is always faster; 0: there are none. */
static int crossover(const struct run *runs, int sizes)
{
    int fewest = 0;
    for (int i = sizes - 1; i > 0 && runs[i].ms[ALLREDUCE] < server_ms(&runs[i]); i--)
        fewest = 1 << i;
    return fewest;
}

static void run_tell(const struct run *run, int workers, FILE *picture, cJSON *rows)
{
    cJSON *row = json_add(json_row(rows), "workers %d", workers);
    printf("%7d", workers);
    if (picture)
        fprintf(picture, "%d", workers);
    for (int part = 0; part < PARTS; part++) {
        printf(" %9.3f", run->ms[part]);
        cJSON_AddNumberToObject(row, part_names[part], run->ms[part]);
        if (picture)
            fprintf(picture, " %g", run->ms[part]);
    }
    printf(" %9.3f\n", server_ms(run));
    fflush(stdout);
    json_add(row, "server %g", server_ms(run));
    if (picture)
        fprintf(picture, " %g\n", server_ms(run));
}

static void picture_draw(FILE *picture)
{
    if (!picture)
        return;
    fprintf(picture, "END\nset logscale x 2\nset yrange [0:]\n"
                     "set xlabel 'workers'\nset ylabel 'ms'\nplot ");
    for (int part = 0; part < PARTS; part++)
        fprintf(picture, "$rows using 1:%d with linespoints lt %d title '%s', ", part + 2, part + 1,
                part_names[part]);
    fprintf(picture, "$rows using 1:6 with linespoints lt 5 title 'the server in all'\n");
}

/* How many of 1, 2, 4 and 8 workers there are; on GPUs each has one, or the study ends with 77. */
static int sizes_find(const struct options *options)
{
    const struct device_ops *ops = study_device_open(options->device).ops;
    int sizes = 1;
    if (ops->host_accessible)
        return SIZES;
#ifndef ALNICO_HAVE_CUDNN
    fprintf(stderr, "--device cuda: built without cuDNN, with which the trainer's kernels come\n");
    exit(NOT_HERE);
#endif
    if (ops->enter(options->gpus - 1)) {
        fprintf(stderr, "--gpus %d: %s\n", options->gpus, alnico_error_detail());
        exit(NOT_HERE);
    }
    while (sizes < SIZES && 1 << sizes <= options->gpus)
        sizes++;
    return sizes;
}

/* A line through two points shows nothing. */
static void fit_tell(const struct run *runs, int sizes, cJSON *report)
{
    if (sizes < SIZES)
        return;
    const struct fit fit = average_fit(runs, sizes);
    printf("# averaging: %.3f ms + %.3f ms a worker, r^2 %.4f\n", fit.first, fit.each,
           fit.explained);
    json_add(report, "average_ms %g average_ms_each %g average_r2 %g", fit.first, fit.each,
             fit.explained);
}

int main(int argc, char **argv)
{
    static double times[PARTS][REPEATS_MOST];
    struct options options = {0};
    struct run runs[SIZES];
    program_start();
    options_read(&option_table, argc, argv, &options);
    if (!options.numbers)
        options.numbers = options.study.full ? 62378344 : 1192042;
    study_begin(&options.study);
    const int sizes = sizes_find(&options);
    program_json_try(options.study.json);
    FILE *picture = study_picture_begin(&options.study, "A parameter server, rank 0", 1, 0.5);
    cJSON *report = json_add(study_report("server_times"), "numbers %d", options.numbers),
          *rows = cJSON_AddArrayToObject(report, "rows");
    printf("# %d numbers; ms\n%7s", options.numbers, "workers");
    for (int part = 0; part < PARTS; part++)
        printf(" %9s", part_names[part]);
    printf(" %9s\n", "server");
    if (picture)
        fprintf(picture, "$rows << END\n");
    for (int i = 0; i < sizes; i++) {
        runs[i] = (struct run){.options = &options, .all = times};
        ranks_run(1 << i, work, &runs[i]);
        run_tell(&runs[i], 1 << i, picture, rows);
    }
    fit_tell(runs, sizes, report);
    const int fewest = crossover(runs, sizes);
    if (fewest)
        printf("# the allreduce is faster from %d workers on\n", fewest);
    json_add(report, "crossover %d", fewest);
    picture_draw(picture);
    study_picture_end(picture);
    program_json_write(options.study.json, report);
    return 0;
}
