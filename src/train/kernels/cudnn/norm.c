/*
 * Batch norms, with what follows them: a ReLU, perhaps a pooling; an addition, of a tensor or of
 * another batch norm, and a ReLU. Our own kernels (cuda/norm.cu) at memory bandwidth. See
 * cudnn/steps.h.
 */
#include "train/kernels/cudnn/steps.h"

#include "base/status.h"

/* Statistics from the sums of all ranks that have a part of the batch norm, or that the convolution
 * before it made, if it did. */
static alnico_status_t measure(struct cudnn_net *self, const struct train_norm *norm,
                               const struct cudnn_step *maker, bool training)
{
    int error;
    if (!training || self->setup.options.frozen)
        error = train_norm_running(&self->gpu, norm);
    else if (norm->joint)
        error = train_norm_joined(&self->gpu, norm);
    else if (maker && maker->sums)
        error = train_norm_measure(&self->gpu, norm, maker->sums, maker->sums + norm->padded);
    else
        error = train_norm_statistics(&self->gpu, norm);
    return gpu_status(error, "the statistics of a batch norm");
}

static const struct cudnn_step *maker_find(const struct cudnn_net *self,
                                           const struct cudnn_step *step, size_t tensor)
{
    for (const struct cudnn_step *s = self->steps; s < step; s++)
        if (s->step->out == tensor && s->node->operation.kind == OPERATION_CONVOLUTION)
            return s;
    return NULL;
}

static alnico_status_t norm_forward(struct cudnn_net *self, struct cudnn_step *step, bool training)
{
    TRY(measure(self, &step->norm, step->makers[0], training));
    if (step->normalise.other)
        TRY(measure(self, &step->other, step->makers[1], training));
    return gpu_status(train_normalise(&self->gpu, &step->normalise), "a batch norm");
}

static alnico_status_t norm_sums(struct cudnn_net *self, struct cudnn_step *step, bool backward)
{
    return gpu_status(backward ? train_norm_reduce(&self->gpu, &step->back)
                               : train_norm_sums(&self->gpu, &step->norm),
                      "the sums of a batch norm");
}

static alnico_status_t norm_backward(struct cudnn_net *self, struct cudnn_step *step)
{
    TRY(gpu_status(step->norm.joint ? train_norm_join(&self->gpu, &step->back)
                                    : train_norm_reduce(&self->gpu, &step->back),
                   "gradients of a batch norm"));
    return gpu_status(train_norm_gradient(&self->gpu, &step->back), "the gradient of a batch norm");
}

static void norm_describe(struct cudnn_net *self, struct cudnn_step *step, size_t i,
                          struct train_norm *out)
{
    const struct network *network = self->setup.network;
    const struct arenas *arenas = self->setup.arenas;
    const struct node *node = &network->nodes[step->step->first + i];
    const size_t tensor = step->step->in[i], padded = padded_channels(network, tensor);
    const double pixels = network_joint(network, step->step->first + i, self->setup.plan->batch);
    const bool joint = pixels > 0 && !self->setup.options.frozen;
    step->makers[i] = maker_find(self, step, tensor);
    *out = (struct train_norm){.x = step_value(self, step, i),
                               .rows = tensor_rows(self->setup.plan, tensor),
                               .count = joint ? (size_t)pixels : 0,
                               .joint = joint ? arenas->joint : NULL,
                               .channels = (unsigned)network->tensors[tensor].channels,
                               .padded = (unsigned)padded,
                               .scale = arenas->parameters + node->weight.offset,
                               .shift = arenas->parameters + node->bias.offset,
                               .running = arenas->statistics + node->statistics.offset,
                               .numbers = own_take(self, NORM_NUMBERS * padded * sizeof(float)),
                               .scale_diff = gradient_at(self, node->weight.offset),
                               .shift_diff = gradient_at(self, node->bias.offset),
                               .type = (int)self->type,
                               .gradient_type = (int)self->setup.gradient_type};
}

/* The gate is the mask where something was added, otherwise it is computed again. */
static void back_describe(struct cudnn_net *self, struct cudnn_step *step, bool two, bool plain)
{
    const struct step *s = step->step;
    const bool relu = step->normalise.relu;
    step->back = (struct train_norm_backward){
        .norm = &step->norm,
        .other = two ? &step->other : NULL,
        .gate = !relu          ? NORM_GATE_NONE
                : two || plain ? NORM_GATE_MASK
                               : NORM_GATE_VALUE,
        .dy = setup_diff(&self->setup, s->out),
        .mask = step->normalise.mask,
        .dx = step_diff(self, step, 0),
        .dx_other = two ? step_diff(self, step, 1) : NULL,
        .dplain = plain ? step_diff(self, step, 1) : NULL,
        .add = s->accumulate[0],
        .add_other = two && s->accumulate[1],
        .add_plain = plain && s->accumulate[1],
        .frozen = self->setup.options.frozen,
    };
}

static alnico_status_t norm_pool_forward(struct cudnn_net *self, struct cudnn_step *step,
                                         bool training)
{
    TRY(measure(self, &step->norm, step->makers[0], training));
    return gpu_status(train_norm_pool(&self->gpu, &step->norm_pool), "a batch norm and pooling");
}

static alnico_status_t norm_pool_backward(struct cudnn_net *self, struct cudnn_step *step)
{
    TRY(gpu_status(train_norm_reduce(&self->gpu, &step->back), "gradients of a batch norm"));
    if (!step->norm_pool.dx)
        return ALNICO_SUCCESS;
    return gpu_status(train_norm_pool_gradient(&self->gpu, &step->norm_pool),
                      "the gradient of a batch norm and pooling");
}

static void norm_pool_make(struct cudnn_net *self, struct cudnn_step *step)
{
    const struct step *s = step->step;
    const struct tensor *in = &self->setup.network->tensors[s->in[0]];
    const struct pool_saves saves = pool_saves(self->setup.plan, s);
    uint8_t *saved = setup_saved(&self->setup, step->step);
    step->winners = step->norm;
    step->winners.x = saved;
    step->winners.rows = tensor_rows(self->setup.plan, s->out);
    step->winners.count = step->norm.rows;
    step->norm_pool = (struct train_norm_pool){.norm = &step->norm,
                                               .height = in->height,
                                               .width = in->width,
                                               .y = setup_value(&self->setup, s->out),
                                               .winners = saved,
                                               .index = saved + saves.index,
                                               .mask = saved + saves.mask,
                                               .dy = setup_diff(&self->setup, s->out),
                                               .dx = step_diff(self, step, 0),
                                               .add = s->accumulate[0]};
    step->back = (struct train_norm_backward){.norm = &step->winners,
                                              .gate = NORM_GATE_MASK,
                                              .dy = step->norm_pool.dy,
                                              .mask = step->norm_pool.mask,
                                              .frozen = self->setup.options.frozen};
    step->forward = norm_pool_forward;
    step->backward = norm_pool_backward;
}

alnico_status_t cudnn_norm_make(struct cudnn_net *self, struct cudnn_step *step)
{
    const struct network *network = self->setup.network;
    const bool two = step_is(network, step->step, 1, OPERATION_BATCH_NORM);
    const bool plain = step_is(network, step->step, 1, OPERATION_ADD);
    const bool relu = step_is(network, step->step, -1, OPERATION_RELU);
    norm_describe(self, step, 0, &step->norm);
    if (step_is(network, step->step, -1, OPERATION_MAX_POOL)) {
        norm_pool_make(self, step);
        return ALNICO_SUCCESS;
    }
    if (two)
        norm_describe(self, step, 1, &step->other);
    step->normalise = (struct train_normalise){
        .norm = &step->norm,
        .other = two ? &step->other : NULL,
        .plain = plain ? step_value(self, step, 1) : NULL,
        .relu = relu,
        .y = setup_value(&self->setup, step->step->out),
        .mask = relu && (two || plain) ? setup_saved(&self->setup, step->step) : NULL};
    back_describe(self, step, two, plain);
    step->forward = norm_forward;
    step->backward = norm_backward;
    step->sums_join = norm_sums;
    return ALNICO_SUCCESS;
}
