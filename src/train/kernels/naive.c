/*
 * The oracle: every operation by itself, as its layer's plain loops, with sums in double. Slow,
 * single-threaded, and easy to check by eye. Called through kernels_naive (kernels.h).
 */
#include "train/kernels/boxes.h"
#include "train/kernels/kernels.h"
#include "train/kernels/methods.h"

#include "base/status.h"

#include <stdlib.h>
#include <string.h>

struct naive {
    struct kernels_setup setup;
    double *moments; /* for each batch norm, where its statistics are: the batch's mean, variance */
};

static const struct layer_ops *layer_of(const struct network *network, size_t node)
{
    return layers_all[network->nodes[node].operation.kind];
}

static void naive_needs(const struct plan *plan, const struct step *step, struct step_needs *out)
{
    const struct layer_ops *layer = layer_of(plan->network, step->first);
    for (size_t i = 0; i < step->inputs; i++)
        out->in[i] = layer->reads_inputs;
    out->out = layer->reads_output;
}

static struct layer_pass pass_of(const struct naive *self, size_t step, bool training)
{
    const struct kernels_setup *setup = &self->setup;
    const struct node *node = &setup->network->nodes[step];
    struct layer_pass p = {.node = node,
                           .in = &setup->network->tensors[node->in[0]],
                           .out = network_output(setup->network, step),
                           .batch = plan_images(setup->plan, step + 1),
                           .y = setup_value(setup, step + 1),
                           .dy = setup_diff(setup, step + 1),
                           .weight = setup->arenas->parameters + node->weight.offset,
                           .bias = setup->arenas->parameters + node->bias.offset,
                           .dweight = (float *)setup->arenas->gradients + node->weight.offset,
                           .dbias = (float *)setup->arenas->gradients + node->bias.offset,
                           .running = setup->arenas->statistics + node->statistics.offset,
                           .moments = self->moments + node->statistics.offset,
                           .pixels = network_joint(setup->network, step, setup->plan->batch),
                           .labels = setup->arenas->labels,
                           .smoothing = setup->options.smoothing,
                           .terms = network_terms(setup->network, step, setup->plan->batch),
                           .training = training,
                           .frozen = setup->options.frozen,
                           .dropout = setup_dropout(setup, step)};
    if (p.pixels > 0)
        p.joint = setup->arenas->joint;
    network_window(setup->network, step, &p.rows, &p.columns);
    for (size_t i = 0; i < node->inputs; i++) {
        p.x[i] = setup_value(setup, node->in[i]);
        p.dx[i] = setup_diff(setup, node->in[i]);
        p.channels[i] = setup->network->tensors[node->in[i]].channels;
    }
    return p;
}

/* Where windows slide. */
static bool naive_divides(const struct plan *plan, const struct step *step)
{
    const enum operation_kind kind = plan->network->nodes[step->first].operation.kind;
    return method_taken(METHOD_INTERIOR) &&
           (kind == OPERATION_CONVOLUTION || kind == OPERATION_MAX_POOL ||
            kind == OPERATION_AVERAGE_POOL);
}

static void views_forward(const struct naive *self, size_t s, size_t first, size_t end)
{
    struct layer_pass pass = pass_of(self, s, true);
    for (size_t i = first; i < end; i++) {
        pass.only = &self->setup.plan->steps[s].views[i].out;
        layer_of(self->setup.network, s)->forward(&pass);
    }
}

static alnico_status_t naive_interior(void *self, size_t step)
{
    views_forward(self, step, 0, 1);
    return ALNICO_SUCCESS;
}

static alnico_status_t naive_border(void *self, size_t step)
{
    const struct naive *naive = self;
    views_forward(naive, step, 1, naive->setup.plan->steps[step].view_count);
    return ALNICO_SUCCESS;
}

static alnico_status_t naive_forward(void *self, size_t step, bool training)
{
    const struct naive *naive = self;
    const struct layer_pass pass = pass_of(naive, step, training);
    layer_of(naive->setup.network, step)->forward(&pass);
    return ALNICO_SUCCESS;
}

/* Every backward loop adds, so what is to be overwritten begins at zero. */
static void naive_clear(const struct naive *self, size_t s)
{
    const struct step *step = &self->setup.plan->steps[s];
    for (size_t i = 0; i < step->inputs; i++) {
        float *diff = setup_diff(&self->setup, step->in[i]);
        if (diff && !step->accumulate[i])
            memset(diff, 0, plan_float_bytes(self->setup.plan, step->in[i]));
    }
}

static alnico_status_t naive_backward(void *self, size_t step)
{
    const struct naive *naive = self;
    const struct layer_pass pass = pass_of(naive, step, true);
    naive_clear(naive, step);
    layer_of(naive->setup.network, step)->backward(&pass);
    return ALNICO_SUCCESS;
}

static alnico_status_t naive_sums(void *self, size_t step, bool backward)
{
    const struct naive *naive = self;
    const struct layer_pass pass = pass_of(naive, step, true);
    layer_of(naive->setup.network, step)->sums(&pass, backward);
    return ALNICO_SUCCESS;
}

static struct box_view view_of(const struct naive *self, const struct box_end *end)
{
    const struct kernels_setup *setup = &self->setup;
    const struct tensor *tensor = &setup->network->tensors[end->tensor];
    const size_t pixels = tensor->height * tensor->width;
    return (struct box_view){.at = end->diff ? setup_diff(setup, end->tensor)
                                             : setup_value(setup, end->tensor),
                             .width = tensor->width,
                             .runs = {.run = tensor->channels,
                                      .pixel = tensor->channels,
                                      .image = pixels * tensor->channels},
                             .from = end->from};
}

static alnico_status_t naive_copy(void *self, const struct box_copy *copies, size_t count)
{
    for (size_t i = 0; i < count; i++)
        boxes_copy(&copies[i], view_of(self, &copies[i].from), view_of(self, &copies[i].to));
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
    .rules = {.divides = naive_divides, .needs = naive_needs},
    .create = naive_create,
    .destroy = naive_destroy,
    .forward = naive_forward,
    .backward = naive_backward,
    .forward_interior = naive_interior,
    .forward_border = naive_border,
    .sums = naive_sums,
    .copy = naive_copy,
};
