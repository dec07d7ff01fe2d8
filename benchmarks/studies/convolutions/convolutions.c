/*
 * Three ways to convolve (Chu): a product of matrices, transforms, and Winograd, over sides of images
 * and windows, beside what oneDNN or cuDNN does for the trainer; from which window on transforms are
 * faster. All numbers are checked against float64.
 */
#include "benchmarks/studies/convolutions/ways.h"
#include "benchmarks/studies/convolutions/winograd.h"
#include "benchmarks/studies/study.h"
#include "train/base/random.h"
#include "train/replica/replica.h"

#include <float.h>
#include <math.h>
#include <stdlib.h>

enum {
    WAYS = CONVOLUTION_WAYS,
    WORKS = WAYS + 1,
    WINDOWS = 6,
    SIDES = 6,
    SAMPLES = 200,
    NOT_HERE = 77
};

/* By alnico_device_t: the ways, and the trainer's library. */
static const struct {
    const struct convolution_way *ways; /* NULL: built without */
    const char *peer;
    int channels, images;
} kinds[] = {[ALNICO_DEVICE_CPU] = {convolution_ways_cpu, "oneDNN", 16, 2},
#ifdef STUDY_HAVE_CUFFT
             [ALNICO_DEVICE_CUDA] = {convolution_ways_gpu, "cuDNN", 64, 16}};
#else
             [ALNICO_DEVICE_CUDA] = {0}};
#endif
static const size_t sides[SIDES] = {7, 14, 28, 56, 112, 224};

struct options {
    struct study_options study;
    alnico_device_t device;
    int channels, images, most;
    double seconds;
};

static const struct option_row option_rows[] = {
    STUDY_DEVICE(struct options, device),
    {.name = "channels",
     .value = "N",
     .help = "of images, and as many filters (16; on a GPU 64)",
     .kind = OPTION_NUMBER,
     OPTION_FIELD(struct options, channels),
     .least = 1,
     .most = 1024},
    {.name = "images",
     .value = "N",
     .help = "in a batch (2; on a GPU 16)",
     .kind = OPTION_NUMBER,
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
    .about =
        "Convolutions by a product of matrices, by transforms and by Winograd's F(2x2, 3x3), "
        "beside oneDNN's or cuDNN's, for windows of 1 to 11 and images of 7 to 224.\vOn the CPU "
        "on one thread: set OMP_NUM_THREADS=1."};

/* One convolution in all ways. */
struct bench {
    const struct study_device *device;
    const struct convolution_way *ways;
    struct shape shape;
    float *host_x, *host_w;
    float *x, *w, *y; /* of the device */
    struct way_memory *memories[WAYS];
    struct network *network; /* a convolution and a loss: the trainer's */
    struct replica *replica;
    size_t step; /* the convolution's */
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
    bench->ways[one->way].run(bench->memories[one->way], bench->x, bench->w, bench->y);
}

static void run_trainer(void *context)
{
    const struct one *one = context;
    const struct replica *replica = one->bench->replica;
    program_check(replica->ops->forward(replica->kernels, one->bench->step, true),
                  "the trainer's convolution");
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
    const struct replica_setup setup = {.kernels = kernels_default(bench->device->ops->kind),
                                        .batch = s->images,
                                        .seed = 1,
                                        .options.full_float = true,
                                        .stream = bench->device->stream,
                                        .gradient_type = ALNICO_FLOAT32};
    int32_t *labels = study_memory(numbers_of(s, 1) * sizeof *labels);
    program_check(network_create(s->side, s->side, s->channels, &bench->network), "the network");
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        program_check(network_append(bench->network, &operations[i]), "the network");
    program_check(network_finish(bench->network), "the network");
    program_check(replica_create(bench->network, &setup, &bench->replica), "the replica");
    program_check(replica_load(bench->replica, bench->host_x, labels, s->images), "the images");
    program_check(replica_forward(bench->replica, true), "the trainer's convolution");
    program_check(replica_synchronize(bench->replica), "the trainer's convolution");
    while (bench->network->nodes[bench->replica->plan->steps[bench->step].first].operation.kind !=
           OPERATION_CONVOLUTION)
        bench->step++;
    free(labels);
}

static void bench_open(struct bench *bench)
{
    const struct shape *s = &bench->shape;
    const size_t of_x = numbers_of(s, s->channels), of_y = numbers_of(s, s->filters),
                 of_w = s->filters * s->channels * s->window * s->window;
    bench->host_x = study_random(of_x, 1);
    bench->host_w = study_random(of_w, 2);
    bench->x = study_put(bench->device, bench->host_x, of_x * sizeof(float));
    bench->w = study_put(bench->device, bench->host_w, of_w * sizeof(float));
    bench->y = study_put(bench->device, NULL, of_y * sizeof(float));
    for (int i = 0; i < WORKS; i++)
        bench->ones[i] = (struct one){bench, i};
    for (int i = 0; i < WAYS; i++)
        if (!bench->ways[i].window || bench->ways[i].window == s->window)
            bench->memories[i] = bench->ways[i].open(bench->device, s);
    replica_open(bench);
}

static void bench_close(struct bench *bench)
{
    for (int i = 0; i < WAYS; i++)
        if (bench->memories[i])
            bench->ways[i].close(bench->memories[i]);
    replica_destroy(bench->replica);
    network_destroy(bench->network);
    bench->device->ops->free(bench->x);
    bench->device->ops->free(bench->w);
    bench->device->ops->free(bench->y);
    free(bench->host_x);
    free(bench->host_w);
}

/* The most that some numbers of a way are away from float64. Numbers are from -1 to 1: a sum of K
 * products has a deviation of sqrt(K) / 3. */
static double way_apart(struct bench *bench, int way)
{
    const struct shape *s = &bench->shape;
    const size_t count = numbers_of(s, s->filters);
    const double deviation = sqrt((double)(s->channels * s->window * s->window)) / 3;
    float *y = study_memory(count * sizeof *y);
    uint64_t state = 3;
    double apart = 0;
    for (size_t i = 0; i < count; i++)
        y[i] = NAN;
    program_check(bench->device->ops->copy(bench->y, y, count * sizeof *y, bench->device->stream),
                  "clearing the result");
    run_way(&bench->ones[way]);
    study_get(bench->device, y, bench->y, count * sizeof *y);
    for (int i = 0; i < SAMPLES; i++) {
        const size_t place = random_next(&state) % count;
        const double away =
            fabs(y[place] - convolution_exact(s, bench->host_x, bench->host_w, place));
        if (!(away <= apart))
            apart = isnan(away) ? INFINITY : away;
    }
    free(y);
    return apart / deviation;
}

struct point {
    size_t window;
    double us[WORKS]; /* 0: not measured */
};

/* Rounding errors add up as the root of the products: a few hundred epsilon at most. */
static const double apart_most = 400 * FLT_EPSILON;

static const char *work_name(const struct options *options, int i)
{
    return i < WAYS ? kinds[options->device].ways[i].name : kinds[options->device].peer;
}

static struct point point_run(const struct options *options, const struct study_device *device,
                              size_t side, size_t window, cJSON *rows)
{
    const size_t channels = (size_t)options->channels;
    struct bench bench = {.device = device,
                          .ways = kinds[options->device].ways,
                          .shape = {(size_t)options->images, channels, channels, side, window}};
    struct point point = {.window = window};
    struct study_work works[WORKS];
    int which[WORKS], count = 0;
    cJSON *row = json_add(json_row(rows), "side %zu window %zu", side, window);
    bench_open(&bench);
    for (int i = 0; i < WAYS; i++) {
        if (!bench.memories[i])
            continue;
        const double apart = way_apart(&bench, i);
        if (apart > apart_most)
            program_fail("%s, side %zu, window %zu: %g from float64, expected at most %g",
                         bench.ways[i].name, side, window, apart, apart_most);
        char key[32];
        snprintf(key, sizeof key, "%s_apart", bench.ways[i].name);
        cJSON_AddNumberToObject(row, key, apart);
        works[count] = (struct study_work){.run = run_way, .context = &bench.ones[i]};
        which[count++] = i;
    }
    works[count] = (struct study_work){.run = run_trainer, .context = &bench.ones[WAYS]};
    which[count++] = WAYS;
    study_race(device, works, count, options->seconds);
    for (int i = 0; i < count; i++)
        point.us[which[i]] = works[i].us;
    bench_close(&bench);
    printf("%5zu %7zu", side, window);
    for (int i = 0; i < WORKS; i++) {
        cJSON_AddNumberToObject(row, work_name(options, i), point.us[i]);
        if (point.us[i] > 0)
            printf(" %10.1f", point.us[i]);
        else
            printf(" %10s", "");
    }
    printf("\n");
    fflush(stdout);
    return point;
}

static void panel_draw(const struct options *options, FILE *picture, size_t side,
                       const struct point *points)
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
                side, k + 2, k + 1, work_name(options, k));
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

static void side_run(const struct options *options, const struct study_device *device, size_t side,
                     FILE *picture, cJSON *report)
{
    struct point points[WINDOWS];
    for (int i = 0; i < WINDOWS; i++)
        points[i] = point_run(options, device, side, 2 * (size_t)i + 1,
                              cJSON_GetObjectItem(report, "rows"));
    const size_t from = transforms_from(points);
    if (from)
        printf("# %zu x %zu: transforms are faster than the product from a window of %zu on\n",
               side, side, from);
    else
        printf("# %zu x %zu: transforms are not faster than the product\n", side, side);
    json_add(json_row(cJSON_GetObjectItem(report, "sides")),
             "side %zu transforms_from %zu winograd_speedup %g", side, from,
             points[1].us[0] / points[1].us[2]);
    panel_draw(options, picture, side, points);
}

int main(int argc, char **argv)
{
    struct options options = {0};
    int count = 0;
    program_start();
    options_read(&option_table, argc, argv, &options);
    if (!options.most)
        options.most = options.study.full ? 224 : 56;
    if (!options.channels)
        options.channels = kinds[options.device].channels;
    if (!options.images)
        options.images = kinds[options.device].images;
    study_begin(&options.study);
    const struct study_device device = study_device_open(options.device);
    if (!kinds[options.device].ways) {
        fprintf(stderr, "--device cuda: built without cuFFT\n");
        return NOT_HERE;
    }
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
        printf(" %10s", work_name(&options, i));
    printf("\n");
    for (int i = 0; i < count; i++)
        side_run(&options, &device, sides[i], picture, report);
    study_picture_end(picture);
    program_json_write(options.study.json, report);
    return 0;
}
