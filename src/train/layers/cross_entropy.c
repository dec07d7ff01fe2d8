/* Cross-entropy of the softmax of a 1 x 1 x classes tensor; its value is the logarithm of the
 * softmax. */
#include "train/layers/layer.h"

#include "base/status.h"

#include <math.h>

static alnico_status_t cross_entropy_shape(struct node *node, const struct tensor *const in[],
                                           struct tensor *out)
{
    (void)out;
    if (in[0]->height == 1 && in[0]->width == 1)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "network_append: cross-entropy '%s' reads '%s' of %zux%zux%zu, expected "
                     "1x1xclasses",
                     node->operation.name, node->operation.in[0], in[0]->height, in[0]->width,
                     in[0]->channels);
}

static void cross_entropy_cost(const struct layer_work *work, bool backward, struct step_cost *cost)
{
    (void)backward;
    cost_add(cost, work->in[0] + work->out, 0);
}

static void cross_entropy_forward(const struct layer_pass *p)
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

static void cross_entropy_backward(const struct layer_pass *p)
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

const struct layer_ops layer_cross_entropy = {
    .name = "cross-entropy",
    .inputs = 1,
    .shape = cross_entropy_shape,
    .cost = cross_entropy_cost,
    .forward = cross_entropy_forward,
    .backward = cross_entropy_backward,
    .reads_output = true,
};
