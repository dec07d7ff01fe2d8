/*
 * Linpack against the size of its blocks, on ranks or one GPU, and the batch that the fastest block
 * names (Shivdikar, Paneri, Kaeli).
 */
#include "benchmarks/studies/hpcc.h"
#include "benchmarks/studies/linpack_gpu.h"
#include "benchmarks/studies/linpack_ranks.h"
#include "benchmarks/studies/study.h"
#include "tools/common/tile_batch.h"

#include <cblas.h>
#include <stdlib.h>

enum { RANKS_MOST = 64, BLOCKS = 9, TURNS_MOST = 100, IMAGE = 28 * 28 };

static const int blocks[BLOCKS] = {32, 64, 96, 128, 160, 192, 256, 384, 512};

/* HPL's: a residual above it is wrong. */
static const double residual_most = 16;

/* A block this near to the fastest may be the fastest in another run. */
static const double near = 0.95;

struct options {
    struct study_options study;
    alnico_device_t device;
    int size, ranks, repeats, seed;
    bool versus; /* hpcc */
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
     .help = "turns of all blocks, of which the medians count",
     .kind = OPTION_NUMBER,
     .initial = "7",
     OPTION_FIELD(struct options, repeats),
     .least = 1,
     .most = TURNS_MOST},
    {.name = "seed",
     .value = "N",
     .help = "of the matrix",
     .kind = OPTION_NUMBER,
     .initial = "1",
     OPTION_FIELD(struct options, seed),
     .most = 1 << 30},
    HPCC_VERSUS(struct options, versus),
    STUDY_OPTIONS(struct options, study),
    {0}};

/* A block: GFLOP/s of each turn, and of hpcc's Linpack; then their medians. */
struct point {
    int block;
    double turns[TURNS_MOST], peer_turns[TURNS_MOST], gflops, peer, spread, residual;
};

/* Ranks, or a GPU. */
struct machine {
    int ranks, threads;      /* threads: of OpenBLAS, for each rank */
    struct linpack_gpu *gpu; /* NULL: none */
};

static void gpu_work(struct linpack_gpu *gpu, struct linpack_run *run)
{
#ifdef STUDY_HAVE_CUSOLVER
    double *x = study_memory((size_t)run->size * sizeof *x);
    run->seconds = linpack_gpu_run(gpu, run->block, x);
    if (run->check)
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

static double run_gflops(const struct options *options, const struct machine *machine,
                         struct point *point, bool check)
{
    const double n = options->size;
    struct linpack_run run = {.size = options->size,
                              .block = point->block,
                              .threads = machine->threads,
                              .check = check,
                              .seed = (uint64_t)options->seed};
    if (machine->gpu)
        gpu_work(machine->gpu, &run);
    else
        linpack_ranks_run(&run, machine->ranks);
    if (check)
        point->residual = run.residual;
    if (!(point->residual < residual_most))
        program_fail("blocks of %d: the residual is %g, expected less than %g", point->block,
                     run.residual, residual_most);
    return (n * n * n * 2 / 3 + n * n * 3 / 2) / run.seconds * 1e-9;
}

/* The first turn is not measured but checked. */
static void turns_run(const struct options *options, const struct machine *machine,
                      struct point *points, int count)
{
    struct hpcc hpcc = {.size = options->size,
                        .ranks = machine->ranks,
                        .threads = machine->threads,
                        .blocks = blocks,
                        .count = BLOCKS};
    for (int turn = -1; turn < options->repeats; turn++) {
        for (int i = 0; i < count; i++)
            points[i].turns[turn > 0 ? turn : 0] =
                run_gflops(options, machine, &points[i], turn < 0);
        if (!options->versus || turn < 0)
            continue;
        hpcc_run(&hpcc);
        for (int i = 0; i < BLOCKS; i++)
            points[i].peer_turns[turn] = hpcc.gflops[i];
    }
    for (int i = 0; i < count; i++) {
        struct point *point = &points[i];
        point->gflops = study_median(point->turns, options->repeats);
        point->peer = study_median(point->peer_turns, options->repeats);
        point->spread = (point->turns[options->repeats - 1] - point->turns[0]) / point->gflops;
    }
}

static void point_tell(const struct options *options, const struct machine *machine,
                       const struct point *point, cJSON *rows)
{
    cJSON *row =
        json_add(json_row(rows), "ranks %d block %d threads %d gflops %g spread %g residual %g",
                 machine->ranks, point->block, machine->threads, point->gflops, point->spread,
                 point->residual);
    printf("%5d %5d %9.2f %6.0f %% %9.4f", machine->ranks, point->block, point->gflops,
           100 * point->spread, point->residual);
    if (options->versus) {
        printf(" %9.2f %6.2f", point->peer, point->gflops / point->peer);
        json_add(row, "hpcc_gflops %g ratio %g", point->peer, point->gflops / point->peer);
    }
    printf("\n");
}

/* The least and the largest batch that blocks near the fastest name. */
static void near_tell(const struct point *points, const struct point *best, cJSON *row)
{
    size_t least = 0, most = 0;
    for (int i = 0; i < BLOCKS; i++)
        if (points[i].gflops >= near * best->gflops) {
            most = tile_batch((size_t)points[i].block, IMAGE);
            least = least ? least : most;
        }
    printf("# blocks within 5 %% of it name batches from %zu to %zu\n", least, most);
    json_add(row, "near_least %zu near_most %zu", least, most);
}

/* The fastest block, and hpcc's. */
static void best_tell(const struct options *options, const struct machine *machine,
                      const struct point *points, cJSON *best)
{
    const struct point *ours = points, *peer = points;
    for (int i = 1; i < BLOCKS; i++) {
        ours = points[i].gflops > ours->gflops ? &points[i] : ours;
        peer = points[i].peer > peer->peer ? &points[i] : peer;
    }
    const size_t batch = tile_batch((size_t)ours->block, IMAGE);
    cJSON *row = json_add(json_row(best), "ranks %d block %d gflops %g batch %zu", machine->ranks,
                          ours->block, ours->gflops, batch);
    printf("# %d rank%s: blocks of %d are the fastest; a batch of %zu\n", machine->ranks,
           machine->ranks > 1 ? "s" : "", ours->block, batch);
    near_tell(points, ours, row);
    if (!options->versus)
        return;
    const double ratio = ours->gflops / peer->peer;
    printf("# hpcc: %.2f GFLOP/s with blocks of %d; ours by its %.2f\n", peer->peer, peer->block,
           ratio);
    json_add(row, "hpcc_block %d hpcc_gflops %g ratio %g", peer->block, peer->peer, ratio);
}

/* On a GPU the last point is the matrix as one panel, which is cuSOLVER by itself. */
static void curve_run(const struct options *options, const struct machine *machine, FILE *picture,
                      cJSON *report)
{
    struct point points[BLOCKS + 1] = {0};
    const int count = machine->gpu ? BLOCKS + 1 : BLOCKS;
    for (int i = 0; i < count; i++)
        points[i].block = i < BLOCKS ? blocks[i] : options->size;
    turns_run(options, machine, points, count);
    for (int i = 0; i < count; i++)
        point_tell(options, machine, &points[i], cJSON_GetObjectItem(report, "rows"));
    best_tell(options, machine, points, cJSON_GetObjectItem(report, "best"));
    if (machine->gpu) {
        printf("# cuSOLVER by itself: %.2f GFLOP/s\n", points[BLOCKS].gflops);
        json_add(report, "cusolver_gflops %g", points[BLOCKS].gflops);
    }
    fflush(stdout);
    if (!picture)
        return;
    fprintf(picture, "$ranks%d << END\n", machine->ranks);
    for (int i = 0; i < BLOCKS; i++)
        fprintf(picture, "%d %g %g\n", points[i].block, points[i].gflops, points[i].peer);
    fprintf(picture, "END\n");
}

static void picture_draw(FILE *picture, int most, bool versus)
{
    if (!picture)
        return;
    fprintf(picture, "set logscale x 2\nset yrange [0:]\nset xlabel 'block'\n"
                     "set ylabel 'GFLOP/s'\nplot ");
    for (int ranks = 1, i = 1; ranks <= most; ranks *= 2, i++)
        for (int peer = 0; peer <= versus; peer++)
            fprintf(picture, "%s$ranks%d using 1:%d with linespoints lt %d title '%d rank%s%s'",
                    i + peer > 1 ? ", " : "", ranks, 2 + peer, (i - 1) % 4 + 1 + 4 * peer, ranks,
                    i > 1 ? "s" : "", peer ? ", hpcc" : "");
    fprintf(picture, "\n");
}

static void ranks_measure(const struct options *options, FILE *picture, cJSON *report)
{
    const int threads = openblas_get_num_threads();
    for (int ranks = 1; ranks <= options->ranks; ranks *= 2) {
        const int share = threads / ranks;
        curve_run(options, &(struct machine){.ranks = ranks, .threads = share > 1 ? share : 1},
                  picture, report);
    }
}

static void options_finish(struct argp_state *state, void *out)
{
    struct options *options = out;
    const bool cuda = options->device == ALNICO_DEVICE_CUDA;
    if (cuda && options->ranks > 1)
        argp_error(state, "--ranks %d: --device cuda is of one GPU", options->ranks);
    if (cuda && options->versus)
        argp_error(state, "--versus hpcc: it runs on the CPU only");
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
    if (options.versus)
        hpcc_require();
    program_json_try(options.study.json);
    FILE *picture = study_picture_begin(&options.study, "Linpack", 1, 0.5);
    cJSON *report = json_add(study_report("linpack"), "device %s size %d",
                             option_devices[options.device], options.size);
    cJSON_AddArrayToObject(report, "rows");
    cJSON_AddArrayToObject(report, "best");
    printf("# %d x %d, medians of %d turns\n%5s %5s %9s %8s %9s%s\n", options.size, options.size,
           options.repeats, "ranks", "block", "GFLOP/s", "spread", "residual",
           options.versus ? "      hpcc  ratio" : "");
    if (options.device == ALNICO_DEVICE_CUDA) {
        const struct machine machine = {.ranks = 1, .gpu = gpu_open(&options)};
        curve_run(&options, &machine, picture, report);
        gpu_close(machine.gpu);
    } else {
        ranks_measure(&options, picture, report);
    }
    picture_draw(picture, options.ranks, options.versus);
    study_picture_end(picture);
    program_json_write(options.study.json, report);
    return 0;
}
