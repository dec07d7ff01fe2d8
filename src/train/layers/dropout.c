/* Dropout: in training, zeros at random places (layers/dropout.h). */
#include "train/layers/layer.h"

#include "base/status.h"

static alnico_status_t dropout_shape(struct node *node, const struct tensor *const in[],
                                     struct tensor *out)
{
    const double rate = (double)node->operation.rate;
    (void)in, (void)out;
    if (rate >= 0 && rate * DROPOUT_ONE + 0.5 < DROPOUT_ONE)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "network_append: dropout '%s' has rate %g, expected 0 to below 1",
                     node->operation.name, rate);
}

static void dropout_cost(const struct layer_work *work, bool backward, struct step_cost *cost)
{
    cost_add(cost, work->in[0] + work->out + (backward ? work->added[0] : 0), 0);
}

/* y = x times the factors, or added. */
static void multiply(const struct layer_pass *p, const float *x, float *y, bool add)
{
    const size_t channels = p->out->channels, pixels = p->out->height * p->out->width;
    for (size_t i = 0; i < p->batch * pixels * channels; i++) {
        const size_t c = i % channels, pixel = i / channels % pixels, n = i / channels / pixels;
        const uint64_t hash =
            dropout_hash(dropout_image(&p->dropout, n), dropout_pixel(&p->dropout, pixel),
                         dropout_groups(channels), c / DROPOUT_CHANNELS);
        y[i] = (add ? y[i] : 0) + x[i] * dropout_factor(&p->dropout, hash, c);
    }
}

static void dropout_forward(const struct layer_pass *p)
{
    if (p->training)
        multiply(p, p->x[0], p->y, false);
    for (size_t i = 0; !p->training && i < p->batch * tensor_elements(p->in); i++)
        p->y[i] = p->x[0][i];
}

static void dropout_backward(const struct layer_pass *p)
{
    if (p->dx[0])
        multiply(p, p->dy, p->dx[0], true);
}

const struct layer_ops layer_dropout = {
    .name = "dropout",
    .inputs = 1,
    .draws = true,
    .shape = dropout_shape,
    .cost = dropout_cost,
    .forward = dropout_forward,
    .backward = dropout_backward,
};
