/* What follows a convolution or dense layer in its step: a bias, a ReLU, dropout, by one kernel of our
 * own each way. See cudnn/steps.h. */
#include "train/kernels/cudnn/steps.h"

#include "base/status.h"

void epilogue_make(struct cudnn_net *self, struct cudnn_step *step)
{
    const struct kernels_setup *setup = &self->setup;
    const struct node *node = step->node;
    const size_t out = step->step->out, last = out - 1;
    const struct tensor *made = &setup->network->tensors[out];
    const bool drops = step_is(setup->network, step->step, -1, OPERATION_DROPOUT);
    const bool relu = step->step->count > 1;
    step->epilogue = (struct train_epilogue){
        .x = step_made(self, step, 0),
        .y = setup_value(setup, out),
        .pitch = (unsigned)row_pitch(setup->plan, out),
        .bias = node->bias.count ? setup->arenas->parameters + node->bias.offset : NULL,
        .relu = relu,
        .draw = drops ? setup->arenas->draw : NULL,
        .dropout = drops ? setup_masks(setup, last) : (struct dropout){.scale = 1},
        .pixels = (unsigned)(made->height * made->width),
        .rows = tensor_rows(setup->plan, out),
        .channels = (unsigned)made->channels,
        .padded = (unsigned)padded_channels(setup->network, out),
        .type = (int)(is_logits(setup->network, out) ? ALNICO_FLOAT32 : self->type)};
    step->epilogue_back = (struct train_epilogue_backward){
        .dx = step_made(self, step, 1),
        .dy = setup_diff(setup, out),
        .pitch = step->epilogue.pitch,
        .y = relu ? step->epilogue.y : NULL,
        .scale = step->epilogue.dropout.scale,
        .bias_diff = node->bias.count ? gradient_at(self, node->bias.offset) : NULL,
        .rows = step->epilogue.rows,
        .channels = step->epilogue.channels,
        .padded = step->epilogue.padded,
        .type = (int)self->type,
        .gradient_type = (int)setup->gradient_type};
}

alnico_status_t epilogue_forward(struct cudnn_net *self, const struct cudnn_step *step,
                                 bool training)
{
    struct train_epilogue pass = step->epilogue;
    if (!training)
        pass.draw = NULL;
    if (!pass.bias && !pass.relu)
        return ALNICO_SUCCESS;
    return gpu_status(train_epilogue(&self->gpu, &pass), "a bias and what follows");
}

alnico_status_t epilogue_backward(struct cudnn_net *self, const struct cudnn_step *step)
{
    const struct train_epilogue_backward *pass = &step->epilogue_back;
    if (!pass->y && !pass->bias_diff)
        return ALNICO_SUCCESS;
    return gpu_status(train_epilogue_backward(&self->gpu, pass), "the gradient of a bias");
}
