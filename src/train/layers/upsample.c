/* Nearest upsampling by an integer factor: output pixel (i, j) is input pixel (i / factor, j /
 * factor). */
#include "train/layers/layer.h"

#include "base/status.h"

static alnico_status_t upsample_shape(struct node *node, const struct tensor *const in[],
                                      struct tensor *out)
{
    const struct operation *operation = &node->operation;
    const size_t factor = operation->stride, most = NETWORK_MAX_SIDE;
    if (factor < 1 || operation->pad >= factor || in[0]->height > most / factor ||
        in[0]->width > most / factor)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "network_append: upsampling '%s' of %zux%zu pixels by %zu without the "
                         "last %zu, expected sides up to %zu and fewer left out than it makes of "
                         "one",
                         operation->name, in[0]->height, in[0]->width, factor, operation->pad,
                         most);
    out->height = in[0]->height * factor - operation->pad;
    out->width = in[0]->width * factor - operation->pad;
    return ALNICO_SUCCESS;
}

static void upsample_reads(const struct node *node, const struct tensor *in, struct box *box)
{
    const ptrdiff_t factor = (ptrdiff_t)node->operation.stride;
    (void)in;
    for (enum axis axis = AXIS_ROWS; axis <= AXIS_COLUMNS; axis++) {
        box->from[axis] /= factor;
        box->to[axis] = (box->to[axis] + factor - 1) / factor;
    }
}

static void upsample_cost(const struct layer_work *work, bool backward, struct step_cost *cost)
{
    cost_add(cost, work->in[0] + work->out + (backward ? work->added[0] : 0), 0);
}

/* Calls `visit` for every output pixel, with the first channels' indices of both tensors. */
static void upsample_each(const struct layer_pass *p,
                          void (*visit)(const struct layer_pass *, size_t in, size_t out))
{
    const size_t factor = p->node->operation.stride, channels = p->in->channels;
    for (size_t n = 0; n < p->batch; n++)
        for (size_t i = 0; i < p->out->height; i++)
            for (size_t j = 0; j < p->out->width; j++)
                visit(p, ((n * p->in->height + i / factor) * p->in->width + j / factor) * channels,
                      ((n * p->out->height + i) * p->out->width + j) * channels);
}

static void upsample_visit(const struct layer_pass *p, size_t in, size_t out)
{
    for (size_t k = 0; k < p->in->channels; k++)
        p->y[out + k] = p->x[0][in + k];
}

static void upsample_gradient(const struct layer_pass *p, size_t in, size_t out)
{
    for (size_t k = 0; k < p->in->channels; k++)
        p->dx[0][in + k] += p->dy[out + k];
}

static void upsample_forward(const struct layer_pass *p)
{
    upsample_each(p, upsample_visit);
}

static void upsample_backward(const struct layer_pass *p)
{
    if (p->dx[0])
        upsample_each(p, upsample_gradient);
}

const struct layer_ops layer_upsample = {
    .name = "upsampling",
    .inputs = 1,
    .shape = upsample_shape,
    .reads = upsample_reads,
    .cost = upsample_cost,
    .forward = upsample_forward,
    .backward = upsample_backward,
};
