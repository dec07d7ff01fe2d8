/*
 * A dense layer of a small batch: b x inputs times inputs x outputs, b = 1 to 256 (Keuper, Pfreundt
 * 2016). The trainer's layer, forward and backward, beside the same products by the fastest of a
 * BLAS; both are checked against float64 at the least batch.
 */
#include "benchmarks/studies/blas.h"
#include "benchmarks/studies/study.h"
#include "train/replica/replica.h"

#include <math.h>
#include <stdlib.h>

enum { BATCHES = 9, SAMPLES = 64, WAYS = 2, PRODUCTS = 3 };

struct options {
    struct study_options study;
    alnico_device_t device;
    int inputs, outputs;
    double seconds;
};

static const char *const way_names[WAYS] = {"forward", "backward"};

static const struct option_row option_rows[] = {
    STUDY_DEVICE(struct options, device),
    {.name = "inputs",
     .value = "N",
     .help = "of the layer",
     .kind = OPTION_NUMBER,
     .initial = "4096",
     OPTION_FIELD(struct options, inputs),
     .least = 1,
     .most = NETWORK_MAX_SIDE},
    {.name = "outputs",
     .value = "N",
     .help = "of the layer (9192, as the source has it, and 9216, as AlexNet)",
     .kind = OPTION_NUMBER,
     OPTION_FIELD(struct options, outputs),
     .least = 1,
     .most = NETWORK_MAX_SIDE},
    STUDY_SECONDS(struct options, seconds, "a batch", "2"),
    STUDY_OPTIONS(struct options, study),
    {0}};

static const struct option_table option_table = {
    .options = option_rows,
    .about = "A dense layer of a batch of 1 to 256, beside the products of a BLAS.\v--full "
             "measures every power of two, not every second."};

/* The layer within a network: a ReLU before it, so that the layer makes the gradient of its input,
 * and a loss behind it. */
struct layer {
    struct study_device device;
    struct network *network;
    struct replica *replica;
    size_t batch, inputs, outputs, step;
    /* On the host: what the layer reads, batch x inputs, and the network's softmax. */
    float *x, *output;
};

/* The layer by the BLAS: y = x w^T; dw = y^T x, dx = y w, y being its gradient. */
struct peer {
    float *x, *w, *y, *dw, *dx;
    struct product products[PRODUCTS];
};

static void network_make(struct layer *layer)
{
    const struct operation operations[] = {
        {.kind = OPERATION_RELU, .name = "relu", .in = {"input"}},
        {.kind = OPERATION_DENSE, .name = "dense", .in = {"relu"}, .filters = layer->outputs},
        {.kind = OPERATION_CROSS_ENTROPY, .name = "loss", .in = {"dense"}}};
    program_check(network_create(1, 1, layer->inputs, &layer->network), "the network");
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++)
        program_check(network_append(layer->network, &operations[i]), "the network");
    program_check(network_finish(layer->network), "the network");
}

static void layer_load(struct layer *layer)
{
    const size_t count = layer->batch * layer->inputs;
    int32_t *labels = study_memory(layer->batch * sizeof *labels);
    layer->x = study_random(count, layer->batch);
    program_check(replica_load(layer->replica, layer->x, labels, layer->batch), "the batch");
    for (size_t i = 0; i < count; i++)
        layer->x[i] = fmaxf(layer->x[i], 0);
    free(labels);
}

static void layer_open(struct layer *layer, const struct options *options)
{
    const struct replica_setup setup = {.kernels = kernels_default(options->device),
                                        .batch = layer->batch,
                                        .seed = 1,
                                        .gradient_type = ALNICO_FLOAT32,
                                        .stream = layer->device.stream};
    network_make(layer);
    program_check(replica_create(layer->network, &setup, &layer->replica), "making the replica");
    layer_load(layer);
    const size_t bytes = layer->batch * layer->outputs * sizeof *layer->output;
    layer->output = study_memory(bytes);
    program_check(replica_forward(layer->replica, true), "forward");
    program_check(replica_read(layer->replica,
                               setup_value(&layer->replica->setup, layer->network->count),
                               layer->output, bytes),
                  "reading the output");
    for (size_t i = 0; i < layer->batch * layer->outputs; i++)
        layer->output[i] = expf(layer->output[i]);
    program_check(replica_backward(layer->replica, NULL, NULL), "backward");
    program_check(replica_synchronize(layer->replica), "a step");
    while (layer->network->nodes[layer->replica->plan->steps[layer->step].first].operation.kind !=
           OPERATION_DENSE)
        layer->step++;
}

static void layer_close(struct layer *layer)
{
    replica_destroy(layer->replica);
    network_destroy(layer->network);
    free(layer->x);
    free(layer->output);
}

static void layer_forward(void *context)
{
    const struct layer *layer = context;
    const struct replica *replica = layer->replica;
    program_check(replica->ops->forward(replica->kernels, layer->step, true), "forward");
}

static void layer_backward(void *context)
{
    const struct layer *layer = context;
    const struct replica *replica = layer->replica;
    program_check(replica->ops->backward(replica->kernels, layer->step), "backward");
}

/* ---- The peer ---- */

static struct peer peer_make(const struct layer *layer)
{
    const size_t b = layer->batch, in = layer->inputs, out = layer->outputs;
    const struct study_device *device = &layer->device;
    float *w = study_memory(in * out * sizeof *w);
    const struct node *dense = &layer->network->nodes[1];
    program_check(replica_read(layer->replica,
                               layer->replica->arenas.parameters + dense->weight.offset, w,
                               in * out * sizeof *w),
                  "reading the weights");
    struct peer peer = {.x = study_put(device, layer->x, b * in * sizeof *w),
                        .w = study_put(device, w, in * out * sizeof *w),
                        .y = study_put(device, NULL, b * out * sizeof *w),
                        .dw = study_put(device, NULL, in * out * sizeof *w),
                        .dx = study_put(device, NULL, b * in * sizeof *w)};
    free(w);
    peer.products[0] =
        (struct product){{peer.x, false, in}, {peer.w, true, in}, {peer.y, false, out}, b, out, in};
    peer.products[1] = (struct product){
        {peer.y, true, out}, {peer.x, false, in}, {peer.dw, false, in}, out, in, b};
    peer.products[2] = (struct product){
        {peer.y, false, out}, {peer.w, false, in}, {peer.dx, false, in}, b, in, out};
    return peer;
}

static void peer_free(const struct layer *layer, struct peer *peer)
{
    float *const all[] = {peer->x, peer->w, peer->y, peer->dw, peer->dx};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        layer->device.ops->free(all[i]);
}

/* ---- The oracle ---- */

/* Rows and columns of float32 on the host. */
struct table {
    float *at;
    size_t rows, columns;
};

static struct table table_read(const struct layer *layer, const float *memory, size_t rows,
                               size_t columns)
{
    const struct table table = {study_memory(rows * columns * sizeof(float)), rows, columns};
    study_get(&layer->device, table.at, memory, rows * columns * sizeof(float));
    return table;
}

/* Dot product of a column of `a` and one of `b`. */
static double columns_dot(const struct table *a, size_t i, const struct table *b, size_t j)
{
    double sum = 0;
    for (size_t k = 0; k < a->rows; k++)
        sum += (double)a->at[k * a->columns + i] * b->at[k * b->columns + j];
    return sum;
}

/* The first row of x w^T. */
static double *logits_expected(const struct layer *layer, const struct table *w)
{
    double *out = study_memory(w->rows * sizeof *out);
    for (size_t o = 0; o < w->rows; o++)
        for (size_t i = 0; i < w->columns; i++)
            out[o] += (double)layer->x[i] * w->at[o * w->columns + i];
    return out;
}

/* The most that a library's first row of y is away, as a share of the largest. */
static double forward_apart(const double *logits, const struct table *y)
{
    double apart = 0, most = 0;
    for (size_t o = 0; o < y->columns; o++) {
        apart = fmax(apart, fabs(y->at[o] - logits[o]));
        most = fmax(most, fabs(logits[o]));
    }
    return apart / most;
}

/* Distance of the network's first output, the softmax, as above. */
static double softmax_apart(const double *logits, const struct table *output)
{
    double sum = 0, apart = 0, most = 0;
    for (size_t o = 0; o < output->columns; o++)
        sum += exp(logits[o]);
    for (size_t o = 0; o < output->columns; o++) {
        apart = fmax(apart, fabs(output->at[o] - exp(logits[o]) / sum));
        most = fmax(most, exp(logits[o]) / sum);
    }
    return apart / most;
}

/* Distance of some elements of a product a^T b, as above. */
static double product_apart(const struct table *a, const struct table *b, const struct table *c)
{
    double apart = 0, most = 0;
    for (size_t s = 0; s < SAMPLES; s++) {
        const size_t i = s * (a->columns - 1) / SAMPLES, j = s * (b->columns - 1) / SAMPLES;
        const double expected = columns_dot(a, i, b, j);
        apart = fmax(apart, fabs(c->at[i * c->columns + j] - expected));
        most = fmax(most, fabs(expected));
    }
    return most > 0 ? apart / most : apart;
}

/* Makes the network's output the gradient of the logits; every label is 0. */
static void gradient_make(struct table *output)
{
    for (size_t b = 0; b < output->rows; b++) {
        output->at[b * output->columns] -= 1;
        for (size_t o = 0; o < output->columns; o++)
            output->at[b * output->columns + o] /= (float)output->rows;
    }
}

/* Runs both; the most that any of their numbers is away from float64. */
static double numbers_apart(const struct layer *layer, struct blas *blas, const struct peer *peer)
{
    const size_t b = layer->batch, in = layer->inputs, out = layer->outputs;
    const struct table x = {layer->x, b, in}, w = table_read(layer, peer->w, out, in);
    blas_multiply(blas, &peer->products[0]);
    const struct table y = table_read(layer, peer->y, b, out);
    struct table output = {layer->output, b, out};
    double *logits = logits_expected(layer, &w);
    double apart = fmax(forward_apart(logits, &y), softmax_apart(logits, &output));
    gradient_make(&output);
    program_check(
        layer->device.ops->copy(peer->y, output.at, b * out * sizeof(float), layer->device.stream),
        "the gradient");
    blas_multiply(blas, &peer->products[1]);
    const struct table dw = table_read(layer, peer->dw, out, in),
                       ours = table_read(layer,
                                         (const float *)layer->replica->arenas.gradients +
                                             layer->network->nodes[1].weight.offset,
                                         out, in);
    apart = fmax(apart, product_apart(&output, &x, &dw));
    apart = fmax(apart, product_apart(&output, &x, &ours));
    float *const all[] = {w.at, y.at, dw.at, ours.at};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        free(all[i]);
    free(logits);
    return apart;
}

/* ---- One batch ---- */

struct row {
    size_t batch, outputs;
    double ours_us[WAYS], library_us[WAYS], gflops[WAYS]; /* gflops: ours */
};

static void row_measure(const struct options *options, struct layer *layer, struct blas *blas,
                        const struct peer *peer, struct row *row)
{
    struct study_work works[WAYS + PRODUCTS * BLAS_WAYS] = {
        {.run = layer_forward, .context = layer}, {.run = layer_backward, .context = layer}};
    double us[PRODUCTS];
    int ends[PRODUCTS + 1] = {WAYS};
    for (int i = 0; i < PRODUCTS; i++)
        ends[i + 1] = ends[i] + blas_works(blas, &peer->products[i], &works[ends[i]]);
    study_race(&layer->device, works, ends[PRODUCTS], options->seconds);
    for (int i = 0; i < PRODUCTS; i++)
        us[i] = blas_best_us(&works[ends[i]], ends[i + 1] - ends[i]);
    const double flops = 2 * (double)layer->batch * (double)layer->inputs * (double)layer->outputs;
    for (int way = 0; way < WAYS; way++) {
        row->ours_us[way] = works[way].us;
        row->library_us[way] = way ? us[1] + us[2] : us[0];
        row->gflops[way] = (way ? 2 : 1) * flops / works[way].us * 1e-3;
    }
}

static void row_tell(const struct options *options, const struct row *row, double apart,
                     cJSON *rows)
{
    printf("%4zu %6d %7zu", row->batch, options->inputs, row->outputs);
    cJSON *object = json_add(json_row(rows), "batch %zu inputs %d outputs %zu", row->batch,
                             options->inputs, row->outputs);
    for (int way = 0; way < WAYS; way++) {
        const double ratio = row->ours_us[way] / row->library_us[way];
        printf(" %10.1f %10.1f %6.3f %9.2f", row->ours_us[way], row->library_us[way], ratio,
               row->gflops[way]);
        cJSON_AddItemToObject(object, way_names[way],
                              json_add(cJSON_CreateObject(),
                                       "us %g library_us %g ratio %g gflops %g", row->ours_us[way],
                                       row->library_us[way], ratio, row->gflops[way]));
    }
    if (apart >= 0)
        json_add(object, "apart %g", apart);
    printf("\n");
    fflush(stdout);
}

/* Products of TF32 keep 10 bits. */
static void apart_check(const struct options *options, double apart)
{
    const double most = options->device == ALNICO_DEVICE_CPU ? 1e-5 : 5e-3;
    if (apart > most)
        program_fail("a product is %g of its largest number away from float64, more than %g", apart,
                     most);
}

static struct row row_run(const struct options *options, const struct study_device *device,
                          size_t batch, size_t outputs, cJSON *rows)
{
    struct row row = {.batch = batch, .outputs = outputs};
    struct layer layer = {
        .device = *device, .batch = batch, .inputs = (size_t)options->inputs, .outputs = outputs};
    struct blas *blas = blas_open(device);
    layer_open(&layer, options);
    struct peer peer = peer_make(&layer);
    double apart = -1;
    if (batch <= 4) {
        apart = numbers_apart(&layer, blas, &peer);
        apart_check(options, apart);
    }
    row_measure(options, &layer, blas, &peer, &row);
    row_tell(options, &row, apart, rows);
    peer_free(&layer, &peer);
    layer_close(&layer);
    blas_close(blas);
    return row;
}

static void panel_draw(FILE *picture, const struct row *rows, int count)
{
    double best = 0;
    if (!picture)
        return;
    for (int i = 0; i < count; i++)
        best = fmax(best, rows[i].gflops[0]);
    fprintf(picture, "$rows << END\n");
    for (int i = 0; i < count; i++)
        for (int way = 0; way < WAYS; way++)
            fprintf(picture, "%zu %g %g%s", rows[i].batch, 100 * rows[i].gflops[way] / best,
                    100 * rows[i].gflops[way] / best * rows[i].ours_us[way] /
                        rows[i].library_us[way],
                    way ? "\n" : " ");
    fprintf(picture,
            "END\nset title '%zu outputs'\nset logscale x 2\n"
            "set xlabel 'batch'\nset ylabel '%% of the best forward rate'\n"
            "plot $rows using 1:2 with linespoints lt 1 title 'forward', '' using 1:3 with "
            "linespoints lt 2 title 'forward, library', '' using 1:5 with linespoints lt 3 title "
            "'backward', '' using 1:6 with linespoints lt 4 title 'backward, library'\n",
            rows[0].outputs);
}

static void shape_run(const struct options *options, const struct study_device *device,
                      size_t outputs, FILE *picture, cJSON *report)
{
    struct row rows[BATCHES];
    int count = 0;
    for (int i = 0; i < BATCHES; i += options->study.full ? 1 : 2)
        rows[count++] = row_run(options, device, (size_t)1 << i, outputs, report);
    panel_draw(picture, rows, count);
}

int main(int argc, char **argv)
{
    static const size_t shapes[] = {9192, 9216};
    struct options options = {0};
    program_start();
    options_read(&option_table, argc, argv, &options);
    study_begin(&options.study);
    program_json_try(options.study.json);
    const struct study_device device = study_device_open(options.device);
    const int panels = options.outputs ? 1 : 2;
    FILE *picture = study_picture_begin(&options.study, "A dense layer of a batch", panels, 0.4);
    cJSON *report = json_add(study_report("skinny"), "device %s", option_devices[options.device]),
          *rows = cJSON_AddArrayToObject(report, "rows");
    printf("# forward, then backward: ours, the library, ours by the library's, GFLOP/s\n%4s %6s "
           "%7s",
           "b", "inputs", "outputs");
    for (int way = 0; way < WAYS; way++)
        printf(" %10s %10s %6s %9s", "us", "us", "ratio", "GFLOP/s");
    printf("\n");
    for (int i = 0; i < panels; i++)
        shape_run(&options, &device, options.outputs ? (size_t)options.outputs : shapes[i], picture,
                  rows);
    study_picture_end(picture);
    program_json_write(options.study.json, report);
    return 0;
}
