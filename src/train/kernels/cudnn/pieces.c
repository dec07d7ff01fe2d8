/* Local response norm, dropout by itself, and concatenation: our own kernels. See cudnn/steps.h. */
#include "train/kernels/cudnn/steps.h"

#include "base/status.h"

_Static_assert((int)TRAIN_PARTS >= (int)NETWORK_INPUTS, "all parts of a concatenation have room");

/* ---- Local response norm ---- */

static alnico_status_t local_norm_forward(struct cudnn_net *self, struct cudnn_step *step,
                                          bool training)
{
    (void)training;
    return gpu_status(train_local_norm(&self->gpu, &step->local_norm,
                                       setup_value(&self->setup, step->step->out),
                                       step_value(self, step, 0)),
                      "a local norm");
}

static alnico_status_t local_norm_backward(struct cudnn_net *self, struct cudnn_step *step)
{
    void *dx = step_diff(self, step, 0);
    if (!dx)
        return ALNICO_SUCCESS;
    return gpu_status(train_local_norm_gradient(&self->gpu, &step->local_norm, dx,
                                                setup_diff(&self->setup, step->step->out),
                                                step_value(self, step, 0),
                                                step->step->accumulate[0]),
                      "the gradient of a local norm");
}

alnico_status_t cudnn_local_norm_make(struct cudnn_net *self, struct cudnn_step *step)
{
    const struct operation *operation = &step->node->operation;
    if (operation->window > TRAIN_LOCAL_NORM_MOST)
        return error_set(ALNICO_ERROR_UNSUPPORTED,
                         "cuDNN kernels: local norm '%s' has a window of %zu channels, expected at "
                         "most %d",
                         operation->name, operation->window, TRAIN_LOCAL_NORM_MOST);
    step->local_norm = (struct train_local_norm){
        .rows = tensor_rows(self->setup.plan, step->step->out),
        .padded = (unsigned)padded_channels(self->setup.network, step->step->out),
        .window = (unsigned)operation->window,
        .alpha = operation->alpha / (float)operation->window,
        .beta = operation->beta,
        .k = operation->k,
        .type = (int)self->type};
    step->forward = local_norm_forward;
    step->backward = local_norm_backward;
    return ALNICO_SUCCESS;
}

/* ---- Dropout ---- */

static alnico_status_t dropout_forward(struct cudnn_net *self, struct cudnn_step *step,
                                       bool training)
{
    struct train_epilogue pass = step->epilogue;
    if (!training)
        pass.draw = NULL;
    return gpu_status(train_epilogue(&self->gpu, &pass), "dropout");
}

static alnico_status_t dropout_backward(struct cudnn_net *self, struct cudnn_step *step)
{
    struct train_epilogue pass = step->epilogue;
    pass.x = setup_diff(&self->setup, step->step->out);
    pass.y = step_diff(self, step, 0);
    pass.add = step->step->accumulate[0];
    return pass.y ? gpu_status(train_epilogue(&self->gpu, &pass), "the gradient of dropout")
                  : ALNICO_SUCCESS;
}

alnico_status_t cudnn_dropout_make(struct cudnn_net *self, struct cudnn_step *step)
{
    const struct kernels_setup *setup = &self->setup;
    const size_t out = step->step->out;
    const struct tensor *made = &setup->network->tensors[out];
    step->epilogue =
        (struct train_epilogue){.x = step_value(self, step, 0),
                                .y = setup_value(setup, out),
                                .draw = setup->arenas->draw,
                                .dropout = setup_masks(setup, step->step->first),
                                .pitch = (unsigned)padded_channels(setup->network, out),
                                .pixels = (unsigned)(made->height * made->width),
                                .rows = tensor_rows(setup->plan, out),
                                .channels = (unsigned)made->channels,
                                .padded = (unsigned)padded_channels(setup->network, out),
                                .type = (int)self->type};
    step->forward = dropout_forward;
    step->backward = dropout_backward;
    return ALNICO_SUCCESS;
}

/* ---- Concatenation ---- */

static alnico_status_t concat_forward(struct cudnn_net *self, struct cudnn_step *step,
                                      bool training)
{
    (void)training;
    return gpu_status(
        train_concat(&self->gpu, &step->concat, setup_value(&self->setup, step->step->out)),
        "a concatenation");
}

/* Some of the parts, whose bits are set, from the gradient of the whole. */
static alnico_status_t parts_split(struct cudnn_net *self, const struct cudnn_step *step,
                                   unsigned parts)
{
    struct train_concat pass = step->split;
    for (unsigned i = 0; i < pass.parts; i++)
        pass.part[i].at = parts >> i & 1 ? pass.part[i].at : NULL;
    return gpu_status(train_split(&self->gpu, &pass, setup_diff(&self->setup, step->step->out)),
                      "the gradient of a concatenation");
}

/* Of a tensor that is a part more than once, the gradients are added launch by launch. */
static alnico_status_t concat_backward(struct cudnn_net *self, struct cudnn_step *step)
{
    unsigned together = 0;
    for (unsigned i = 0; i < step->split.parts; i++) {
        bool again = false;
        for (unsigned k = 0; k < i; k++)
            again |= step->step->in[k] == step->step->in[i];
        if (again) {
            TRY(parts_split(self, step, together));
            together = 0;
        }
        together |= 1u << i;
    }
    return parts_split(self, step, together);
}

/* All parts were made in their place, and find their gradients there. */
static alnico_status_t joined_forward(struct cudnn_net *self, struct cudnn_step *step,
                                      bool training)
{
    (void)self, (void)step, (void)training;
    return ALNICO_SUCCESS;
}

static alnico_status_t joined_backward(struct cudnn_net *self, struct cudnn_step *step)
{
    (void)self, (void)step;
    return ALNICO_SUCCESS;
}

/* Part i of the whole, of values or of gradients. */
static struct train_part part_of(const struct cudnn_net *self, const struct cudnn_step *step,
                                 size_t i, unsigned first, bool backward)
{
    const struct network *network = self->setup.network;
    const size_t tensor = step->step->in[i];
    return (struct train_part){.at =
                                   backward ? step_diff(self, step, i) : step_value(self, step, i),
                               .first = first,
                               .channels = (unsigned)network->tensors[tensor].channels,
                               .padded = (unsigned)padded_channels(network, tensor),
                               .add = backward && step->step->accumulate[i]};
}

alnico_status_t cudnn_concat_make(struct cudnn_net *self, struct cudnn_step *step)
{
    const size_t out = step->step->out;
    struct train_concat concat = {.parts = (unsigned)step->step->inputs,
                                  .aligned = true,
                                  .rows = tensor_rows(self->setup.plan, out),
                                  .channels = (unsigned)self->setup.network->tensors[out].channels,
                                  .padded = (unsigned)padded_channels(self->setup.network, out),
                                  .type = (int)self->type};
    step->concat = step->split = concat;
    for (size_t i = 0; i < step->step->inputs; i++) {
        const struct train_part *before = i ? &step->concat.part[i - 1] : NULL;
        const unsigned first = before ? before->first + before->channels : 0;
        step->concat.part[i] = part_of(self, step, i, first, false);
        step->split.part[i] = part_of(self, step, i, first, true);
        concat.aligned &= step->concat.part[i].channels % 8 == 0;
    }
    step->concat.aligned = step->split.aligned = concat.aligned;
    const bool joined = cudnn_within_rule(self->setup.plan, step->step->in[0]).whole;
    step->forward = joined ? joined_forward : concat_forward;
    step->backward = joined ? joined_backward : concat_backward;
    return ALNICO_SUCCESS;
}
