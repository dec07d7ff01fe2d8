/* Concatenation: the channels of some tensors of equal sides, one tensor's behind the other's. */
#include "train/layers/layer.h"

#include "base/status.h"

static alnico_status_t concat_shape(struct node *node, const struct tensor *const in[],
                                    struct tensor *out)
{
    const struct operation *operation = &node->operation;
    size_t channels = 0;
    for (size_t i = 0; i < node->inputs; i++) {
        channels += in[i]->channels;
        if (in[i]->height != in[0]->height || in[i]->width != in[0]->width)
            return error_set(ALNICO_ERROR_ARGUMENT,
                             "network_append: concat '%s' of '%s' (%zux%zu pixels) and '%s' "
                             "(%zux%zu), expected equal sides",
                             operation->name, operation->in[0], in[0]->height, in[0]->width,
                             operation->in[i], in[i]->height, in[i]->width);
    }
    out->channels = channels;
    if (channels <= NETWORK_MAX_SIDE)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "network_append: concat '%s' makes %zu channels, expected at most %d",
                     operation->name, channels, NETWORK_MAX_SIDE);
}

static void concat_cost(const struct layer_work *work, bool backward, struct step_cost *cost)
{
    double bytes = work->out;
    for (size_t i = 0; i < work->inputs; i++)
        bytes += work->in[i] + (backward ? work->added[i] : 0);
    cost_add(cost, bytes, 0);
}

/* Input i is `channels` of each pixel, and its first stands at `first` of the output's. */
static void slice_forward(const struct layer_pass *p, size_t i, size_t first, size_t channels)
{
    const size_t pixels = p->batch * p->out->height * p->out->width;
    for (size_t k = 0; k < pixels * channels; k++)
        p->y[k / channels * p->out->channels + first + k % channels] = p->x[i][k];
}

static void slice_backward(const struct layer_pass *p, size_t i, size_t first, size_t channels)
{
    const size_t pixels = p->batch * p->out->height * p->out->width;
    for (size_t k = 0; p->dx[i] && k < pixels * channels; k++)
        p->dx[i][k] += p->dy[k / channels * p->out->channels + first + k % channels];
}

static void each_slice(const struct layer_pass *p,
                       void (*visit)(const struct layer_pass *, size_t i, size_t first,
                                     size_t channels))
{
    size_t first = 0;
    for (size_t i = 0; i < p->node->inputs; i++) {
        visit(p, i, first, p->channels[i]);
        first += p->channels[i];
    }
}

static void concat_forward(const struct layer_pass *p)
{
    each_slice(p, slice_forward);
}

static void concat_backward(const struct layer_pass *p)
{
    each_slice(p, slice_backward);
}

const struct layer_ops layer_concat = {
    .name = "concat",
    .shape = concat_shape,
    .cost = concat_cost,
    .forward = concat_forward,
    .backward = concat_backward,
};
