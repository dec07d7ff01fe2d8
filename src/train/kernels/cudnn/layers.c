/* Additions, ReLUs and sigmoids by themselves, pooling, upsampling, and losses: our own kernels. See
 * cudnn/steps.h. */
#include "train/kernels/cudnn/steps.h"

#include "base/status.h"

static size_t out_elements(const struct cudnn_net *self, const struct cudnn_step *step)
{
    const size_t t = step->step->out;
    return tensor_rows(self->setup.plan, t) * padded_channels(self->setup.network, t);
}

static alnico_status_t add_forward(struct cudnn_net *self, struct cudnn_step *step, bool training)
{
    (void)training;
    return gpu_status(train_add(&self->gpu, setup_value(&self->setup, step->step->out),
                                step_value(self, step, 0),
                                step->step->inputs > 1 ? step_value(self, step, 1) : NULL,
                                step_is(self->setup.network, step->step, -1, OPERATION_RELU),
                                out_elements(self, step), (int)self->type),
                      "an addition");
}

static alnico_status_t add_backward(struct cudnn_net *self, struct cudnn_step *step)
{
    const void *dy = setup_diff(&self->setup, step->step->out);
    const bool relu = step_is(self->setup.network, step->step, -1, OPERATION_RELU);
    const void *y = relu ? setup_value(&self->setup, step->step->out) : NULL;
    for (size_t i = 0; i < step->step->inputs; i++)
        if (step_diff(self, step, i))
            TRY(gpu_status(train_gate(&self->gpu, step_diff(self, step, i), dy, y,
                                      step->step->accumulate[i], out_elements(self, step),
                                      (int)self->type),
                           "the gradient of an addition"));
    return ALNICO_SUCCESS;
}

alnico_status_t cudnn_add_make(struct cudnn_net *self, struct cudnn_step *step)
{
    (void)self;
    step->forward = add_forward;
    step->backward = add_backward;
    return ALNICO_SUCCESS;
}

static alnico_status_t sigmoid_forward(struct cudnn_net *self, struct cudnn_step *step,
                                       bool training)
{
    const size_t t = step->step->out;
    (void)training;
    return gpu_status(train_sigmoid(&self->gpu, setup_value(&self->setup, t),
                                    step_value(self, step, 0), tensor_rows(self->setup.plan, t),
                                    (unsigned)self->setup.network->tensors[t].channels,
                                    (unsigned)padded_channels(self->setup.network, t),
                                    (int)self->type),
                      "a sigmoid");
}

static alnico_status_t sigmoid_backward(struct cudnn_net *self, struct cudnn_step *step)
{
    void *dx = step_diff(self, step, 0);
    if (!dx)
        return ALNICO_SUCCESS;
    return gpu_status(train_sigmoid_gradient(
                          &self->gpu, dx, setup_diff(&self->setup, step->step->out),
                          setup_value(&self->setup, step->step->out), step->step->accumulate[0],
                          out_elements(self, step), (int)self->type),
                      "the gradient of a sigmoid");
}

alnico_status_t cudnn_sigmoid_make(struct cudnn_net *self, struct cudnn_step *step)
{
    (void)self;
    step->forward = sigmoid_forward;
    step->backward = sigmoid_backward;
    return ALNICO_SUCCESS;
}

static struct train_upsample upsample_of(const struct cudnn_net *self,
                                         const struct cudnn_step *step)
{
    const struct network *network = self->setup.network;
    const struct tensor *in = &network->tensors[step->step->in[0]],
                        *out = &network->tensors[step->step->out];
    return (struct train_upsample){.batch = plan_images(self->setup.plan, step->step->out),
                                   .height = in->height,
                                   .width = in->width,
                                   .out_height = out->height,
                                   .out_width = out->width,
                                   .factor = (unsigned)step->node->operation.stride,
                                   .padded = (unsigned)padded_to_eight(in->channels),
                                   .type = (int)self->type};
}

static alnico_status_t upsample_forward(struct cudnn_net *self, struct cudnn_step *step,
                                        bool training)
{
    const struct train_upsample pass = upsample_of(self, step);
    (void)training;
    return gpu_status(train_upsample(&self->gpu, &pass, setup_value(&self->setup, step->step->out),
                                     step_value(self, step, 0)),
                      "upsampling");
}

static alnico_status_t upsample_backward(struct cudnn_net *self, struct cudnn_step *step)
{
    const struct train_upsample pass = upsample_of(self, step);
    void *dx = step_diff(self, step, 0);
    if (!dx)
        return ALNICO_SUCCESS;
    return gpu_status(train_upsample_gradient(&self->gpu, &pass, dx,
                                              setup_diff(&self->setup, step->step->out),
                                              step->step->accumulate[0]),
                      "the gradient of upsampling");
}

alnico_status_t cudnn_upsample_make(struct cudnn_net *self, struct cudnn_step *step)
{
    (void)self;
    step->forward = upsample_forward;
    step->backward = upsample_backward;
    return ALNICO_SUCCESS;
}

static bool is_max(const struct cudnn_step *step)
{
    return step->node->operation.kind == OPERATION_MAX_POOL;
}

static alnico_status_t pool_forward(struct cudnn_net *self, struct cudnn_step *step, bool training)
{
    (void)training;
    return gpu_status(train_pool(&self->gpu, &step->pool,
                                 setup_value(&self->setup, step->step->out),
                                 is_max(step) ? setup_saved(&self->setup, step->step) : NULL,
                                 step_value(self, step, 0)),
                      is_max(step) ? "max pooling" : "average pooling");
}

static alnico_status_t pool_backward(struct cudnn_net *self, struct cudnn_step *step)
{
    void *dx = step_diff(self, step, 0);
    if (!dx)
        return ALNICO_SUCCESS;
    return gpu_status(
        train_pool_gradient(&self->gpu, &step->pool, dx, setup_diff(&self->setup, step->step->out),
                            is_max(step) ? setup_saved(&self->setup, step->step) : NULL,
                            step->step->accumulate[0]),
        is_max(step) ? "the gradient of max pooling" : "the gradient of average pooling");
}

alnico_status_t cudnn_pool_make(struct cudnn_net *self, struct cudnn_step *step)
{
    enum { PLACES = 256 };
    const struct network *network = self->setup.network;
    const struct operation *operation = &step->node->operation;
    const struct tensor *in = &network->tensors[step->node->in[0]];
    const struct tensor *out = network_output(network, step->step->first);
    size_t rows, columns;
    network_window(network, step->step->first, &rows, &columns);
    if (is_max(step) && rows * columns > PLACES)
        return error_set(ALNICO_ERROR_UNSUPPORTED,
                         "cuDNN kernels: max pooling '%s' has a window of %zu x %zu, expected at "
                         "most %d pixels",
                         operation->name, rows, columns, PLACES);
    step->pool = (struct train_pool){.batch = plan_images(self->setup.plan, step->step->out),
                                     .height = in->height,
                                     .width = in->width,
                                     .out_height = out->height,
                                     .out_width = out->width,
                                     .padded = (unsigned)padded_to_eight(in->channels),
                                     .rows = (unsigned)rows,
                                     .columns = (unsigned)columns,
                                     .stride = operation->stride ? (unsigned)operation->stride : 1,
                                     .pad_rows = (unsigned)step->node->pad_rows,
                                     .pad_columns = (unsigned)step->node->pad_columns,
                                     .type = (int)self->type};
    step->forward = pool_forward;
    step->backward = pool_backward;
    return ALNICO_SUCCESS;
}

static int logits_type(const struct cudnn_net *self, const struct cudnn_step *step)
{
    return (int)(is_logits(self->setup.network, step->step->in[0]) ? ALNICO_FLOAT32 : self->type);
}

static alnico_status_t loss_forward(struct cudnn_net *self, struct cudnn_step *step, bool training)
{
    struct train_loss loss = step->loss;
    loss.smoothing = training ? loss.smoothing : 0;
    return gpu_status(
        train_loss_forward(&self->gpu, &loss, step_value(self, step, 0), logits_type(self, step)),
        "a loss");
}

static alnico_status_t loss_backward(struct cudnn_net *self, struct cudnn_step *step)
{
    void *diff = step_diff(self, step, 0);
    if (!diff)
        return ALNICO_SUCCESS;
    return gpu_status(train_loss_backward(&self->gpu, &step->loss, diff, (int)self->type,
                                          step->step->accumulate[0]),
                      "the gradient of a loss");
}

alnico_status_t cudnn_loss_make(struct cudnn_net *self, struct cudnn_step *step)
{
    const struct network *network = self->setup.network;
    const struct operation *operation = &step->node->operation;
    const size_t channels = network->tensors[step->step->out].channels;
    const bool last = step->step->out == network->count;
    step->loss = (struct train_loss){
        .kind =
            operation->kind == OPERATION_SQUARED_ERROR ? LOSS_SQUARED_ERROR : LOSS_CROSS_ENTROPY,
        .labels = self->setup.arenas->labels,
        .value = setup_value(&self->setup, step->step->out),
        .rows = tensor_rows(self->setup.plan, step->step->out),
        .channels = (unsigned)channels,
        .padded = (unsigned)padded_to_eight(channels),
        .smoothing = self->setup.options.smoothing,
        .weight = (float)loss_weight(operation),
        .terms = (float)network_terms(network, step->step->first, self->setup.plan->batch),
        .score = last ? self->setup.arenas->score : NULL};
    step->forward = loss_forward;
    step->backward = loss_backward;
    return ALNICO_SUCCESS;
}
