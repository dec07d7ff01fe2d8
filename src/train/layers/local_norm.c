/* Local response norm (Krizhevsky, Sutskever, Hinton 2012) over neighbouring channels; alpha is divided
 * by their number, as Caffe and PyTorch do. */
#include "train/layers/layer.h"

#include "base/status.h"

#include <math.h>

static alnico_status_t local_norm_shape(struct node *node, const struct tensor *const in[],
                                        struct tensor *out)
{
    const struct operation *operation = &node->operation;
    const double alpha = (double)operation->alpha, beta = (double)operation->beta,
                 k = (double)operation->k;
    (void)in, (void)out;
    if (operation->window % 2 == 0 || operation->window > NETWORK_MAX_SIDE)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "network_append: local norm '%s' has window %zu, expected an odd number "
                         "below %d",
                         operation->name, operation->window, NETWORK_MAX_SIDE);
    if (alpha >= 0 && isfinite(alpha) && beta > 0 && isfinite(beta) && k > 0 && isfinite(k))
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "network_append: local norm '%s' has alpha %g, beta %g, k %g, expected alpha "
                     "of at least 0, the others above 0",
                     operation->name, alpha, beta, k);
}

static void local_norm_cost(const struct layer_work *work, bool backward, struct step_cost *cost)
{
    cost_add(cost, work->in[0] + work->out + (backward ? work->in[0] + work->added[0] : 0), 0);
}

/* The channels around c that the window covers: from *first to before the result. */
static size_t around(const struct layer_pass *p, size_t c, size_t *first)
{
    const size_t half = p->node->operation.window / 2;
    *first = c > half ? c - half : 0;
    return c + half < p->in->channels ? c + half + 1 : p->in->channels;
}

/* k + alpha / window * the sum of squares around channel c of a pixel. */
static double base_at(const struct layer_pass *p, const float *x, size_t c)
{
    const struct operation *operation = &p->node->operation;
    double sum = 0;
    size_t i;
    for (const size_t end = around(p, c, &i); i < end; i++)
        sum += (double)x[i] * (double)x[i];
    return (double)operation->k + (double)operation->alpha / (double)operation->window * sum;
}

static void local_norm_forward(const struct layer_pass *p)
{
    const double beta = (double)p->node->operation.beta;
    const size_t channels = p->in->channels;
    for (size_t i = 0; i < p->batch * tensor_elements(p->in); i++)
        p->y[i] = (float)((double)p->x[0][i] *
                          pow(base_at(p, p->x[0] + i / channels * channels, i % channels), -beta));
}

/* dx = dy base^-beta - 2 alpha beta / window x (the sum around of dy x base^(-beta - 1)). */
static double gradient_at(const struct layer_pass *p, const float *x, const float *dy, size_t c)
{
    const struct operation *operation = &p->node->operation;
    const double beta = (double)operation->beta;
    double sum = 0;
    size_t i;
    for (const size_t end = around(p, c, &i); i < end; i++)
        sum += (double)dy[i] * (double)x[i] * pow(base_at(p, x, i), -beta - 1);
    return (double)dy[c] * pow(base_at(p, x, c), -beta) -
           2 * (double)operation->alpha * beta / (double)operation->window * (double)x[c] * sum;
}

static void local_norm_backward(const struct layer_pass *p)
{
    const size_t channels = p->in->channels;
    for (size_t i = 0; p->dx[0] && i < p->batch * tensor_elements(p->in); i++) {
        const size_t pixel = i / channels * channels;
        p->dx[0][i] += (float)gradient_at(p, p->x[0] + pixel, p->dy + pixel, i - pixel);
    }
}

const struct layer_ops layer_local_norm = {
    .name = "local norm",
    .inputs = 1,
    .shape = local_norm_shape,
    .cost = local_norm_cost,
    .forward = local_norm_forward,
    .backward = local_norm_backward,
    .reads_inputs = true,
};
