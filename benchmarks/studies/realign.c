/*
 * A column of ones in and out of a matrix in place, so that a dense layer's bias is a column of its
 * weights (Biswas, SHM-Learn-Dist), beside a copy and, on a GPU, beside the source's two kernels; and
 * the layer with such a bias, realigned, or with rows that have room for the ones from the beginning.
 */
#include "train/kernels/realign.h"
#include "benchmarks/studies/blas.h"
#include "benchmarks/studies/study.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#ifdef ALNICO_HAVE_CUDNN
#include "benchmarks/studies/realign_source.h"
#include "train/kernels/cudnn/library.h"
#endif

enum { SIZES = 8, WORKS = 4, PRODUCTS = 3, LAYOUTS = 2 };

struct options {
    struct study_options study;
    alnico_device_t device;
    int columns, batch, outputs;
    double seconds;
};

static const struct option_row option_rows[] = {
    STUDY_DEVICE(struct options, device),
    {.name = "columns",
     .value = "N",
     .help = "of the matrices, and inputs of the layer",
     .kind = OPTION_NUMBER,
     .initial = "4096",
     OPTION_FIELD(struct options, columns),
     .least = 1,
     .most = 1 << 18},
    {.name = "batch",
     .value = "N",
     .help = "of the layer",
     .kind = OPTION_NUMBER,
     .initial = "256",
     OPTION_FIELD(struct options, batch),
     .least = 1,
     .most = 1 << 16},
    {.name = "outputs",
     .value = "N",
     .help = "of the layer",
     .kind = OPTION_NUMBER,
     .initial = "1024",
     OPTION_FIELD(struct options, outputs),
     .least = 1,
     .most = 1 << 16},
    STUDY_SECONDS(struct options, seconds, "a size", "1"),
    STUDY_OPTIONS(struct options, study),
    {0}};

static const struct option_table option_table = {
    .options = option_rows,
    .about =
        "A column of ones in and out of matrices of 1 to 64 MB in place, and a dense layer whose "
        "bias it makes a column of weights.\v--full goes on to 1 GB."};

/* ---- Matrices ---- */

struct bench {
    struct study_device device;
    struct realign pass;
    void *scratch; /* of our kernel */
    float *other;  /* as large as the matrix; on a GPU */
    float *helper; /* of the source's kernels; NULL: not measured */
};

static void pass_run(const struct bench *bench, bool right)
{
    struct realign pass = bench->pass;
    pass.right = right;
    if (bench->device.ops->kind == ALNICO_DEVICE_CPU)
        realign(&pass);
#ifdef ALNICO_HAVE_CUDNN
    else
        program_check(
            gpu_status(train_realign(&pass, bench->scratch, bench->device.stream), "realign"),
            "realigning");
#endif
}

static void run_right(void *context)
{
    pass_run(context, true);
}

static void run_left(void *context)
{
    pass_run(context, false);
}

/* On the CPU in place, by one number; on a GPU to other memory. */
static void run_copy(void *context)
{
    const struct bench *bench = context;
    const struct realign *pass = &bench->pass;
    const size_t bytes = pass->rows * pass->columns * sizeof(float);
    if (bench->other)
        program_check(
            bench->device.ops->copy(bench->other, pass->matrix, bytes, bench->device.stream),
            "copying");
    else
        memmove(pass->matrix + 1, pass->matrix, bytes);
}

static void run_source(void *context)
{
#ifdef ALNICO_HAVE_CUDNN
    const struct bench *bench = context;
    const struct realign *pass = &bench->pass;
    program_check(gpu_status(realign_source_right(pass->matrix, pass->rows, pass->columns,
                                                  bench->helper, bench->device.stream),
                             "the source's kernels"),
                  "realigning");
#else
    (void)context;
#endif
}

static void bench_open(struct bench *bench, size_t rows, size_t columns)
{
    const size_t bytes = rows * (columns + 1) * sizeof(float);
    bench->pass = (struct realign){.rows = rows, .columns = columns};
    bench->pass.matrix = study_put(&bench->device, NULL, bytes);
#ifdef ALNICO_HAVE_CUDNN
    if (bench->device.ops->kind == ALNICO_DEVICE_CPU)
        return;
    bench->scratch = study_put(&bench->device, NULL, train_realign_scratch(&bench->pass) + 4);
    bench->other = study_put(&bench->device, NULL, bytes);
    bench->helper = study_put(&bench->device, NULL, (rows * (rows - 1) / 2 + 1) * sizeof(float));
#endif
}

static void bench_close(struct bench *bench)
{
    void *const all[] = {bench->pass.matrix, bench->scratch, bench->other, bench->helper};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        bench->device.ops->free(all[i]);
}

/* Fails the study unless ones come in by `way` and the numbers are where they belong. */
static void matrix_check(struct bench *bench, const char *name, void (*way)(void *))
{
    const struct realign *pass = &bench->pass;
    const size_t count = pass->rows * pass->columns, wide = count + pass->rows;
    float *first = study_random(count, 1), *got = study_memory(wide * sizeof *got);
    program_check(
        bench->device.ops->copy(pass->matrix, first, count * sizeof *first, bench->device.stream),
        "the matrix");
    way(bench);
    study_get(&bench->device, got, pass->matrix, wide * sizeof *got);
    for (size_t i = 0; i < wide; i++) {
        const size_t row = i / (pass->columns + 1), column = i % (pass->columns + 1);
        if (got[i] != (column ? first[row * pass->columns + column - 1] : 1))
            program_fail("%s: number %zu of %zu x %zu is wrong", name, i, pass->rows,
                         pass->columns);
    }
    free(first);
    free(got);
}

struct row {
    double megabytes, gbytes[WORKS]; /* read and written in a second; 0: not measured */
};

static const char *const work_names[WORKS] = {"right", "left", "copy", "source"};

static struct row size_run(const struct options *options, const struct study_device *device,
                           double megabytes, cJSON *rows)
{
    struct study_work works[WORKS] = {
        {.run = run_right}, {.run = run_left}, {.run = run_copy}, {.run = run_source}};
    struct bench bench = {.device = *device};
    struct row row = {.megabytes = megabytes};
    const size_t columns = (size_t)options->columns,
                 all = (size_t)(megabytes * 1e6 / (double)(columns * sizeof(float))),
                 many = all ? all : 1;
    bench_open(&bench, many, columns);
    const int count = bench.helper ? WORKS : WORKS - 1;
    matrix_check(&bench, "right", run_right);
    if (bench.helper)
        matrix_check(&bench, "the source's kernels", run_source);
    for (int i = 0; i < count; i++)
        works[i].context = &bench;
    study_race(device, works, count, options->seconds);
    cJSON *object =
        json_add(json_row(rows), "megabytes %g rows %zu columns %zu", megabytes, many, columns);
    printf("%8.0f %9zu", megabytes, many);
    for (int i = 0; i < count; i++) {
        row.gbytes[i] = 2 * (double)(many * columns * sizeof(float)) / works[i].us * 1e-3;
        printf(" %8.2f", row.gbytes[i]);
        cJSON_AddNumberToObject(object, work_names[i], row.gbytes[i]);
    }
    printf(" %9.2f\n", row.gbytes[0] / row.gbytes[2]);
    bench_close(&bench);
    return row;
}

/* ---- The layer ---- */

/* y = [1 x] w^T, dw = y^T [1 x], dx = y w. Realigned: x and dx are packed before and after.
 * Otherwise their rows have room for the one, which stands there. */
struct layer {
    struct bench x, dx;
    struct blas *blas;
    float *w, *y, *dw;
    struct product products[PRODUCTS];
    bool realigned;
};

static void layer_run(void *context)
{
    struct layer *layer = context;
    if (layer->realigned)
        run_right(&layer->x);
    for (int i = 0; i < PRODUCTS; i++)
        blas_multiply(layer->blas, &layer->products[i]);
    if (layer->realigned)
        run_left(&layer->dx);
}

/* Its x begins as the study's random numbers, packed or behind ones. */
static void layer_open(struct layer *layer, const struct options *options, const float *x,
                       const float *w)
{
    const struct study_device *device = &layer->x.device;
    const size_t rows = (size_t)options->batch, in = (size_t)options->columns, wide = in + 1,
                 out = (size_t)options->outputs, skip = layer->realigned ? 0 : 1;
    float *first = study_memory(rows * wide * sizeof *first);
    for (size_t i = 0; i < rows * wide; i++)
        first[i] = i % wide ? x[i / wide * in + i % wide - 1] : 1;
    bench_open(&layer->x, rows, in);
    bench_open(&layer->dx, rows, in);
    program_check(device->ops->copy(layer->x.pass.matrix, layer->realigned ? x : first,
                                    rows * (in + skip) * sizeof *x, device->stream),
                  "the inputs");
    layer->w = study_put(device, w, out * wide * sizeof *w);
    layer->y = study_put(device, NULL, rows * out * sizeof *w);
    layer->dw = study_put(device, NULL, out * wide * sizeof *w);
    layer->blas = blas_open(device);
    float *const ones = layer->x.pass.matrix, *const dx = layer->dx.pass.matrix;
    layer->products[0] = (struct product){
        {ones, false, wide}, {layer->w, true, wide}, {layer->y, false, out}, rows, out, wide};
    layer->products[1] = (struct product){
        {layer->y, true, out}, {ones, false, wide}, {layer->dw, false, wide}, out, wide, rows};
    layer->products[2] = (struct product){{layer->y, false, out},
                                          {layer->w + skip, false, wide},
                                          {dx + skip, false, wide},
                                          rows,
                                          wide - skip,
                                          out};
    free(first);
}

static void layer_close(struct layer *layer)
{
    float *const all[] = {layer->w, layer->y, layer->dw};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        layer->x.device.ops->free(all[i]);
    bench_close(&layer->x);
    bench_close(&layer->dx);
    blas_close(layer->blas);
}

/* Runs both once; the most that their gradients of x differ, as a share of the largest. */
static double layers_apart(struct layer layers[LAYOUTS], size_t rows, size_t columns)
{
    const size_t wide = columns + 1, bytes = rows * wide * sizeof(float);
    float *packed = study_memory(bytes), *roomy = study_memory(bytes);
    double apart = 0, most = 0;
    for (int i = 0; i < LAYOUTS; i++) {
        layer_run(&layers[i]);
        study_get(&layers[i].x.device, i ? roomy : packed, layers[i].dx.pass.matrix, bytes);
    }
    for (size_t i = 0; i < rows * columns; i++) {
        const double other = roomy[i / columns * wide + 1 + i % columns];
        apart = fmax(apart, fabs(packed[i] - other));
        most = fmax(most, fabs(other));
    }
    free(packed);
    free(roomy);
    return apart / most;
}

static void layers_run(const struct options *options, const struct study_device *device,
                       cJSON *report)
{
    const size_t rows = (size_t)options->batch, in = (size_t)options->columns;
    float *x = study_random(rows * in, 2),
          *w = study_random((in + 1) * (size_t)options->outputs, 3);
    struct layer layers[LAYOUTS] = {{.realigned = true}, {.realigned = false}};
    struct study_work works[LAYOUTS];
    for (int i = 0; i < LAYOUTS; i++) {
        layers[i].x.device = layers[i].dx.device = *device;
        layer_open(&layers[i], options, x, w);
        works[i] = (struct study_work){.run = layer_run, .context = &layers[i]};
    }
    const double apart = layers_apart(layers, rows, in);
    if (apart > (options->device == ALNICO_DEVICE_CPU ? 1e-5 : 5e-3))
        program_fail("the gradients of the two layers are %g of the largest apart", apart);
    study_race(device, works, LAYOUTS, options->seconds);
    printf("# a dense layer of %zu x %zu, %d outputs: realigned %.1f us, rows with room %.1f us\n",
           rows, in, options->outputs, works[0].us, works[1].us);
    json_add(report, "layer_realigned_us %g layer_with_room_us %g layer_apart %g", works[0].us,
             works[1].us, apart);
    for (int i = 0; i < LAYOUTS; i++)
        layer_close(&layers[i]);
    free(x);
    free(w);
}

/* ---- The study ---- */

static void panel_draw(FILE *picture, const struct row *rows, int count)
{
    if (!picture)
        return;
    fprintf(picture, "$rows << END\n");
    for (int i = 0; i < count; i++)
        fprintf(picture, "%g %g %g %g %g\n", rows[i].megabytes, rows[i].gbytes[0],
                rows[i].gbytes[1], rows[i].gbytes[2], rows[i].gbytes[3]);
    fprintf(picture,
            "END\nset logscale x 2\nset yrange [0:]\nset xlabel 'matrix, MB'\n"
            "set ylabel 'read and written, GB/s'\n"
            "plot $rows using 1:2 with linespoints lt 1 title 'right', '' using 1:3 with "
            "linespoints lt 2 title 'left', '' using 1:4 with linespoints lt 3 title 'copy'%s\n",
            rows[0].gbytes[3] > 0 ? ", '' using 1:5 with linespoints lt 4 title 'two kernels'"
                                  : "");
}

int main(int argc, char **argv)
{
    struct options options = {0};
    struct row rows[SIZES];
    int count = 0;
    program_start();
    options_read(&option_table, argc, argv, &options);
    study_begin(&options.study);
    program_json_try(options.study.json);
    const struct study_device device = study_device_open(options.device);
    FILE *picture = study_picture_begin(&options.study, "A column of ones in place", 1, 0.5);
    cJSON *report = json_add(study_report("realign"), "device %s", option_devices[options.device]),
          *sizes = cJSON_AddArrayToObject(report, "rows");
    printf("# %d columns; GB/s read and written\n%8s %9s %8s %8s %8s%s %9s\n", options.columns,
           "MB", "rows", "right", "left", "copy",
           options.device == ALNICO_DEVICE_CPU ? "" : "   source", "of copy");
    for (double megabytes = 1; megabytes <= (options.study.full ? 1024 : 64); megabytes *= 4)
        rows[count++] = size_run(&options, &device, megabytes, sizes);
    panel_draw(picture, rows, count);
    layers_run(&options, &device, report);
    study_picture_end(picture);
    program_json_write(options.study.json, report);
    return 0;
}
