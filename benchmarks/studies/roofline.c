/*
 * The roof over a device (Williams, Waterman, Patterson 2009; Chu): products a second against products
 * a byte, of dot products, products of matrices with vectors and with matrices, and of every step of
 * a network, under the least of the measured peak and the measured bandwidth times the intensity.
 */
#include "benchmarks/studies/blas.h"
#include "benchmarks/studies/hpcc.h"
#include "benchmarks/studies/network_times.h"
#include "benchmarks/studies/study.h"

#include <float.h>
#include <math.h>
#include <omp.h>
#include <stdlib.h>
#include <string.h>

enum { POINTS_MOST = 1024, SQUARES = 5, TURNS = 5, VECTOR = 16 << 20 };

/* hpcc's N, with which its vectors have as many bytes as ours, and the block of its Linpack. */
static const int peer_size = 5000, peer_block = 128;

struct options {
    struct study_options study;
    alnico_device_t device;
    const char *model;
    int batch, size;
    bool versus; /* hpcc */
    double seconds;
};

static const struct option_row option_rows[] = {
    STUDY_DEVICE(struct options, device),
    {.name = "model",
     .value = "NAME",
     .help = "network whose steps are measured",
     .kind = OPTION_TEXT,
     .initial = "resnet20",
     OPTION_FIELD(struct options, model)},
    {.name = "batch",
     .value = "N",
     .help = "its images",
     .kind = OPTION_NUMBER,
     .initial = "32",
     OPTION_FIELD(struct options, batch),
     .least = 1,
     .most = 1 << 16},
    {.name = "size",
     .value = "N",
     .help = "of the largest products, N x N (2048; with --full or on a GPU 8192)",
     .kind = OPTION_NUMBER,
     OPTION_FIELD(struct options, size),
     .least = 16,
     .most = 1 << 15},
    STUDY_SECONDS(struct options, seconds, "a product", "0.5"),
    HPCC_VERSUS(struct options, versus),
    STUDY_OPTIONS(struct options, study),
    {0}};

static void options_finish(struct argp_state *state, void *out)
{
    struct options *options = out;
    const bool cuda = options->device == ALNICO_DEVICE_CUDA;
    if (cuda && options->versus)
        argp_error(state, "--versus hpcc: it runs on the CPU only");
    if (!options->size)
        options->size = cuda || options->study.full ? 8192 : 2048;
}

static const struct option_table option_table = {
    .options = option_rows,
    .about =
        "Products a second against products a byte: BLAS, and every step of a network, under the "
        "roof of the device.\v--full measures larger matrices.",
    .finish = options_finish};

/* One measured step: floating-point operations, bytes, time. */
struct point {
    char name[64];
    const char *kind;
    double flops, bytes, us;
};

struct points {
    struct point all[POINTS_MOST];
    int count;
};

static struct point *point_add(struct points *points, const char *kind, const char *name)
{
    if (points->count == POINTS_MOST)
        program_fail("more than %d steps", POINTS_MOST);
    struct point *point = &points->all[points->count++];
    *point = (struct point){.kind = kind};
    snprintf(point->name, sizeof point->name, "%s", name);
    return point;
}

/* ---- The roof's slope as STREAM counts it: two vectors read and one written, the fastest pass ---- */

struct vectors {
    const struct study_device *device;
    float *to, *a, *b;
    size_t count;
};

static void vectors_add(void *context)
{
    const struct vectors *v = context;
    if (v->device->ops->kind != ALNICO_DEVICE_CPU) {
        program_check(v->device->ops->reduce(v->to, v->a, v->b, v->count, ALNICO_FLOAT32,
                                             ALNICO_SUM, v->device->stream),
                      "adding vectors");
        return;
    }
    float *restrict to = v->to;
    const float *a = v->a, *b = v->b;
#pragma omp parallel for simd
    for (size_t i = 0; i < v->count; i++)
        to[i] = a[i] + b[i];
}

/* Bytes in a microsecond; far more than caches hold. */
static double bandwidth_measure(const struct options *options, const struct study_device *device)
{
    struct vectors v = {.device = device, .count = VECTOR};
    struct study_work work = {.run = vectors_add, .context = &v};
    const size_t bytes = v.count * sizeof(float);
    v.to = study_put(device, NULL, bytes);
    v.a = study_put(device, NULL, bytes);
    v.b = study_put(device, NULL, bytes);
    study_race(device, &work, 1, options->seconds);
    device->ops->free(v.to);
    device->ops->free(v.a);
    device->ops->free(v.b);
    return 3 * (double)bytes / work.least_us;
}

/* ---- Products ---- */

/* Fails the study unless the first number of a product of `numbers` with themselves is float64's. */
/* On the CPU rounding errors add up as the root of the depth (Higham, Mary 2019). */
static void product_check(const struct study_device *device, struct blas *blas,
                          const struct product *p, const float *numbers)
{
    const double most = device->ops->kind == ALNICO_DEVICE_CPU
                            ? sqrt((double)p->depth) * FLT_EPSILON
                            : 5e-3; /* TF32 */
    double sum = 0, size = 0;
    float got;
    for (size_t k = 0; k < p->depth; k++) {
        const double term = (double)numbers[k] * numbers[k * p->columns];
        sum += term;
        size += fabs(term);
    }
    blas_multiply(blas, p);
    study_get(device, &got, p->c.at, sizeof got);
    if (!(fabs(got - sum) <= most * size))
        program_fail("a product of %zu x %zu x %zu begins with %g, expected %g", p->rows, p->depth,
                     p->columns, got, sum);
}

/* The fastest way of the library. Bytes: each matrix once. */
static void product_measure(const struct options *options, const struct study_device *device,
                            struct point *point, const size_t sizes[3])
{
    const size_t rows = sizes[0], columns = sizes[1], depth = sizes[2];
    struct blas *blas = blas_open(device);
    float *host = study_random(rows * depth > depth * columns ? rows * depth : depth * columns, 1);
    struct product p = {{study_put(device, host, rows * depth * sizeof *host), false, depth},
                        {study_put(device, host, depth * columns * sizeof *host), false, columns},
                        {study_put(device, NULL, rows * columns * sizeof *host), false, columns},
                        rows,
                        columns,
                        depth};
    struct study_work works[BLAS_WAYS];
    const int count = blas_works(blas, &p, works);
    product_check(device, blas, &p, host);
    study_race(device, works, count, options->seconds);
    point->us = blas_best_us(works, count);
    point->flops = 2 * (double)rows * (double)columns * (double)depth;
    point->bytes = 4 * ((double)rows * (double)depth + (double)depth * (double)columns +
                        (double)rows * (double)columns);
    blas_close(blas);
    device->ops->free(p.a.at);
    device->ops->free(p.b.at);
    device->ops->free(p.c.at);
    free(host);
}

/* The peak is the rate of the fastest product. */
static double products_measure(const struct options *options, const struct study_device *device,
                               struct points *points)
{
    const size_t square = (size_t)options->size, side = 2 * square;
    const size_t dot[] = {1, 1, side * side}, times_vector[] = {side, 1, side};
    double peak = 0;
    product_measure(options, device, point_add(points, "dot", "dot product"), dot);
    product_measure(options, device, point_add(points, "vector", "matrix by vector"), times_vector);
    for (size_t n = square >> (SQUARES - 1); n <= square; n *= 2) {
        char name[32];
        const size_t sizes[] = {n, n, n};
        snprintf(name, sizeof name, "%zu x %zu", n, n);
        struct point *point = point_add(points, "matrix", name);
        product_measure(options, device, point, sizes);
        peak = fmax(peak, point->flops / point->us);
    }
    return peak;
}

/* ---- A network ---- */

static void steps_add(const struct profile *profile, struct points *points)
{
    const struct plan *plan = profile->replica->plan;
    for (size_t s = 0; s < plan->count; s++)
        for (int way = 0; way < 2; way++) {
            const struct step_cost cost =
                step_cost(plan, &profile->replica->ops->rules, &profile->rates, s, way);
            const struct operation *operation =
                &plan->network->nodes[plan->steps[s].first].operation;
            char name[64];
            snprintf(name, sizeof name, "%s, %s", operation->name, way ? "backward" : "forward");
            if (cost.flops <= 0)
                continue;
            struct point *point = point_add(points, operation_kind_name(operation->kind), name);
            point->flops = cost.flops;
            point->bytes = cost.bytes;
            point->us = profile->us[s][way];
        }
}

/* ---- Beside hpcc ---- */

struct roof {
    double peak, bandwidth; /* floating-point operations, bytes in a microsecond */
};

/* The bandwidth by turns with STREAM's triad on as many ranks as we have threads; the peak beside
 * their products, whose float64 takes twice the time of our float32. */
static void peer_run(const struct options *options, const struct study_device *device,
                     struct roof *roof, cJSON *report)
{
    struct hpcc hpcc = {.size = peer_size,
                        .ranks = omp_get_max_threads(),
                        .threads = 1,
                        .blocks = &peer_block,
                        .count = 1};
    double ours[TURNS], triads[TURNS], products[TURNS];
    for (int turn = 0; turn < TURNS; turn++) {
        ours[turn] = bandwidth_measure(options, device) * 1e-3;
        hpcc_run(&hpcc);
        triads[turn] = hpcc.triad_gbytes;
        products[turn] = 2 * hpcc.dgemm_gflops;
    }
    const double triad = study_median(triads, TURNS), product = study_median(products, TURNS);
    roof->bandwidth = study_median(ours, TURNS) * 1e3;
    const double wide = roof->bandwidth * 1e-3 / triad, high = roof->peak * 1e-3 / product;
    printf("# STREAM's triad: %.4g GB/s, ours by it %.3f; hpcc's products, doubled: %.4g GFLOP/s, "
           "ours by it %.3f\n",
           triad, wide, product, high);
    json_add(report,
             "stream_gbytes_per_second %g bandwidth_ratio %g dgemm_doubled_gflops %g "
             "peak_ratio %g",
             triad, wide, product, high);
}

/* ---- What it shows ---- */

static double roof_at(const struct roof *roof, const struct point *point)
{
    return fmin(roof->peak, roof->bandwidth * point->flops / point->bytes);
}

static void points_tell(const struct points *points, const struct roof *roof, cJSON *rows)
{
    printf("# peak %.4g GFLOP/s, bandwidth %.4g GB/s, ridge at %.3g FLOP/B\n%-28s %-14s %9s %11s "
           "%7s\n",
           roof->peak * 1e-3, roof->bandwidth * 1e-3, roof->peak / roof->bandwidth, "# what",
           "kind", "FLOP/B", "GFLOP/s", "roof");
    for (int i = 0; i < points->count; i++) {
        const struct point *p = &points->all[i];
        const double intensity = p->flops / p->bytes, rate = p->flops / p->us,
                     share = rate / roof_at(roof, p);
        printf("%-28s %-14s %9.3f %11.4g %5.0f %%\n", p->name, p->kind, intensity, rate * 1e-3,
               100 * share);
        json_add(json_row(rows), "name %s kind %s intensity %g gflops %g share_of_roof %g flops %g",
                 p->name, p->kind, intensity, rate * 1e-3, share, p->flops);
    }
}

/* Kinds get a point of their own: two of the library, convolutions, all other steps. */
static int mark_of(const struct point *point)
{
    return strcmp(point->kind, "matrix") == 0   ? 2
           : strcmp(point->kind, "dot") == 0    ? 1
           : strcmp(point->kind, "vector") == 0 ? 1
           : strstr(point->kind, "conv")        ? 3
                                                : 4;
}

static void picture_draw(FILE *picture, const struct points *points, const struct roof *roof)
{
    static const char *const titles[] = {"BLAS, vectors", "BLAS, matrices", "convolutions",
                                         "other steps"};
    if (!picture)
        return;
    for (int mark = 1; mark <= 4; mark++) {
        fprintf(picture, "$points%d << END\n", mark);
        for (int i = 0; i < points->count; i++) {
            const struct point *p = &points->all[i];
            if (mark_of(p) == mark)
                fprintf(picture, "%g %g\n", p->flops / p->bytes, p->flops / p->us * 1e-3);
        }
        fprintf(picture, "END\n");
    }
    fprintf(
        picture,
        "set logscale x 2\nset logscale y\n"
        "set xlabel 'floating-point operations a byte'\nset ylabel 'GFLOP/s'\n"
        "roof(x) = x * %g < %g ? x * %g : %g\nplot [0.125:] roof(x) with lines lt 1 title 'roof'",
        roof->bandwidth * 1e-3, roof->peak * 1e-3, roof->bandwidth * 1e-3, roof->peak * 1e-3);
    for (int mark = 1; mark <= 4; mark++)
        fprintf(picture, ", $points%d with points lt %d ps 1 title '%s'", mark, mark,
                titles[mark - 1]);
    fprintf(picture, "\n");
}

int main(int argc, char **argv)
{
    static struct points points;
    struct options options = {0};
    struct roof roof;
    program_start();
    options_read(&option_table, argc, argv, &options);
    network_named(options.model);
    study_begin(&options.study);
    if (options.versus)
        hpcc_require();
    program_json_try(options.study.json);
    const struct study_device device = study_device_open(options.device);
    roof.bandwidth = bandwidth_measure(&options, &device);
    roof.peak = products_measure(&options, &device, &points);
    struct trainer_times times = network_times(&device, options.model, (size_t)options.batch);
    steps_add(&times.profile, &points);
    trainer_times_free(&times);
    FILE *picture = study_picture_begin(&options.study, "The roof", 1, 0.6);
    cJSON *report = study_report("roofline");
    if (options.versus)
        peer_run(&options, &device, &roof, report);
    json_add(report, "device %s model %s batch %d peak_gflops %g gbytes_per_second %g",
             option_devices[options.device], options.model, options.batch, roof.peak * 1e-3,
             roof.bandwidth * 1e-3);
    points_tell(&points, &roof, cJSON_AddArrayToObject(report, "rows"));
    picture_draw(picture, &points, &roof);
    study_picture_end(picture);
    program_json_write(options.study.json, report);
    return 0;
}
