/* See layers/window.h. */
#include "train/layers/window.h"

#include "base/status.h"

/* Windows along a side of so many pixels. */
static size_t windows(const struct operation *operation, size_t side)
{
    const size_t room = side + 2 * operation->pad - operation->window;
    const size_t whole = room / operation->stride + 1;
    const bool more = operation->ceil && room % operation->stride &&
                      whole * operation->stride < side + operation->pad;
    return whole + more;
}

alnico_status_t window_shape(const struct operation *operation, const struct tensor *in,
                             struct tensor *out)
{
    const size_t window = operation->window, pad = operation->pad, stride = operation->stride;
    const char *kind = operation_kind_name(operation->kind);
    if (!window || !stride || window > NETWORK_MAX_SIDE || stride > NETWORK_MAX_SIDE)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "network_append: %s '%s' has window %zu and stride %zu, expected 1 to %d",
                         kind, operation->name, window, stride, NETWORK_MAX_SIDE);
    if (pad >= window)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "network_append: %s '%s' has pad %zu, expected less than its window %zu",
                         kind, operation->name, pad, window);
    if (window > in->height + 2 * pad || window > in->width + 2 * pad)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "network_append: %s '%s' has window %zu, which does not fit into its "
                         "input of %zux%zu with pad %zu",
                         kind, operation->name, window, in->height, in->width, pad);
    out->height = windows(operation, in->height);
    out->width = windows(operation, in->width);
    return ALNICO_SUCCESS;
}

void window_reads(const struct node *node, const struct tensor *in, struct box *box)
{
    const struct operation *operation = &node->operation;
    const ptrdiff_t stride = (ptrdiff_t)operation->stride, pad = (ptrdiff_t)operation->pad,
                    window = (ptrdiff_t)operation->window,
                    ends[AXES] = {
                        [AXIS_ROWS] = (ptrdiff_t)in->height, [AXIS_COLUMNS] = (ptrdiff_t)in->width};
    for (enum axis axis = AXIS_ROWS; axis <= AXIS_COLUMNS; axis++) {
        box->from[axis] = window ? box->from[axis] * stride - pad : 0;
        box->to[axis] = window ? (box->to[axis] - 1) * stride - pad + window : ends[axis];
    }
}

bool window_pixel(const struct layer_pass *p, size_t n, size_t i, size_t j, size_t r, size_t c,
                  size_t *index)
{
    const size_t stride = p->node->operation.stride;
    const size_t row = i * stride + r - p->node->pad_rows; /* wraps if outside */
    const size_t column = j * stride + c - p->node->pad_columns;
    if (row >= p->in->height || column >= p->in->width)
        return false;
    *index = ((n * p->in->height + row) * p->in->width + column) * p->in->channels;
    return true;
}

void window_each(const struct layer_pass *p,
                 void (*visit)(const struct layer_pass *, size_t n, size_t i, size_t j, size_t out))
{
    size_t from[AXES] = {0}, to[AXES] = {p->batch, p->out->height, p->out->width};
    for (enum axis axis = 0; p->only && axis < AXIS_CHANNELS; axis++) {
        from[axis] = (size_t)p->only->from[axis];
        to[axis] = (size_t)p->only->to[axis];
    }
    for (size_t n = from[AXIS_IMAGES]; n < to[AXIS_IMAGES]; n++)
        for (size_t i = from[AXIS_ROWS]; i < to[AXIS_ROWS]; i++)
            for (size_t j = from[AXIS_COLUMNS]; j < to[AXIS_COLUMNS]; j++)
                visit(p, n, i, j,
                      ((n * p->out->height + i) * p->out->width + j) * p->out->channels);
}
