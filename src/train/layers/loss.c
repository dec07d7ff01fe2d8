/*
 * Losses of one label a pixel, or an image where that is one pixel. A term is what one label adds;
 * those of labels below 0 are nothing. The gradient is that of the sum of terms over all labels
 * of the batch, -1 counted, times the operation's loss weight: the same for any number of ranks.
 */
#include "train/layers/layer.h"

#include "base/status.h"

#include <math.h>

static alnico_status_t loss_shape(struct node *node, const struct tensor *const in[],
                                  struct tensor *out)
{
    const struct operation *operation = &node->operation;
    (void)in, (void)out;
    if (isfinite(operation->loss_weight) && operation->loss_weight >= 0)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "network_append: %s '%s' has a loss weight of %g, expected at least 0",
                     operation_kind_name(operation->kind), operation->name, operation->loss_weight);
}

static void loss_cost(const struct layer_work *work, bool backward, struct step_cost *cost)
{
    (void)backward;
    cost_add(cost, work->in[0] + work->out, 0);
}

double loss_weight(const struct operation *operation)
{
    return operation->loss_weight > 0 ? operation->loss_weight : 1;
}

static size_t terms(const struct layer_pass *p)
{
    return p->batch * p->in->height * p->in->width;
}

/* Of a term whose slope is 1. */
static double share(const struct layer_pass *p)
{
    return loss_weight(&p->node->operation) / p->terms;
}

/* The first of a term's largest outputs. */
static size_t best_of(const float *y, size_t channels)
{
    size_t best = 0;
    for (size_t k = 1; k < channels; k++)
        if (y[k] > y[best])
            best = k;
    return best;
}

/* ---- Cross-entropy of the softmax, -(1 - smoothing) * (the label's log probability) - smoothing *
 * (the mean of all log probabilities); its value is the logarithm of the softmax ---- */

static size_t cross_entropy_classes(const struct tensor *in)
{
    return in->channels;
}

static void cross_entropy_forward(const struct layer_pass *p)
{
    const size_t classes = p->in->channels;
    for (size_t n = 0; n < terms(p); n++) {
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

static void cross_entropy_backward(const struct layer_pass *p)
{
    const size_t classes = p->in->channels;
    for (size_t n = 0; p->dx[0] && n < terms(p); n++)
        for (size_t k = 0; p->labels[n] >= 0 && k < classes; k++) {
            const double target =
                (1 - p->smoothing) * ((size_t)p->labels[n] == k) + p->smoothing / (double)classes;
            p->dx[0][n * classes + k] += (float)((exp(p->y[n * classes + k]) - target) * share(p));
        }
}

static void cross_entropy_score(const struct layer_pass *p, double *score)
{
    const size_t classes = p->in->channels;
    for (size_t n = 0; n < terms(p); n++) {
        const float *y = p->y + n * classes;
        const int32_t label = p->labels[n];
        if (label < 0)
            continue;
        score[SCORE_LOSS] -= (1 - p->smoothing) * y[label];
        for (size_t k = 0; p->smoothing > 0 && k < classes; k++)
            score[SCORE_LOSS] -= p->smoothing * y[k] / (double)classes;
        score[SCORE_CORRECT] += best_of(y, classes) == (size_t)label;
        score[SCORE_TERMS]++;
    }
}

const struct layer_ops layer_cross_entropy = {
    .name = "cross-entropy",
    .inputs = 1,
    .shape = loss_shape,
    .cost = loss_cost,
    .forward = cross_entropy_forward,
    .backward = cross_entropy_backward,
    .reads_output = true,
    .classes = cross_entropy_classes,
    .score = cross_entropy_score,
};

/* ---- Squared error; its value is its input ---- */

/* A single channel's target is the label as a number, which is no class. */
static size_t squared_error_classes(const struct tensor *in)
{
    return in->channels > 1 ? in->channels : (size_t)INT32_MAX + 1;
}

static double squared_error_target(size_t channels, int32_t label, size_t k)
{
    return channels > 1 ? (size_t)label == k : label;
}

static void squared_error_forward(const struct layer_pass *p)
{
    for (size_t i = 0; i < p->batch * tensor_elements(p->in); i++)
        p->y[i] = p->x[0][i];
}

static void squared_error_backward(const struct layer_pass *p)
{
    const size_t channels = p->in->channels;
    for (size_t n = 0; p->dx[0] && n < terms(p); n++)
        for (size_t k = 0; p->labels[n] >= 0 && k < channels; k++) {
            const double away =
                p->y[n * channels + k] - squared_error_target(channels, p->labels[n], k);
            p->dx[0][n * channels + k] += (float)(2 * away / (double)channels * share(p));
        }
}

static void squared_error_score(const struct layer_pass *p, double *score)
{
    const size_t channels = p->in->channels;
    for (size_t n = 0; n < terms(p); n++) {
        const float *y = p->y + n * channels;
        const int32_t label = p->labels[n];
        if (label < 0)
            continue;
        for (size_t k = 0; k < channels; k++)
            score[SCORE_LOSS] +=
                pow(y[k] - squared_error_target(channels, label, k), 2) / (double)channels;
        score[SCORE_CORRECT] +=
            channels > 1 ? best_of(y, channels) == (size_t)label : fabs((double)y[0] - label) < 0.5;
        score[SCORE_TERMS]++;
    }
}

const struct layer_ops layer_squared_error = {
    .name = "squared error",
    .inputs = 1,
    .shape = loss_shape,
    .cost = loss_cost,
    .forward = squared_error_forward,
    .backward = squared_error_backward,
    .reads_output = true,
    .classes = squared_error_classes,
    .score = squared_error_score,
};
