/* Convolutions, by cuDNN or as GEMMs, with what follows them (cudnn/epilogue.c). See cudnn/steps.h. */
#include "train/kernels/cudnn/steps.h"

#include "base/log.h"
#include "base/status.h"

#include <math.h>

static alnico_status_t engine_start(struct cudnn_net *self, const struct cudnn_pass *pass)
{
    return engine_run(&self->handle, &pass->choice, &pass->memory, pass->pack, self->workspace);
}

static alnico_status_t pass_run(struct cudnn_net *self, const struct cudnn_step *step,
                                enum convolution_direction direction)
{
    const struct cudnn_pass *pass = &step->passes[direction];
    TRY(im2col_run(self, step, pass));
    return engine_start(self, pass);
}

static alnico_status_t convolution_forward(struct cudnn_net *self, struct cudnn_step *step,
                                           bool training)
{
    TRY(pass_run(self, step, CONVOLUTION_FORWARD));
    return epilogue_forward(self, step, training);
}

static alnico_status_t convolution_interior(struct cudnn_net *self, struct cudnn_step *step)
{
    return engine_start(self, &step->views[0]);
}

/* What follows is of the whole output. */
static alnico_status_t convolution_border(struct cudnn_net *self, struct cudnn_step *step)
{
    for (size_t i = 1; i < step->step->view_count; i++)
        TRY(engine_start(self, &step->views[i]));
    return epilogue_forward(self, step, false);
}

static alnico_status_t convolution_views(struct cudnn_net *self, struct cudnn_step *step,
                                         bool training)
{
    (void)training; /* nothing drops */
    TRY(convolution_interior(self, step));
    return convolution_border(self, step);
}

/* The data gradient. Without an engine that adds, it is made in scratch and added by itself. */
static alnico_status_t convolution_data(struct cudnn_net *self, struct cudnn_step *step)
{
    const size_t t = step->step->in[0];
    if (!step->has_data)
        return ALNICO_SUCCESS;
    TRY(pass_run(self, step, CONVOLUTION_DATA));
    if (step->strided.stride)
        return gpu_status(train_strided(&self->gpu, &step->strided, step_diff(self, step, 0),
                                        setup_scratch(&self->setup, step->step, 1),
                                        step->step->accumulate[0]),
                          "spreading the gradient of a convolution");
    if (!step->adds)
        return ALNICO_SUCCESS;
    return gpu_status(
        train_gate(&self->gpu, step_diff(self, step, 0), setup_scratch(&self->setup, step->step, 1),
                   NULL, true,
                   tensor_rows(self->setup.plan, t) * padded_channels(self->setup.network, t),
                   (int)self->type),
        "adding the gradient of a convolution");
}

static alnico_status_t convolution_parameters(struct cudnn_net *self, struct cudnn_step *step)
{
    TRY(pass_run(self, step, CONVOLUTION_WEIGHTS));
    return weights_home(self, step);
}

static alnico_status_t convolution_inputs(struct cudnn_net *self, struct cudnn_step *step)
{
    TRY(epilogue_backward(self, step));
    return convolution_data(self, step);
}

static alnico_status_t convolution_backward(struct cudnn_net *self, struct cudnn_step *step)
{
    TRY(epilogue_backward(self, step));
    TRY(convolution_parameters(self, step));
    return convolution_data(self, step);
}

/* The shape that cuDNN sees, with folded and padded channels. */
static struct convolution convolution_shape(const struct cudnn_net *self,
                                            const struct cudnn_step *step)
{
    const struct network *network = self->setup.network;
    const struct operation *operation = &step->node->operation;
    const struct tensor *in = &network->tensors[step->node->in[0]];
    const struct tensor *out = network_output(network, step->step->first);
    const struct train_fold *weights = &step->weights.fold;
    struct convolution c = {.type = self->type,
                            .batch = plan_images(self->setup.plan, step->step->out),
                            .height = in->height,
                            .width = in->width,
                            .channels = weights->padded,
                            .filters = weights->out_outer,
                            .rows = weights->out_height,
                            .columns = weights->out_width,
                            .stride = operation->stride,
                            .pad_rows = step->node->pad_rows,
                            .pad_columns = step->node->pad_columns,
                            .out_height = out->height,
                            .out_width = out->width};
    if (weights->fold > 1) {
        c.height = step->input.out_height;
        c.width = step->input.out_width;
        c.stride = 1;
        c.pad_rows = c.pad_columns = 0;
    }
    return c;
}

/* Rows of one image, of a step's output and its input. */
static void views_make_passes(const struct cudnn_net *self, struct cudnn_step *step)
{
    const size_t each = datatype_bytes(self->type);
    for (size_t i = 0; i < step->step->view_count; i++) {
        const struct view *view = &step->step->views[i];
        struct cudnn_pass *pass = &step->views[i];
        *pass = step->passes[CONVOLUTION_FORWARD];
        struct convolution *c = &pass->convolution;
        const size_t in = (size_t)view->in.from[AXIS_ROWS] * c->width * c->channels,
                     out = (size_t)view->out.from[AXIS_ROWS] * c->out_width * c->filters;
        c->height = box_extent(&view->in, AXIS_ROWS);
        c->out_height = box_extent(&view->out, AXIS_ROWS);
        c->pad_rows = view->pad_rows;
        pass->memory.x = (char *)pass->memory.x + in * each;
        pass->memory.y = (char *)pass->memory.y + out * each;
    }
}

alnico_status_t cudnn_convolution_make(struct cudnn_net *self, struct cudnn_step *step)
{
    TRY(weights_make(self, step));
    const struct convolution shape = convolution_shape(self, step);
    step->has_data = step_diff(self, step, 0) != NULL;
    step->im2col = im2col_of(self->setup.plan, step->step);
    step->strided = strided_of(self->setup.plan, step->step);
    for (int i = 0; i < 3; i++) {
        const enum convolution_direction direction = (enum convolution_direction)i;
        const bool data = direction == CONVOLUTION_DATA;
        step->passes[i].convolution = shape;
        step->passes[i].convolution.direction = direction;
        step->passes[i].memory = (struct convolution_memory){
            .x = data ? step_diff(self, step, 0) : step_value(self, step, 0),
            .w = direction == CONVOLUTION_WEIGHTS ? step->weights.gradient : step->weights.working,
            .y = step_made(self, step, direction != CONVOLUTION_FORWARD)};
    }
    if (statistics_wanted(self->setup.plan, step->step))
        step->sums = own_take(self, statistics_bytes(self->setup.plan, step->step));
    epilogue_make(self, step);
    views_make_passes(self, step);
    step->forward = step->step->view_count ? convolution_views : convolution_forward;
    step->forward_interior = convolution_interior;
    step->forward_border = convolution_border;
    step->backward = convolution_backward;
    step->backward_inputs = convolution_inputs;
    step->backward_parameters = convolution_parameters;
    return ALNICO_SUCCESS;
}

static alnico_status_t pass_search(struct cudnn_net *self, struct cudnn_pass *pass)
{
    TRY(engine_find(self->engines, &pass->convolution, &pass->memory, &pass->choice));
    if (self->workspace_bytes < pass->choice.workspace)
        self->workspace_bytes = pass->choice.workspace;
    return ALNICO_SUCCESS;
}

double pass_us(size_t bytes)
{
    enum { BYTES_A_US = 4000000, LAUNCH_US = 2 };
    return (double)bytes / BYTES_A_US + LAUNCH_US;
}

/* Whether what takes so long by a method (HUGE_VAL: nothing does it) is better than without. */
static bool method_better(const struct cudnn_step *step, const char *pass,
                          enum kernels_method method, double us, double by_method)
{
    const bool better = by_method < us || (by_method < HUGE_VAL && method_number(method) == 2);
    log_write(LOG_INFO, "cuDNN kernels: '%s' %s: %.1f us, by %s %.1f us: %s",
              step->node->operation.name, pass, us, method_name(method), by_method,
              better ? "taken" : "left");
    return better;
}

/* *us: what it costs, adding included; HUGE_VAL: no engine does it. */
static alnico_status_t plain_data_search(struct cudnn_net *self, struct cudnn_step *step,
                                         struct cudnn_pass *pass, double *us)
{
    const bool accumulate = step->step->accumulate[0];
    pass->convolution.accumulate = accumulate;
    alnico_status_t status = pass_search(self, pass);
    if (status == ALNICO_ERROR_UNSUPPORTED && accumulate) {
        pass->convolution.accumulate = false;
        pass->memory.x = setup_scratch(&self->setup, step->step, 1);
        step->adds = true;
        status = pass_search(self, pass);
    }
    *us = status == ALNICO_SUCCESS ? pass->choice.us : HUGE_VAL;
    if (step->adds)
        *us += pass_us(3 * cudnn_bytes_rule(self->setup.plan, step->step->in[0]));
    return status;
}

static alnico_status_t data_search(struct cudnn_net *self, struct cudnn_step *step)
{
    struct cudnn_pass *plain = &step->passes[CONVOLUTION_DATA], compact = *plain;
    double us, by_strided;
    const alnico_status_t plain_status = plain_data_search(self, step, plain, &us);
    if (!strided_pass(self, step, &compact))
        return plain_status;
    if (plain_status != ALNICO_SUCCESS && plain_status != ALNICO_ERROR_UNSUPPORTED)
        return plain_status;
    const alnico_status_t status = pass_search(self, &compact);
    if (status != ALNICO_SUCCESS && status != ALNICO_ERROR_UNSUPPORTED)
        return status;
    by_strided = status == ALNICO_SUCCESS
                     ? compact.choice.us + strided_us(&step->strided, step->step->accumulate[0])
                     : HUGE_VAL;
    if (method_better(step, "data", METHOD_STRIDED_GRADIENT, us, by_strided)) {
        *plain = compact;
        self->strided++;
        return ALNICO_SUCCESS;
    }
    step->strided = (struct train_strided){0};
    return plain_status;
}

/* Forward, with the sums that the batch norm behind it wants, if an engine has them and costs less
 * than to read y again; *us: what it costs, that included. */
static alnico_status_t statistics_search(struct cudnn_net *self, const struct cudnn_step *step,
                                         struct cudnn_pass *pass, double *us)
{
    struct cudnn_pass fused = *pass;
    fused.convolution.sums = method_number(METHOD_STATISTICS) == 2 ? 2 : 1;
    fused.memory.sums = step->sums;
    fused.memory.squares = step->sums + fused.convolution.filters;
    *us += pass_us(cudnn_bytes_rule(self->setup.plan, step->step->out));
    const alnico_status_t status = pass_search(self, &fused);
    if (status == ALNICO_SUCCESS && fused.choice.us < *us) {
        *pass = fused;
        *us = fused.choice.us;
    }
    return status == ALNICO_ERROR_UNSUPPORTED ? ALNICO_SUCCESS : status;
}

static alnico_status_t shape_search(struct cudnn_net *self, const struct cudnn_step *step,
                                    struct cudnn_pass *pass, double *us)
{
    TRY(pass_search(self, pass));
    *us = pass->choice.us;
    return pass->convolution.direction == CONVOLUTION_FORWARD && step->sums
               ? statistics_search(self, step, pass, us)
               : ALNICO_SUCCESS;
}

/* Forward, or for the weights: as it is, or by rows. */
static alnico_status_t direction_search(struct cudnn_net *self, struct cudnn_step *step,
                                        enum convolution_direction direction)
{
    struct cudnn_pass *plain = &step->passes[direction], expanded = *plain;
    double us, by_im2col;
    TRY(shape_search(self, step, plain, &us));
    if (!im2col_pass(self, step, &expanded))
        return ALNICO_SUCCESS;
    const alnico_status_t status = shape_search(self, step, &expanded, &by_im2col);
    if (status != ALNICO_SUCCESS && status != ALNICO_ERROR_UNSUPPORTED)
        return status;
    by_im2col = status == ALNICO_SUCCESS ? by_im2col + im2col_us(&step->im2col) : HUGE_VAL;
    if (method_better(step, direction == CONVOLUTION_FORWARD ? "forward" : "weights", METHOD_IM2COL,
                      us, by_im2col)) {
        *plain = expanded;
        self->im2cols++;
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t forward_search(struct cudnn_net *self, struct cudnn_step *step)
{
    for (size_t i = 0; i < step->step->view_count; i++)
        TRY(pass_search(self, &step->views[i]));
    return step->step->view_count ? ALNICO_SUCCESS
                                  : direction_search(self, step, CONVOLUTION_FORWARD);
}

alnico_status_t cudnn_convolution_search(struct cudnn_net *self, struct cudnn_step *step)
{
    TRY(forward_search(self, step));
    step->sums = step->passes[CONVOLUTION_FORWARD].memory.sums;
    self->with_statistics += step->sums != NULL;
    TRY(direction_search(self, step, CONVOLUTION_WEIGHTS));
    return step->has_data ? data_search(self, step) : ALNICO_SUCCESS;
}

static alnico_status_t pass_finish(struct cudnn_net *self, struct cudnn_pass *pass)
{
    self->gemms += pass->choice.gemm != NULL;
    return pass->choice.plan ? convolution_pack(&self->handle, &self->packs, &pass->memory,
                                                self->workspace, &pass->pack)
                             : ALNICO_SUCCESS;
}

alnico_status_t cudnn_convolution_finish(struct cudnn_net *self, struct cudnn_step *step)
{
    for (int direction = 0; direction < 3; direction++)
        TRY(pass_finish(self, &step->passes[direction]));
    for (size_t i = 0; i < step->step->view_count; i++)
        TRY(pass_finish(self, &step->views[i]));
    return ALNICO_SUCCESS;
}
