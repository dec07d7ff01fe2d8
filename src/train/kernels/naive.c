/*
 * The oracle: every operation by itself, as plain loops over [image][row][column][channel], with
 * sums in double. Slow, single-threaded, and easy to check by eye. Called through kernels_naive
 * (kernels.h).
 */
#include "train/kernels/kernels.h"

#include "base/status.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

struct naive {
    struct kernels_setup setup;
    double *moments; /* for each batch norm, where its statistics are: the batch's mean, variance */
};

/* Everything that one operation's loops need. */
struct pass {
    const struct node *node;
    const struct tensor *in, *out;
    size_t batch, rows, columns; /* of the window */
    const float *x[2];           /* input values */
    float *y;                    /* output value */
    float *dx[2], *dy;           /* gradients; dx NULL: not wanted */
    const float *weight, *bias;
    float *dweight, *dbias;
    float *running;
    double *moments;
    const int32_t *labels;
    double smoothing;
    bool frozen;
};

/* What backward reads again. */
static void naive_needs(const struct plan *plan, const struct step *step, struct step_needs *out)
{
    switch (plan->network->nodes[step->first].operation.kind) {
    case OPERATION_CONVOLUTION:
    case OPERATION_BATCH_NORM:
    case OPERATION_RELU:
    case OPERATION_MAX_POOL:
    case OPERATION_DENSE:
        out->in[0] = true;
        break;
    case OPERATION_CROSS_ENTROPY:
        out->out = true;
        break;
    case OPERATION_ADD:
    case OPERATION_AVERAGE_POOL:
        break;
    }
}

static size_t run_one(const struct network *network, size_t at)
{
    (void)network;
    (void)at;
    return 1;
}

static struct pass pass_of(const struct naive *self, size_t step)
{
    const struct kernels_setup *setup = &self->setup;
    const struct node *node = &setup->network->nodes[step];
    struct pass p = {.node = node,
                     .in = &setup->network->tensors[node->in[0]],
                     .out = network_output(setup->network, step),
                     .batch = setup->plan->batch,
                     .y = setup_value(setup, step + 1),
                     .dy = setup_diff(setup, step + 1),
                     .weight = setup->arenas->parameters + node->weight.offset,
                     .bias = setup->arenas->parameters + node->bias.offset,
                     .dweight = (float *)setup->arenas->gradients + node->weight.offset,
                     .dbias = (float *)setup->arenas->gradients + node->bias.offset,
                     .running = setup->arenas->statistics + node->statistics,
                     .moments = self->moments + node->statistics,
                     .labels = setup->arenas->labels,
                     .smoothing = setup->options.smoothing,
                     .frozen = setup->options.frozen};
    network_window(setup->network, step, &p.rows, &p.columns);
    for (size_t i = 0; i < node->inputs; i++) {
        p.x[i] = setup_value(setup, node->in[i]);
        p.dx[i] = setup_diff(setup, node->in[i]);
    }
    return p;
}

/* The input pixel under place (r, c) of the window that makes output pixel (n, i, j): its first
 * channel's index, or false if it is padding. */
static bool pixel(const struct pass *p, size_t n, size_t i, size_t j, size_t r, size_t c,
                  size_t *index)
{
    const struct operation *operation = &p->node->operation;
    const size_t row = i * operation->stride + r, column = j * operation->stride + c;
    if (row < operation->pad || row - operation->pad >= p->in->height || column < operation->pad ||
        column - operation->pad >= p->in->width)
        return false;
    *index = ((n * p->in->height + row - operation->pad) * p->in->width + column - operation->pad) *
             p->in->channels;
    return true;
}

/* Calls `visit` for every output pixel (n, i, j), whose first channel is at `out`. */
static void each_pixel(struct pass *p,
                       void (*visit)(struct pass *, size_t n, size_t i, size_t j, size_t out))
{
    for (size_t n = 0; n < p->batch; n++)
        for (size_t i = 0; i < p->out->height; i++)
            for (size_t j = 0; j < p->out->width; j++)
                visit(p, n, i, j,
                      ((n * p->out->height + i) * p->out->width + j) * p->out->channels);
}

/* The first channel of weight (filter, row, column). */
static size_t weight_at(const struct pass *p, size_t filter, size_t r, size_t c)
{
    return ((filter * p->rows + r) * p->columns + c) * p->in->channels;
}

static void convolution_forward(struct pass *p, size_t n, size_t i, size_t j, size_t out)
{
    for (size_t f = 0; f < p->out->channels; f++) {
        double sum = p->node->bias.count ? p->bias[f] : 0;
        size_t in;
        for (size_t r = 0; r < p->rows; r++)
            for (size_t c = 0; c < p->columns; c++)
                if (pixel(p, n, i, j, r, c, &in))
                    for (size_t k = 0; k < p->in->channels; k++)
                        sum += (double)p->x[0][in + k] * p->weight[weight_at(p, f, r, c) + k];
        p->y[out + f] = (float)sum;
    }
}

static void convolution_data(struct pass *p, size_t n, size_t i, size_t j, size_t out)
{
    for (size_t f = 0; f < p->out->channels; f++)
        for (size_t r = 0; r < p->rows; r++)
            for (size_t c = 0; c < p->columns; c++) {
                size_t in;
                if (pixel(p, n, i, j, r, c, &in))
                    for (size_t k = 0; k < p->in->channels; k++)
                        p->dx[0][in + k] += p->dy[out + f] * p->weight[weight_at(p, f, r, c) + k];
            }
}

/* The gradient of the weights under one place of the window, and of the biases for the first
 * place. */
static void convolution_weights(struct pass *p, size_t f, size_t r, size_t c, double *sums)
{
    memset(sums, 0, p->in->channels * sizeof *sums);
    double bias = 0;
    for (size_t n = 0; n < p->batch; n++)
        for (size_t i = 0; i < p->out->height; i++)
            for (size_t j = 0; j < p->out->width; j++) {
                size_t in;
                const float dy =
                    p->dy[((n * p->out->height + i) * p->out->width + j) * p->out->channels + f];
                bias += dy;
                if (pixel(p, n, i, j, r, c, &in))
                    for (size_t k = 0; k < p->in->channels; k++)
                        sums[k] += (double)p->x[0][in + k] * dy;
            }
    for (size_t k = 0; k < p->in->channels; k++)
        p->dweight[weight_at(p, f, r, c) + k] = (float)sums[k];
    if (p->node->bias.count)
        p->dbias[f] = (float)bias;
}

static alnico_status_t convolution_backward(struct pass *p)
{
    double *sums = malloc(p->in->channels * sizeof *sums);
    if (!sums)
        return error_set(ALNICO_ERROR_MEMORY, "naive convolution: no memory");
    for (size_t f = 0; f < p->out->channels; f++)
        for (size_t r = 0; r < p->rows; r++)
            for (size_t c = 0; c < p->columns; c++)
                convolution_weights(p, f, r, c, sums);
    free(sums);
    if (p->dx[0])
        each_pixel(p, convolution_data);
    return ALNICO_SUCCESS;
}

static void norm_moments(const struct pass *p, size_t channel, size_t count)
{
    const size_t channels = p->in->channels;
    double sum = 0, squares = 0;
    for (size_t i = 0; i < count; i++)
        sum += p->x[0][i * channels + channel];
    const double mean = sum / (double)count;
    for (size_t i = 0; i < count; i++)
        squares += pow(p->x[0][i * channels + channel] - mean, 2);
    const double unbiased = squares / (double)(count > 1 ? count - 1 : 1);
    float *running = p->running + channel;
    running[0] += NETWORK_NORM_MOMENTUM * ((float)mean - running[0]);
    running[channels] += NETWORK_NORM_MOMENTUM * ((float)unbiased - running[channels]);
    p->moments[channel] = mean;
    p->moments[channels + channel] = squares / (double)count;
}

static void norm_forward(const struct pass *p, bool training)
{
    const size_t channels = p->in->channels;
    const size_t count = p->batch * p->in->height * p->in->width;
    for (size_t c = 0; c < channels; c++) {
        const bool running = !training || p->frozen;
        if (!running)
            norm_moments(p, c, count);
        const double mean = running ? p->running[c] : p->moments[c];
        const double variance = running ? p->running[channels + c] : p->moments[channels + c];
        const double scale = p->weight[c] / sqrt(variance + NETWORK_NORM_EPSILON);
        for (size_t i = c; i < count * channels; i += channels)
            p->y[i] = (float)((p->x[0][i] - mean) * scale + p->bias[c]);
    }
}

static void norm_backward(const struct pass *p)
{
    const size_t channels = p->in->channels;
    const size_t count = p->batch * p->in->height * p->in->width;
    for (size_t c = 0; c < channels; c++) {
        const double mean = p->frozen ? p->running[c] : p->moments[c];
        const double variance = p->frozen ? p->running[channels + c] : p->moments[channels + c];
        const double inverse = 1 / sqrt(variance + NETWORK_NORM_EPSILON);
        double shift = 0, scale = 0;
        for (size_t i = c; i < count * channels; i += channels) {
            shift += p->dy[i];
            scale += p->dy[i] * (p->x[0][i] - mean) * inverse;
        }
        p->dbias[c] = (float)shift;
        p->dweight[c] = (float)scale;
        for (size_t i = c; p->dx[0] && i < count * channels; i += channels) {
            const double normal = (p->x[0][i] - mean) * inverse;
            const double moved = p->frozen ? 0 : (shift + normal * scale) / (double)count;
            p->dx[0][i] += (float)(p->weight[c] * inverse * (p->dy[i] - moved));
        }
    }
}

static void relu_forward(const struct pass *p)
{
    for (size_t i = 0; i < p->batch * tensor_elements(p->in); i++)
        p->y[i] = p->x[0][i] > 0 ? p->x[0][i] : 0;
}

static void relu_backward(const struct pass *p)
{
    for (size_t i = 0; p->dx[0] && i < p->batch * tensor_elements(p->in); i++)
        p->dx[0][i] += p->x[0][i] > 0 ? p->dy[i] : 0;
}

static void add_forward(const struct pass *p)
{
    for (size_t i = 0; i < p->batch * tensor_elements(p->in); i++)
        p->y[i] = p->x[0][i] + p->x[1][i];
}

static void add_backward(const struct pass *p)
{
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; p->dx[k] && i < p->batch * tensor_elements(p->in); i++)
            p->dx[k][i] += p->dy[i];
}

/* The index of the largest number in a channel's window: the first of equals. */
static size_t largest(const struct pass *p, size_t n, size_t i, size_t j, size_t channel)
{
    size_t best = 0, in;
    bool found = false;
    for (size_t r = 0; r < p->rows; r++)
        for (size_t c = 0; c < p->columns; c++)
            if (pixel(p, n, i, j, r, c, &in) && (!found || p->x[0][in + channel] > p->x[0][best])) {
                best = in + channel;
                found = true;
            }
    return best;
}

static void max_pool_forward(struct pass *p, size_t n, size_t i, size_t j, size_t out)
{
    for (size_t k = 0; k < p->out->channels; k++)
        p->y[out + k] = p->x[0][largest(p, n, i, j, k)];
}

static void max_pool_backward(struct pass *p, size_t n, size_t i, size_t j, size_t out)
{
    for (size_t k = 0; p->dx[0] && k < p->out->channels; k++)
        p->dx[0][largest(p, n, i, j, k)] += p->dy[out + k];
}

/* How many pixels of the window are no padding. */
static size_t covered(const struct pass *p, size_t n, size_t i, size_t j)
{
    size_t count = 0, in;
    for (size_t r = 0; r < p->rows; r++)
        for (size_t c = 0; c < p->columns; c++)
            count += pixel(p, n, i, j, r, c, &in);
    return count;
}

static void average_pool_forward(struct pass *p, size_t n, size_t i, size_t j, size_t out)
{
    for (size_t k = 0; k < p->out->channels; k++) {
        double sum = 0;
        size_t in;
        for (size_t r = 0; r < p->rows; r++)
            for (size_t c = 0; c < p->columns; c++)
                if (pixel(p, n, i, j, r, c, &in))
                    sum += p->x[0][in + k];
        p->y[out + k] = (float)(sum / (double)covered(p, n, i, j));
    }
}

static void average_pool_backward(struct pass *p, size_t n, size_t i, size_t j, size_t out)
{
    const float share = 1.0f / (float)covered(p, n, i, j);
    size_t in;
    for (size_t r = 0; p->dx[0] && r < p->rows; r++)
        for (size_t c = 0; c < p->columns; c++)
            if (pixel(p, n, i, j, r, c, &in))
                for (size_t k = 0; k < p->out->channels; k++)
                    p->dx[0][in + k] += p->dy[out + k] * share;
}

static void dense_forward(const struct pass *p)
{
    const size_t inputs = tensor_elements(p->in), outputs = p->out->channels;
    for (size_t n = 0; n < p->batch; n++)
        for (size_t f = 0; f < outputs; f++) {
            double sum = p->bias[f];
            for (size_t k = 0; k < inputs; k++)
                sum += (double)p->x[0][n * inputs + k] * p->weight[f * inputs + k];
            p->y[n * outputs + f] = (float)sum;
        }
}

static void dense_backward(const struct pass *p)
{
    const size_t inputs = tensor_elements(p->in), outputs = p->out->channels;
    for (size_t f = 0; f < outputs; f++) {
        double bias = 0;
        for (size_t n = 0; n < p->batch; n++)
            bias += p->dy[n * outputs + f];
        p->dbias[f] = (float)bias;
        for (size_t k = 0; k < inputs; k++) {
            double sum = 0;
            for (size_t n = 0; n < p->batch; n++)
                sum += (double)p->dy[n * outputs + f] * p->x[0][n * inputs + k];
            p->dweight[f * inputs + k] = (float)sum;
        }
    }
    for (size_t n = 0; p->dx[0] && n < p->batch; n++)
        for (size_t k = 0; k < inputs; k++)
            for (size_t f = 0; f < outputs; f++)
                p->dx[0][n * inputs + k] += p->dy[n * outputs + f] * p->weight[f * inputs + k];
}

static void cross_entropy_forward(const struct pass *p)
{
    const size_t classes = p->in->channels;
    for (size_t n = 0; n < p->batch; n++) {
        const float *x = p->x[0] + n * classes;
        double most = x[0], sum = 0;
        for (size_t k = 1; k < classes; k++)
            most = fmax(most, x[k]);
        for (size_t k = 0; k < classes; k++)
            sum += exp(x[k] - most);
        for (size_t k = 0; k < classes; k++)
            p->y[n * classes + k] = (float)(x[k] - most - log(sum));
    }
}

static void cross_entropy_backward(const struct pass *p)
{
    const size_t classes = p->in->channels;
    for (size_t n = 0; p->dx[0] && n < p->batch; n++)
        for (size_t k = 0; p->labels[n] >= 0 && k < classes; k++) {
            const double target =
                (1 - p->smoothing) * ((size_t)p->labels[n] == k) + p->smoothing / (double)classes;
            p->dx[0][n * classes + k] +=
                (float)((exp(p->y[n * classes + k]) - target) / (double)p->batch);
        }
}

static alnico_status_t naive_forward(void *self, size_t step, bool training)
{
    struct pass p = pass_of(self, step);
    switch (p.node->operation.kind) {
    case OPERATION_CONVOLUTION:
        each_pixel(&p, convolution_forward);
        break;
    case OPERATION_BATCH_NORM:
        norm_forward(&p, training);
        break;
    case OPERATION_RELU:
        relu_forward(&p);
        break;
    case OPERATION_ADD:
        add_forward(&p);
        break;
    case OPERATION_MAX_POOL:
        each_pixel(&p, max_pool_forward);
        break;
    case OPERATION_AVERAGE_POOL:
        each_pixel(&p, average_pool_forward);
        break;
    case OPERATION_DENSE:
        dense_forward(&p);
        break;
    case OPERATION_CROSS_ENTROPY:
        cross_entropy_forward(&p);
        break;
    }
    return ALNICO_SUCCESS;
}

/* Every backward loop adds, so what is to be overwritten begins at zero. */
static void naive_clear(const struct naive *self, size_t s)
{
    const struct step *step = &self->setup.plan->steps[s];
    for (size_t i = 0; i < step->inputs; i++) {
        float *diff = setup_diff(&self->setup, step->in[i]);
        const struct tensor *tensor = &self->setup.network->tensors[step->in[i]];
        if (diff && !step->accumulate[i])
            memset(diff, 0, self->setup.plan->batch * tensor_elements(tensor) * sizeof *diff);
    }
}

static alnico_status_t naive_backward(void *self, size_t step)
{
    struct pass p = pass_of(self, step);
    naive_clear(self, step);
    switch (p.node->operation.kind) {
    case OPERATION_CONVOLUTION:
        return convolution_backward(&p);
    case OPERATION_BATCH_NORM:
        norm_backward(&p);
        break;
    case OPERATION_RELU:
        relu_backward(&p);
        break;
    case OPERATION_ADD:
        add_backward(&p);
        break;
    case OPERATION_MAX_POOL:
        each_pixel(&p, max_pool_backward);
        break;
    case OPERATION_AVERAGE_POOL:
        each_pixel(&p, average_pool_backward);
        break;
    case OPERATION_DENSE:
        dense_backward(&p);
        break;
    case OPERATION_CROSS_ENTROPY:
        cross_entropy_backward(&p);
        break;
    }
    return ALNICO_SUCCESS;
}

static void naive_destroy(void *self)
{
    struct naive *naive = self;
    if (naive)
        free(naive->moments);
    free(naive);
}

static alnico_status_t naive_create(const struct kernels_setup *setup, void **out)
{
    struct naive *self = malloc(sizeof *self);
    double *moments = calloc(setup->network->statistics + 1, sizeof *moments);
    if (!self || !moments) {
        free(self);
        free(moments);
        return error_set(ALNICO_ERROR_MEMORY, "naive kernels: no memory");
    }
    *self = (struct naive){.setup = *setup, .moments = moments};
    *out = self;
    return ALNICO_SUCCESS;
}

const struct kernels_ops kernels_naive = {
    .name = "naive",
    .about = "plain loops, one operation at a time: slow, for checking",
    .device = ALNICO_DEVICE_CPU,
    .precisions = 1 << PRECISION_FP32,
    .rules = {.run = run_one, .needs = naive_needs},
    .create = naive_create,
    .destroy = naive_destroy,
    .forward = naive_forward,
    .backward = naive_backward,
};
