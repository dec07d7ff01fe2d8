/* Batch norm (Ioffe, Szegedy 2015): over images, rows and columns, for each channel. */
#include "train/layers/layer.h"

#include <math.h>

static alnico_status_t norm_shape(struct node *node, const struct tensor *const in[],
                                  struct tensor *out)
{
    (void)out;
    node->weight.count = node->bias.count = in[0]->channels;
    node->statistics.count = 2 * in[0]->channels;
    return ALNICO_SUCCESS;
}

static void norm_initialize(const struct node *node, size_t channels, uint64_t state,
                            float *weights, float *statistics)
{
    (void)state;
    for (size_t c = 0; c < channels; c++) {
        weights[c] = node->operation.zero ? 0 : 1;
        statistics[c] = 0;
        statistics[channels + c] = 1;
    }
}

/* One batch norm or two, and what is added to the one. */
static void norm_cost(const struct layer_work *work, bool backward, struct step_cost *cost)
{
    double inputs = 0, added = 0;
    for (size_t i = 0; i < work->inputs; i++) {
        inputs += work->in[i];
        added += work->added[i];
    }
    const double norms = work->in[0] + (work->two ? work->in[1] : 0);
    const double mask = work->relu && work->inputs > 1 ? work->mask : 0;
    if (work->pool) {
        /* Windows save their winner's x and place, and a mask; sums are over windows. */
        cost_add(cost, backward ? 2 * work->out + work->mask : work->in[0], 0);
        cost_add(cost,
                 work->in[0] +
                     (backward ? work->in[0] + added + work->out : 2 * work->out + work->mask) +
                     8 * work->mask,
                 0);
        return;
    }
    cost_add(cost, norms + (backward ? work->out + mask : 0), 0);
    cost_add(cost, (backward ? norms + added : 0) + inputs + work->out + mask, 0);
}

static void running_move(const struct layer_pass *p, size_t channel, double unbiased)
{
    float *running = p->running + channel;
    const size_t channels = p->in->channels;
    running[0] += NETWORK_NORM_MOMENTUM * ((float)p->moments[channel] - running[0]);
    running[channels] += NETWORK_NORM_MOMENTUM * ((float)unbiased - running[channels]);
}

/* Of all ranks. */
static void norm_joined(const struct layer_pass *p, size_t channel)
{
    const size_t channels = p->in->channels;
    const double mean = p->joint[channel] / p->pixels,
                 variance = fmax(p->joint[channels + channel] / p->pixels - mean * mean, 0);
    p->moments[channel] = mean;
    p->moments[channels + channel] = variance;
    running_move(p, channel, variance * p->pixels / fmax(p->pixels - 1, 1));
}

static void norm_moments(const struct layer_pass *p, size_t channel, size_t count)
{
    const size_t channels = p->in->channels;
    double sum = 0, squares = 0;
    for (size_t i = 0; i < count; i++)
        sum += p->x[0][i * channels + channel];
    const double mean = sum / (double)count;
    for (size_t i = 0; i < count; i++)
        squares += pow(p->x[0][i * channels + channel] - mean, 2);
    const double unbiased = squares / (double)(count > 1 ? count - 1 : 1);
    p->moments[channel] = mean;
    p->moments[channels + channel] = squares / (double)count;
    running_move(p, channel, unbiased);
}

static void norm_forward(const struct layer_pass *p)
{
    const size_t channels = p->in->channels;
    const size_t count = p->batch * p->in->height * p->in->width;
    for (size_t c = 0; c < channels; c++) {
        const bool running = !p->training || p->frozen;
        if (!running && p->joint)
            norm_joined(p, c);
        else if (!running)
            norm_moments(p, c, count);
        const double mean = running ? p->running[c] : p->moments[c];
        const double variance = running ? p->running[channels + c] : p->moments[channels + c];
        const double scale = p->weight[c] / sqrt(variance + NETWORK_NORM_EPSILON);
        for (size_t i = c; i < count * channels; i += channels)
            p->y[i] = (float)((p->x[0][i] - mean) * scale + p->bias[c]);
    }
}

static double moment(const struct layer_pass *p, size_t at)
{
    return p->frozen ? (double)p->running[at] : p->moments[at];
}

/* The gradients of a channel's shift and scale. */
static void norm_slopes(const struct layer_pass *p, size_t c, double *shift, double *scale)
{
    const size_t channels = p->in->channels, count = p->batch * p->in->height * p->in->width;
    const double mean = moment(p, c),
                 inverse = 1 / sqrt(moment(p, channels + c) + NETWORK_NORM_EPSILON);
    *shift = *scale = 0;
    for (size_t i = c; i < count * channels; i += channels) {
        *shift += p->dy[i];
        *scale += p->dy[i] * (p->x[0][i] - mean) * inverse;
    }
    p->dbias[c] = (float)*shift;
    p->dweight[c] = (float)*scale;
}

static void norm_sums(const struct layer_pass *p, bool backward)
{
    const size_t channels = p->in->channels, count = p->batch * p->in->height * p->in->width;
    for (size_t c = 0; c < channels; c++) {
        double *sums[] = {&p->joint[c], &p->joint[channels + c]};
        if (backward) {
            norm_slopes(p, c, sums[0], sums[1]);
            continue;
        }
        *sums[0] = *sums[1] = 0;
        for (size_t i = c; i < count * channels; i += channels) {
            *sums[0] += p->x[0][i];
            *sums[1] += (double)p->x[0][i] * p->x[0][i];
        }
    }
}

static void norm_backward(const struct layer_pass *p)
{
    const size_t channels = p->in->channels;
    const size_t count = p->batch * p->in->height * p->in->width;
    for (size_t c = 0; c < channels; c++) {
        const double mean = moment(p, c),
                     inverse = 1 / sqrt(moment(p, channels + c) + NETWORK_NORM_EPSILON),
                     pixels = p->joint ? p->pixels : (double)count;
        double shift, scale;
        if (p->joint) {
            shift = p->joint[c];
            scale = p->joint[channels + c];
        } else {
            norm_slopes(p, c, &shift, &scale);
        }
        for (size_t i = c; p->dx[0] && i < count * channels; i += channels) {
            const double normal = (p->x[0][i] - mean) * inverse;
            const double moved = p->frozen ? 0 : (shift + normal * scale) / pixels;
            p->dx[0][i] += (float)(p->weight[c] * inverse * (p->dy[i] - moved));
        }
    }
}

const struct layer_ops layer_batch_norm = {
    .name = "batch norm",
    .inputs = 1,
    .shape = norm_shape,
    .initialize = norm_initialize,
    .cost = norm_cost,
    .forward = norm_forward,
    .backward = norm_backward,
    .reads_inputs = true,
    .sums = norm_sums,
};
