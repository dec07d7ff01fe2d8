/*
 * Linpack against the size of its blocks, on ranks or one GPU, and the batch that the fastest block
 * names (Shivdikar, Paneri, Kaeli).
 */
#include "benchmarks/studies/linpack_gpu.h"
#include "benchmarks/studies/linpack_ranks.h"
#include "benchmarks/studies/study.h"
#include "tools/common/tile_batch.h"

#include <math.h>
#include <stdlib.h>

enum { RANKS_MOST = 64, BLOCKS = 9, IMAGE = 28 * 28 };

static const int blocks[BLOCKS] = {32, 64, 96, 128, 160, 192, 256, 384, 512};

/* HPL's: a residual above it is wrong. */
static const double residual_most = 16;

struct options {
    struct study_options study;
    alnico_device_t device;
    int size, ranks, repeats, seed;
};

static const struct option_row option_rows[] = {
    STUDY_DEVICE(struct options, device),
    {.name = "size",
     .value = "N",
     .help = "of the matrix, N x N (2000; with --full or on a GPU 10000)",
     .kind = OPTION_NUMBER,
     OPTION_FIELD(struct options, size),
     .least = 1,
     .most = 1 << 17},
    {.name = "ranks",
     .value = "N",
     .help = "at most: 1, 2, 4, ... (2; on a GPU 1)",
     .kind = OPTION_NUMBER,
     OPTION_FIELD(struct options, ranks),
     .least = 1,
     .most = RANKS_MOST},
    {.name = "repeats",
     .value = "N",
     .help = "runs, of which the fastest counts",
     .kind = OPTION_NUMBER,
     .initial = "3",
     OPTION_FIELD(struct options, repeats),
     .least = 1,
     .most = 100},
    {.name = "seed",
     .value = "N",
     .help = "of the matrix",
     .kind = OPTION_NUMBER,
     .initial = "1",
     OPTION_FIELD(struct options, seed),
     .most = 1 << 30},
    STUDY_OPTIONS(struct options, study),
    {0}};

struct point {
    int block;
    double gflops;
};

/* Ranks, or a GPU. */
struct machine {
    int ranks;
    struct linpack_gpu *gpu; /* NULL: none */
};

static void gpu_work(struct linpack_gpu *gpu, struct linpack_run *run)
{
#ifdef STUDY_HAVE_CUSOLVER
    double *x = study_memory((size_t)run->size * sizeof *x);
    run->seconds = linpack_gpu_run(gpu, run->block, x);
    for (int i = 0; i < run->repeats; i++)
        run->seconds = fmin(run->seconds, linpack_gpu_run(gpu, run->block, x));
    run->residual = linpack_residual(run, x);
    free(x);
#else
    (void)gpu;
    (void)run;
#endif
}

static struct linpack_gpu *gpu_open(const struct options *options)
{
#ifdef STUDY_HAVE_CUSOLVER
    static struct study_device device;
    const struct linpack_run run = {.size = options->size, .seed = (uint64_t)options->seed};
    const size_t n = (size_t)options->size;
    double *matrix = study_memory(n * (n + 1) * sizeof *matrix);
    device = study_device_open(ALNICO_DEVICE_CUDA);
    for (int j = 0; j <= options->size; j++)
        linpack_column(&run, j, matrix + (size_t)j * n);
    struct linpack_gpu *gpu = linpack_gpu_open(&device, matrix, options->size);
    free(matrix);
    return gpu;
#else
    (void)options;
    fprintf(stderr, "--device cuda: this build has no cuSOLVER\n");
    exit(77);
#endif
}

static void gpu_close(struct linpack_gpu *gpu)
{
#ifdef STUDY_HAVE_CUSOLVER
    linpack_gpu_close(gpu);
#else
    (void)gpu;
#endif
}

static struct point block_run(const struct options *options, const struct machine *machine,
                              int block, cJSON *rows)
{
    const int ranks = machine->ranks;
    struct linpack_run run = {.size = options->size,
                              .block = block,
                              .repeats = options->repeats,
                              .seed = (uint64_t)options->seed};
    if (machine->gpu)
        gpu_work(machine->gpu, &run);
    else
        linpack_ranks_run(&run, ranks);
    const double n = options->size, flops = n * n * n * 2 / 3 + n * n * 3 / 2,
                 gflops = flops / run.seconds * 1e-9;
    printf("%5d %5d %9.3f %9.2f %9.4f\n", ranks, block, run.seconds, gflops, run.residual);
    fflush(stdout);
    json_add(json_row(rows), "ranks %d block %d seconds %g gflops %g residual %g", ranks, block,
             run.seconds, gflops, run.residual);
    if (!(run.residual < residual_most))
        program_fail("the residual is %g, expected less than %g", run.residual, residual_most);
    return (struct point){block, gflops};
}

static void curve_run(const struct options *options, const struct machine *machine, FILE *picture,
                      cJSON *report)
{
    const int ranks = machine->ranks;
    cJSON *rows = cJSON_GetObjectItem(report, "rows");
    struct point best = {0};
    if (picture)
        fprintf(picture, "$ranks%d << END\n", ranks);
    for (int i = 0; i < BLOCKS; i++) {
        const struct point point = block_run(options, machine, blocks[i], rows);
        if (picture)
            fprintf(picture, "%d %g\n", point.block, point.gflops);
        if (point.gflops > best.gflops)
            best = point;
    }
    if (picture)
        fprintf(picture, "END\n");
    const size_t batch = tile_batch((size_t)best.block, IMAGE);
    printf("# %d rank%s: blocks of %d are the fastest; a batch of %zu\n", ranks,
           ranks > 1 ? "s" : "", best.block, batch);
    json_add(json_row(cJSON_GetObjectItem(report, "best")), "ranks %d block %d gflops %g batch %zu",
             ranks, best.block, best.gflops, batch);
}

static void picture_draw(FILE *picture, int most)
{
    if (!picture)
        return;
    fprintf(picture, "set logscale x 2\nset yrange [0:]\nset xlabel 'block'\n"
                     "set ylabel 'GFLOP/s'\nplot ");
    for (int ranks = 1, i = 1; ranks <= most; ranks *= 2, i++)
        fprintf(picture, "%s$ranks%d with linespoints lt %d title '%d rank%s'", i > 1 ? ", " : "",
                ranks, i, ranks, i > 1 ? "s" : "");
    fprintf(picture, "\n");
}

/* Runs the blocks on a GPU, and then the matrix as one panel, which is cuSOLVER by itself. */
static void gpu_run(const struct options *options, FILE *picture, cJSON *report)
{
    const struct machine machine = {.ranks = 1, .gpu = gpu_open(options)};
    curve_run(options, &machine, picture, report);
    const struct point whole =
        block_run(options, &machine, options->size, cJSON_GetObjectItem(report, "rows"));
    printf("# cuSOLVER by itself: %.2f GFLOP/s\n", whole.gflops);
    json_add(report, "cusolver_gflops %g", whole.gflops);
    gpu_close(machine.gpu);
}

static void options_finish(struct argp_state *state, void *out)
{
    struct options *options = out;
    const bool cuda = options->device == ALNICO_DEVICE_CUDA;
    if (cuda && options->ranks > 1)
        argp_error(state, "--ranks %d: --device cuda is of one GPU", options->ranks);
    if (!options->ranks)
        options->ranks = cuda ? 1 : 2;
    if (!options->size)
        options->size = cuda || options->study.full ? 10000 : 2000;
}

static const struct option_table option_table = {
    .options = option_rows,
    .about =
        "GFLOP/s of Linpack against the size of its blocks on 1, 2, ... ranks, and the batch that "
        "the fastest one names.\vA residual of 16 or more, as HPL has it, fails the study.",
    .finish = options_finish};

int main(int argc, char **argv)
{
    struct options options = {0};
    program_start();
    options_read(&option_table, argc, argv, &options);
    study_begin(&options.study);
    program_json_try(options.study.json);
    FILE *picture = study_picture_begin(&options.study, "Linpack", 1, 0.5);
    cJSON *report = json_add(study_report("linpack"), "device %s size %d",
                             option_devices[options.device], options.size);
    cJSON_AddArrayToObject(report, "rows");
    cJSON_AddArrayToObject(report, "best");
    printf("# %d x %d\n%5s %5s %9s %9s %9s\n", options.size, options.size, "ranks", "block", "s",
           "GFLOP/s", "residual");
    if (options.device == ALNICO_DEVICE_CUDA)
        gpu_run(&options, picture, report);
    else
        for (int ranks = 1; ranks <= options.ranks; ranks *= 2)
            curve_run(&options, &(struct machine){.ranks = ranks}, picture, report);
    picture_draw(picture, options.ranks);
    study_picture_end(picture);
    program_json_write(options.study.json, report);
    return 0;
}
