/*
 * Three ways to convolve (Chu): a product of matrices, transforms, and Winograd, over sides of images
 * and windows, beside what oneDNN does for the trainer; from which window on transforms are faster.
 * All numbers are checked against float64.
 */
#include "benchmarks/studies/convolution_ways.h"
#include "benchmarks/studies/study.h"
#include "train/base/random.h"
#include "train/replica/replica.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

enum { WAYS = 3, WORKS = WAYS + 1, WINDOWS = 6, SIDES = 6, SAMPLES = 200 };

static const struct convolution_way *const ways[WAYS] = {&way_im2col, &way_fft, &way_winograd};
static const size_t sides[SIDES] = {7, 14, 28, 56, 112, 224};

struct options {
    struct study_options study;
    int channels, images, most;
    double seconds;
};

static const struct option_row option_rows[] = {
    {.name = "channels",
     .value = "N",
     .help = "of images, and as many filters",
     .kind = OPTION_NUMBER,
     .initial = "16",
     OPTION_FIELD(struct options, channels),
     .least = 1,
     .most = 1024},
    {.name = "images",
     .value = "N",
     .help = "in a batch",
     .kind = OPTION_NUMBER,
     .initial = "2",
     OPTION_FIELD(struct options, images),
     .least = 1,
     .most = 1024},
    {.name = "most",
     .value = "SIDE",
     .help = "leave out larger images (56; with --full 224)",
     .kind = OPTION_NUMBER,
     OPTION_FIELD(struct options, most),
     .least = 7,
     .most = 224},
    STUDY_SECONDS(struct options, seconds, "a side and window", "0.5"),
    STUDY_OPTIONS(struct options, study),
    {0}};

static const struct option_table option_table = {
    .options = option_rows,
    .about = "Convolutions by a product of matrices, by FFTW and by Winograd's F(2x2, 3x3), beside "
             "oneDNN's, for windows of 1 to 11 and images of 7 to 224.\vOne thread: set "
             "OMP_NUM_THREADS=1."};

/* One convolution in all ways. */
struct bench {
    struct shape shape;
    float *x, *w, *y;
    struct way_memory *memories[WAYS];
    struct network *network; /* a convolution and a loss: oneDNN's */
    struct replica *replica;
    struct one {
        struct bench *bench;
        int way;
    } ones[WORKS];
};

static size_t numbers_of(const struct shape *s, size_t channels)
{
    return s->images * channels * s->side * s->side;
}

static void run_way(void *context)
{
    const struct one *one = context;
    const struct bench *bench = one->bench;
    ways[one->way]->run(bench->memories[one->way], bench->x, bench->w, bench->y);
}

static void run_trainer(void *context)
{
    const struct one *one = context;
    const struct replica *replica = one->bench->replica;
    program_check(replica->ops->forward(replica->kernels, 1, true), "oneDNN's convolution");
}

/* Behind a ReLU, so that the images are in the order in which layers pass them on. */
static void replica_open(struct bench *bench)
{
    const struct shape *s = &bench->shape;
    const struct operation operations[] = {
        {.kind = OPERATION_RELU, .name = "relu", .in = {"input"}},
        {.kind = OPERATION_CONVOLUTION,
         .name = "convolution",
         .in = {"relu"},
         .filters = s->filters,
         .window = s->window,
         .stride = 1,
         .pad = s->window / 2},
        {.kind = OPERATION_CROSS_ENTROPY, .name = "loss", .in = {"convolution"}}};
    const struct replica_setup setup = {.kernels = kernels_default(ALNICO_DEVICE_CPU),
                                        .batch = s->images,
                                        .seed = 1,
                                        .gradient_type = ALNICO_FLOAT32};
    int32_t *labels = study_memory(numbers_of(s, 1) * sizeof *labels);
    program_check(network_create(s->side, s->side, s->channels, &bench->network), "the network");
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        program_check(network_append(bench->network, &operations[i]), "the network");
    program_check(network_finish(bench->network), "the network");
    program_check(replica_create(bench->network, &setup, &bench->replica), "oneDNN's convolution");
    program_check(replica_load(bench->replica, bench->x, labels, s->images), "the images");
    program_check(replica_forward(bench->replica, true), "oneDNN's convolution");
    free(labels);
}

static void bench_open(struct bench *bench)
{
    const struct shape *s = &bench->shape;
    bench->x = study_random(numbers_of(s, s->channels), 1);
    bench->w = study_random(s->filters * s->channels * s->window * s->window, 2);
    bench->y = study_memory(numbers_of(s, s->filters) * sizeof *bench->y);
    for (int i = 0; i < WORKS; i++)
        bench->ones[i] = (struct one){bench, i};
    for (int i = 0; i < WAYS; i++)
        if (!ways[i]->window || ways[i]->window == s->window)
            bench->memories[i] = ways[i]->open(s);
    replica_open(bench);
}

static void bench_close(struct bench *bench)
{
    for (int i = 0; i < WAYS; i++)
        if (bench->memories[i])
            ways[i]->close(bench->memories[i]);
    replica_destroy(bench->replica);
    network_destroy(bench->network);
    free(bench->x);
    free(bench->w);
    free(bench->y);
}

/* The most that some numbers of a way are away from float64. Numbers are from -1 to 1: a sum of K
 * products has a deviation of sqrt(K) / 3. */
static double way_apart(struct bench *bench, int way)
{
    const struct shape *s = &bench->shape;
    const size_t count = numbers_of(s, s->filters);
    const double deviation = sqrt((double)(s->channels * s->window * s->window)) / 3;
    uint64_t state = 3;
    double apart = 0;
    for (size_t i = 0; i < count; i++)
        bench->y[i] = NAN;
    run_way(&bench->ones[way]);
    for (int i = 0; i < SAMPLES; i++) {
        const size_t place = random_next(&state) % count;
        const double away = fabs(bench->y[place] - convolution_exact(s, bench->x, bench->w, place));
        if (!(away <= apart))
            apart = isnan(away) ? INFINITY : away;
    }
    return apart / deviation;
}

struct point {
    size_t window;
    double us[WORKS]; /* 0: not measured */
};

/* Rounding errors add up as the root of the products: a few hundred epsilon at most. */
static const double apart_most = 400 * FLT_EPSILON;

static struct point point_run(const struct options *options, size_t side, size_t window,
                              cJSON *rows)
{
    const size_t channels = (size_t)options->channels;
    struct bench bench = {.shape = {(size_t)options->images, channels, channels, side, window}};
    struct point point = {.window = window};
    struct study_work works[WORKS];
    int which[WORKS], count = 0;
    const struct study_device device = {.ops = &device_cpu};
    cJSON *row = json_add(json_row(rows), "side %zu window %zu", side, window);
    bench_open(&bench);
    for (int i = 0; i < WAYS; i++) {
        if (!bench.memories[i])
            continue;
        const double apart = way_apart(&bench, i);
        if (apart > apart_most)
            program_fail("%s, side %zu, window %zu: %g from float64, expected at most %g",
                         ways[i]->name, side, window, apart, apart_most);
        char key[32];
        snprintf(key, sizeof key, "%s_apart", ways[i]->name);
        cJSON_AddNumberToObject(row, key, apart);
        works[count] = (struct study_work){.run = run_way, .context = &bench.ones[i]};
        which[count++] = i;
    }
    works[count] = (struct study_work){.run = run_trainer, .context = &bench.ones[WAYS]};
    which[count++] = WAYS;
    study_race(&device, works, count, options->seconds);
    for (int i = 0; i < count; i++)
        point.us[which[i]] = works[i].us;
    bench_close(&bench);
    printf("%5zu %7zu", side, window);
    for (int i = 0; i < WORKS; i++) {
        cJSON_AddNumberToObject(row, i < WAYS ? ways[i]->name : "oneDNN", point.us[i]);
        if (point.us[i] > 0)
            printf(" %10.1f", point.us[i]);
        else
            printf(" %10s", "");
    }
    printf("\n");
    fflush(stdout);
    return point;
}

static void panel_draw(FILE *picture, size_t side, const struct point *points)
{
    static const char *const unmeasured = "NaN";
    if (!picture)
        return;
    fprintf(picture, "$side%zu << END\n", side);
    for (int i = 0; i < WINDOWS; i++) {
        fprintf(picture, "%zu", points[i].window);
        for (int k = 0; k < WORKS; k++)
            if (points[i].us[k] > 0)
                fprintf(picture, " %g", points[i].us[k] * 1e-3);
            else
                fprintf(picture, " %s", unmeasured);
        fprintf(picture, "\n");
    }
    fprintf(picture,
            "END\nset title '%zu x %zu'\nset logscale y\nset xlabel 'window'\n"
            "set ylabel 'ms'\nplot ",
            side, side);
    for (int k = 0; k < WORKS; k++)
        fprintf(picture, "%s$side%zu using 1:%d with linespoints lt %d title '%s'", k ? ", " : "",
                side, k + 2, k + 1, k < WAYS ? ways[k]->name : "oneDNN");
    fprintf(picture, "\n");
}

/* The window from which on transforms are faster than the product; 0: none is. */
static size_t transforms_from(const struct point *points)
{
    size_t from = 0;
    for (int i = WINDOWS - 1; i >= 0 && points[i].us[1] < points[i].us[0]; i--)
        from = points[i].window;
    return from;
}

static void side_run(const struct options *options, size_t side, FILE *picture, cJSON *report)
{
    struct point points[WINDOWS];
    for (int i = 0; i < WINDOWS; i++)
        points[i] =
            point_run(options, side, 2 * (size_t)i + 1, cJSON_GetObjectItem(report, "rows"));
    const size_t from = transforms_from(points);
    if (from)
        printf("# %zu x %zu: transforms are faster than the product from a window of %zu on\n",
               side, side, from);
    else
        printf("# %zu x %zu: transforms are not faster than the product\n", side, side);
    json_add(json_row(cJSON_GetObjectItem(report, "sides")),
             "side %zu transforms_from %zu winograd_speedup %g", side, from,
             points[1].us[0] / points[1].us[2]);
    panel_draw(picture, side, points);
}

int main(int argc, char **argv)
{
    struct options options = {0};
    int count = 0;
    program_start();
    options_read(&option_table, argc, argv, &options);
    if (!options.most)
        options.most = options.study.full ? 224 : 56;
    study_begin(&options.study);
    program_json_try(options.study.json);
    while (count < SIDES && sides[count] <= (size_t)options.most)
        count++;
    FILE *picture = study_picture_begin(&options.study, "A convolution in three ways", count, 0.35);
    cJSON *report = json_add(study_report("convolutions"), "channels %d images %d",
                             options.channels, options.images);
    json_add(report, "plain_products %d winograd_products %d", PLAIN_PRODUCTS, WINOGRAD_PRODUCTS);
    cJSON_AddArrayToObject(report, "rows");
    cJSON_AddArrayToObject(report, "sides");
    printf("# %d images, %d channels and filters; us. 2 x 2 of y: %d products, by Winograd %d\n"
           "%5s %7s",
           options.images, options.channels, PLAIN_PRODUCTS, WINOGRAD_PRODUCTS, "side", "window");
    for (int i = 0; i < WORKS; i++)
        printf(" %10s", i < WAYS ? ways[i]->name : "oneDNN");
    printf("\n");
    for (int i = 0; i < count; i++)
        side_run(&options, sides[i], picture, report);
    study_picture_end(picture);
    program_json_write(options.study.json, report);
    return 0;
}
