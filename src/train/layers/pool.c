/* Maximum and average pooling. Padding never wins and is not counted. */
#include "train/layers/window.h"

#include "base/status.h"

static alnico_status_t pool_shape(struct node *node, const struct tensor *const in[],
                                  struct tensor *out)
{
    const struct operation *operation = &node->operation;
    if (operation->window || operation->kind == OPERATION_MAX_POOL)
        return window_shape(operation, in[0], out);
    out->height = out->width = 1;
    if (!operation->pad && !operation->stride)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "network_append: %s '%s' over the whole image has pad %zu and stride "
                     "%zu, expected 0",
                     operation_kind_name(operation->kind), operation->name, operation->pad,
                     operation->stride);
}

static void pool_cost(const struct layer_work *work, bool backward, struct step_cost *cost)
{
    const double index = work->operation->kind == OPERATION_MAX_POOL ? 8 * work->mask : 0;
    cost_add(cost, work->in[0] + work->out + index + (backward ? work->added[0] : 0), 0);
}

/* The index of the largest number in a channel's window: the first of equals. */
static size_t largest(const struct layer_pass *p, size_t n, size_t i, size_t j, size_t channel)
{
    size_t best = 0, in;
    bool found = false;
    for (size_t r = 0; r < p->rows; r++)
        for (size_t c = 0; c < p->columns; c++)
            if (window_pixel(p, n, i, j, r, c, &in) &&
                (!found || p->x[0][in + channel] > p->x[0][best])) {
                best = in + channel;
                found = true;
            }
    return best;
}

static void max_visit(const struct layer_pass *p, size_t n, size_t i, size_t j, size_t out)
{
    for (size_t k = 0; k < p->out->channels; k++)
        p->y[out + k] = p->x[0][largest(p, n, i, j, k)];
}

static void max_gradient(const struct layer_pass *p, size_t n, size_t i, size_t j, size_t out)
{
    for (size_t k = 0; p->dx[0] && k < p->out->channels; k++)
        p->dx[0][largest(p, n, i, j, k)] += p->dy[out + k];
}

/* How many pixels of the window are no padding. */
static size_t covered(const struct layer_pass *p, size_t n, size_t i, size_t j)
{
    size_t count = 0, in;
    for (size_t r = 0; r < p->rows; r++)
        for (size_t c = 0; c < p->columns; c++)
            count += window_pixel(p, n, i, j, r, c, &in);
    return count;
}

static void average_visit(const struct layer_pass *p, size_t n, size_t i, size_t j, size_t out)
{
    for (size_t k = 0; k < p->out->channels; k++) {
        double sum = 0;
        size_t in;
        for (size_t r = 0; r < p->rows; r++)
            for (size_t c = 0; c < p->columns; c++)
                if (window_pixel(p, n, i, j, r, c, &in))
                    sum += p->x[0][in + k];
        p->y[out + k] = (float)(sum / (double)covered(p, n, i, j));
    }
}

static void average_gradient(const struct layer_pass *p, size_t n, size_t i, size_t j, size_t out)
{
    const float share = 1.0f / (float)covered(p, n, i, j);
    size_t in;
    for (size_t r = 0; p->dx[0] && r < p->rows; r++)
        for (size_t c = 0; c < p->columns; c++)
            if (window_pixel(p, n, i, j, r, c, &in))
                for (size_t k = 0; k < p->out->channels; k++)
                    p->dx[0][in + k] += p->dy[out + k] * share;
}

static void pool_forward(const struct layer_pass *p)
{
    const bool max = p->node->operation.kind == OPERATION_MAX_POOL;
    window_each(p, max ? max_visit : average_visit);
}

static void pool_backward(const struct layer_pass *p)
{
    const bool max = p->node->operation.kind == OPERATION_MAX_POOL;
    window_each(p, max ? max_gradient : average_gradient);
}

const struct layer_ops layer_max_pool = {
    .name = "max pooling",
    .inputs = 1,
    .shape = pool_shape,
    .reads = window_reads,
    .cost = pool_cost,
    .forward = pool_forward,
    .backward = pool_backward,
    .reads_inputs = true,
};

const struct layer_ops layer_average_pool = {
    .name = "average pooling",
    .inputs = 1,
    .shape = pool_shape,
    .reads = window_reads,
    .reads_images = true,
    .cost = pool_cost,
    .forward = pool_forward,
    .backward = pool_backward,
};
