/*
 * Strided gradient: a convolution of single pixels with a stride reads every so many pixels of
 * every so many rows only, and the gradient of the others is 0. That of those which it reads is
 * made as if there were no stride, in the step's scratch, and spread from there. Where another
 * gradient stands already, the rest of it is not touched. See cudnn/steps.h.
 */
#include "train/kernels/cudnn/steps.h"

struct train_strided strided_of(const struct plan *plan, const struct step *step)
{
    const struct network *network = plan->network;
    const struct node *node = &network->nodes[step->first];
    const struct operation *operation = &node->operation;
    if (!method_taken(METHOD_STRIDED_GRADIENT) || operation->kind != OPERATION_CONVOLUTION ||
        step->in[0] == 0 || operation->window != 1 || operation->stride < 2 || node->pad_rows ||
        node->pad_columns)
        return (struct train_strided){0};
    const struct tensor *in = &network->tensors[step->in[0]];
    const struct tensor *out = &network->tensors[step->out];
    return (struct train_strided){.batch = plan_images(plan, step->out),
                                  .height = in->height,
                                  .width = in->width,
                                  .out_height = out->height,
                                  .out_width = out->width,
                                  .stride = (unsigned)operation->stride,
                                  .padded = (unsigned)padded_channels(network, step->in[0]),
                                  .type = precision_type(plan->precision)};
}

static size_t bytes_of(const struct train_strided *spread, size_t pixels)
{
    return pixels * spread->padded * datatype_bytes((alnico_datatype_t)spread->type);
}

size_t strided_bytes(const struct train_strided *spread)
{
    return bytes_of(spread, spread->batch * spread->out_height * spread->out_width);
}

bool strided_pass(const struct cudnn_net *self, const struct cudnn_step *step,
                  struct cudnn_pass *pass)
{
    struct convolution *c = &pass->convolution;
    if (!step->strided.stride)
        return false;
    c->height = c->out_height;
    c->width = c->out_width;
    c->stride = 1;
    c->accumulate = false;
    pass->memory.x = setup_scratch(&self->setup, step->step, 1);
    return true;
}

double strided_us(const struct train_strided *spread, bool add)
{
    const size_t part = strided_bytes(spread);
    return pass_us(add ? 3 * part
                       : part + bytes_of(spread, spread->batch * spread->height * spread->width));
}
