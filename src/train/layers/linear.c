/* Convolution and dense layers: sums of products with weights, and a bias. */
#include "train/layers/window.h"

#include "base/status.h"
#include "train/base/random.h"

#include <math.h>

static alnico_status_t weights_count(struct node *node, size_t inputs, bool bias)
{
    const struct operation *operation = &node->operation;
    node->weight.count = operation->filters * inputs;
    node->bias.count = bias ? operation->filters : 0;
    if (operation->filters && operation->filters <= NETWORK_MAX_SIDE &&
        inputs <= NETWORK_MAX_ELEMENTS / operation->filters)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "network_append: %s '%s' has %zu filters of %zu weights, expected 1 to %d "
                     "filters and at most %zu weights",
                     operation_kind_name(operation->kind), operation->name, operation->filters,
                     inputs, NETWORK_MAX_SIDE, NETWORK_MAX_ELEMENTS);
}

static alnico_status_t convolution_shape(struct node *node, const struct tensor *const in[],
                                         struct tensor *out)
{
    const struct operation *operation = &node->operation;
    TRY(window_shape(operation, in[0], out));
    out->channels = operation->filters;
    return weights_count(node, operation->window * operation->window * in[0]->channels,
                         operation->bias);
}

static alnico_status_t dense_shape(struct node *node, const struct tensor *const in[],
                                   struct tensor *out)
{
    *out = (struct tensor){.height = 1, .width = 1, .channels = node->operation.filters};
    return weights_count(node, tensor_elements(in[0]), true);
}

/* A normal deviate by the polar form of Box and Muller (Marsaglia 1962); one of each pair is
 * used. */
static double normal(uint64_t *state)
{
    double x, y, square;
    do {
        x = 2 * random_unit(state) - 1;
        y = 2 * random_unit(state) - 1;
        square = x * x + y * y;
    } while (square >= 1 || square == 0);
    return x * sqrt(-2 * log(square) / square);
}

static void linear_initialize(const struct node *node, size_t channels, uint64_t state,
                              float *weights, float *statistics)
{
    const size_t inputs = node->weight.count / channels;
    const double deviation = sqrt(2.0 / (double)inputs);
    (void)statistics;
    for (size_t k = 0; k < node->weight.count; k++)
        weights[k] = (float)(deviation * normal(&state));
}

/* A 1x1 window with a stride reads some of the pixels only; the gradient is of all. */
static void linear_cost(const struct layer_work *work, bool backward, struct step_cost *cost)
{
    const struct operation *operation = work->operation;
    const double stride = (double)operation->stride, others = work->out + work->weights;
    const bool sparse = operation->kind == OPERATION_CONVOLUTION && operation->window == 1;
    /* Forward, or the gradient of weights. */
    cost_add(cost, others + work->in[0] / (sparse ? stride * stride : 1), work->flops);
    if (backward && !work->images)
        cost_add(cost, others + work->in[0] + work->added[0], work->flops);
}

enum { CHANNELS = 64 }; /* whose weight gradients are summed at once */

/* The first channel of weight (filter, row, column). */
static size_t weight_at(const struct layer_pass *p, size_t filter, size_t r, size_t c)
{
    return ((filter * p->rows + r) * p->columns + c) * p->in->channels;
}

/* The window of a dense layer is the whole image. */
static void linear_visit(const struct layer_pass *p, size_t n, size_t i, size_t j, size_t out)
{
    for (size_t f = 0; f < p->out->channels; f++) {
        double sum = p->node->bias.count ? p->bias[f] : 0;
        size_t in;
        for (size_t r = 0; r < p->rows; r++)
            for (size_t c = 0; c < p->columns; c++)
                if (window_pixel(p, n, i, j, r, c, &in))
                    for (size_t k = 0; k < p->in->channels; k++)
                        sum += (double)p->x[0][in + k] * p->weight[weight_at(p, f, r, c) + k];
        p->y[out + f] = (float)sum;
    }
}

static void linear_forward(const struct layer_pass *p)
{
    window_each(p, linear_visit);
}

static void linear_data(const struct layer_pass *p, size_t n, size_t i, size_t j, size_t out)
{
    for (size_t f = 0; f < p->out->channels; f++)
        for (size_t r = 0; r < p->rows; r++)
            for (size_t c = 0; c < p->columns; c++) {
                size_t in;
                if (window_pixel(p, n, i, j, r, c, &in))
                    for (size_t k = 0; k < p->in->channels; k++)
                        p->dx[0][in + k] += p->dy[out + f] * p->weight[weight_at(p, f, r, c) + k];
            }
}

/* The gradient of the weights under one place of the window, for some channels from `first` on, and
 * that of the bias. */
static void linear_weights(const struct layer_pass *p, size_t f, size_t r, size_t c, size_t first)
{
    const size_t left = p->in->channels - first, count = left < CHANNELS ? left : CHANNELS;
    double sums[CHANNELS] = {0}, bias = 0;
    for (size_t n = 0; n < p->batch; n++)
        for (size_t i = 0; i < p->out->height; i++)
            for (size_t j = 0; j < p->out->width; j++) {
                size_t in;
                const float dy =
                    p->dy[((n * p->out->height + i) * p->out->width + j) * p->out->channels + f];
                bias += dy;
                if (window_pixel(p, n, i, j, r, c, &in))
                    for (size_t k = 0; k < count; k++)
                        sums[k] += (double)p->x[0][in + first + k] * dy;
            }
    for (size_t k = 0; k < count; k++)
        p->dweight[weight_at(p, f, r, c) + first + k] = (float)sums[k];
    if (p->node->bias.count)
        p->dbias[f] = (float)bias;
}

static void linear_backward(const struct layer_pass *p)
{
    for (size_t f = 0; f < p->out->channels; f++)
        for (size_t r = 0; r < p->rows; r++)
            for (size_t c = 0; c < p->columns; c++)
                for (size_t first = 0; first < p->in->channels; first += CHANNELS)
                    linear_weights(p, f, r, c, first);
    if (p->dx[0])
        window_each(p, linear_data);
}

const struct layer_ops layer_convolution = {
    .name = "convolution",
    .inputs = 1,
    .decays = true,
    .shape = convolution_shape,
    .reads = window_reads,
    .margins = true,
    .channels = CHANNELS_FILTERS,
    .initialize = linear_initialize,
    .cost = linear_cost,
    .forward = linear_forward,
    .backward = linear_backward,
    .reads_inputs = true,
};

const struct layer_ops layer_dense = {
    .name = "dense",
    .inputs = 1,
    .decays = true,
    .shape = dense_shape,
    .reads = window_reads,
    .reads_images = true,
    .channels = CHANNELS_FILTERS,
    .initialize = linear_initialize,
    .cost = linear_cost,
    .forward = linear_forward,
    .backward = linear_backward,
    .reads_inputs = true,
};
