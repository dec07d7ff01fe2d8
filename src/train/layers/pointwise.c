/* ReLU, sigmoid and addition: element by element. */
#include "train/layers/layer.h"

#include "base/status.h"

#include <math.h>

static alnico_status_t add_shape(struct node *node, const struct tensor *const in[],
                                 struct tensor *out)
{
    const struct operation *operation = &node->operation;
    const struct tensor *a = in[0], *b = in[1];
    (void)out;
    if (a->height == b->height && a->width == b->width && a->channels == b->channels)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "network_append: addition '%s' of '%s' (%zux%zux%zu) and '%s' (%zux%zux%zu), "
                     "expected equal shapes",
                     operation->name, operation->in[0], a->height, a->width, a->channels,
                     operation->in[1], b->height, b->width, b->channels);
}

static void pointwise_cost(const struct layer_work *work, bool backward, struct step_cost *cost)
{
    const bool gates = work->relu || work->operation->kind == OPERATION_SIGMOID;
    double forward = work->out;
    for (size_t i = 0; i < work->inputs; i++) {
        forward += work->in[i];
        if (backward)
            cost_add(cost, work->in[i] + work->added[i] + (gates ? 2 : 1) * work->out, 0);
    }
    if (!backward)
        cost_add(cost, forward, 0);
}

static void relu_forward(const struct layer_pass *p)
{
    for (size_t i = 0; i < p->batch * tensor_elements(p->in); i++)
        p->y[i] = p->x[0][i] > 0 ? p->x[0][i] : 0;
}

static void relu_backward(const struct layer_pass *p)
{
    for (size_t i = 0; p->dx[0] && i < p->batch * tensor_elements(p->in); i++)
        p->dx[0][i] += p->x[0][i] > 0 ? p->dy[i] : 0;
}

static void sigmoid_forward(const struct layer_pass *p)
{
    for (size_t i = 0; i < p->batch * tensor_elements(p->in); i++)
        p->y[i] = (float)(1 / (1 + exp(-(double)p->x[0][i])));
}

static void sigmoid_backward(const struct layer_pass *p)
{
    for (size_t i = 0; p->dx[0] && i < p->batch * tensor_elements(p->in); i++)
        p->dx[0][i] += p->dy[i] * p->y[i] * (1 - p->y[i]);
}

static void add_forward(const struct layer_pass *p)
{
    for (size_t i = 0; i < p->batch * tensor_elements(p->in); i++)
        p->y[i] = p->x[0][i] + p->x[1][i];
}

static void add_backward(const struct layer_pass *p)
{
    for (size_t k = 0; k < 2; k++)
        for (size_t i = 0; p->dx[k] && i < p->batch * tensor_elements(p->in); i++)
            p->dx[k][i] += p->dy[i];
}

const struct layer_ops layer_relu = {
    .name = "relu",
    .inputs = 1,
    .channels = CHANNELS_EACH,
    .cost = pointwise_cost,
    .forward = relu_forward,
    .backward = relu_backward,
    .reads_inputs = true,
};

const struct layer_ops layer_sigmoid = {
    .name = "sigmoid",
    .inputs = 1,
    .channels = CHANNELS_EACH,
    .cost = pointwise_cost,
    .forward = sigmoid_forward,
    .backward = sigmoid_backward,
    .reads_output = true,
};

const struct layer_ops layer_add = {
    .name = "addition",
    .inputs = 2,
    .shape = add_shape,
    .cost = pointwise_cost,
    .forward = add_forward,
    .backward = add_backward,
};
