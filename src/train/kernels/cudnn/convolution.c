/* Convolutions, by cuDNN or as products; a bias is added by itself. See cudnn_steps.h. */
#include "train/kernels/cudnn/steps.h"

#include "base/log.h"
#include "base/status.h"

#include <math.h>

static alnico_status_t pass_run(struct cudnn_net *self, const struct cudnn_step *step,
                                enum convolution_way way)
{
    const struct cudnn_pass *pass = &step->passes[way];
    TRY(rows_run(self, step, pass));
    return plans_run(&self->handle, &pass->choice, &pass->memory, pass->pack, self->workspace);
}

static alnico_status_t convolution_forward(struct cudnn_net *self, struct cudnn_step *step,
                                           bool training)
{
    (void)training;
    TRY(pass_run(self, step, CONVOLUTION_FORWARD));
    return bias_forward(self, step, self->type);
}

/* Where nothing can add, the gradient is made in scratch and added by itself. */
static alnico_status_t convolution_data(struct cudnn_net *self, struct cudnn_step *step)
{
    const size_t t = step->step->in[0];
    if (!step->has_data)
        return ALNICO_SUCCESS;
    TRY(pass_run(self, step, CONVOLUTION_DATA));
    if (step->spread.stride)
        return gpu_status(train_spread(&self->gpu, &step->spread, step_diff(self, step, 0),
                                       step_scratch_diff(self, step), step->step->accumulate[0]),
                          "spreading the gradient of a convolution");
    if (!step->adds)
        return ALNICO_SUCCESS;
    return gpu_status(
        train_gate(&self->gpu, step_diff(self, step, 0), step_scratch_diff(self, step), NULL, true,
                   tensor_rows(self->setup.plan, t) * padded_channels(self->setup.network, t),
                   (int)self->type),
        "adding the gradient of a convolution");
}

static alnico_status_t convolution_backward(struct cudnn_net *self, struct cudnn_step *step)
{
    TRY(pass_run(self, step, CONVOLUTION_WEIGHTS));
    TRY(weights_home(self, step));
    TRY(bias_backward(self, step));
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
                            .batch = self->setup.plan->batch,
                            .height = in->height,
                            .width = in->width,
                            .channels = weights->padded,
                            .filters = weights->out_outer,
                            .rows = weights->out_height,
                            .columns = weights->out_width,
                            .stride = operation->stride,
                            .pad = operation->pad,
                            .out_height = out->height,
                            .out_width = out->width};
    if (weights->fold > 1) {
        c.height = step->input.out_height;
        c.width = step->input.out_width;
        c.stride = 1;
        c.pad = 0;
    }
    return c;
}

alnico_status_t cudnn_convolution_make(struct cudnn_net *self, struct cudnn_step *step)
{
    TRY(weights_make(self, step));
    const struct convolution shape = convolution_shape(self, step);
    const size_t out = step->step->out;
    step->has_data = step_diff(self, step, 0) != NULL;
    step->rows = rows_of(self->setup.plan, step->step);
    step->spread = spread_of(self->setup.plan, step->step);
    for (int way = 0; way < 3; way++) {
        step->passes[way].convolution = shape;
        step->passes[way].convolution.way = (enum convolution_way)way;
    }
    step->passes[CONVOLUTION_FORWARD].memory =
        (struct convolution_memory){.x = step_value(self, step, 0),
                                    .w = step->weights.working,
                                    .y = setup_value(&self->setup, out)};
    step->passes[CONVOLUTION_DATA].memory =
        (struct convolution_memory){.x = step_diff(self, step, 0),
                                    .w = step->weights.working,
                                    .y = setup_diff(&self->setup, out)};
    step->passes[CONVOLUTION_WEIGHTS].memory =
        (struct convolution_memory){.x = step_value(self, step, 0),
                                    .w = step->weights.gradient,
                                    .y = setup_diff(&self->setup, out)};
    if (sums_wanted(self->setup.plan, step->step))
        step->sums = own_take(self, sums_bytes(self->setup.plan, step->step));
    step->forward = convolution_forward;
    step->backward = convolution_backward;
    return ALNICO_SUCCESS;
}

static alnico_status_t pass_search(struct cudnn_net *self, struct cudnn_pass *pass)
{
    TRY(plans_find(self->plans, &pass->convolution, &pass->memory, &pass->choice));
    if (self->workspace_bytes < pass->choice.workspace)
        self->workspace_bytes = pass->choice.workspace;
    return ALNICO_SUCCESS;
}

double pass_us(size_t bytes)
{
    enum { BYTES_A_US = 4000000, LAUNCH_US = 2 };
    return (double)bytes / BYTES_A_US + LAUNCH_US;
}

/* Whether what takes so long by a way (HUGE_VAL: nothing does it) is better than without. */
static bool way_better(const struct cudnn_step *step, const char *pass, enum cudnn_way way,
                       double us, double by_way)
{
    const bool better = by_way < us || (by_way < HUGE_VAL && way_number(way) == 2);
    log_write(LOG_INFO, "cuDNN kernels: '%s' %s: %.1f us, by %s %.1f us: %s",
              step->node->operation.name, pass, us, way_name(way), by_way,
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
        pass->memory.x = step_scratch_diff(self, step);
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
    double us, by_spread;
    const alnico_status_t plain_status = plain_data_search(self, step, plain, &us);
    if (!spread_pass(self, step, &compact))
        return plain_status;
    if (plain_status != ALNICO_SUCCESS && plain_status != ALNICO_ERROR_UNSUPPORTED)
        return plain_status;
    const alnico_status_t status = pass_search(self, &compact);
    if (status != ALNICO_SUCCESS && status != ALNICO_ERROR_UNSUPPORTED)
        return status;
    by_spread = status == ALNICO_SUCCESS
                    ? compact.choice.us + spread_us(&step->spread, step->step->accumulate[0])
                    : HUGE_VAL;
    if (way_better(step, "data", WAY_SPREAD, us, by_spread)) {
        *plain = compact;
        self->spreads++;
        return ALNICO_SUCCESS;
    }
    step->spread = (struct train_spread){0};
    return plain_status;
}

/* Forward, with the sums that the batch norm behind it wants, if an engine has them and costs less
 * than to read y again; *us: what it costs, that included. */
static alnico_status_t sums_search(struct cudnn_net *self, const struct cudnn_step *step,
                                   struct cudnn_pass *pass, double *us)
{
    struct cudnn_pass fused = *pass;
    fused.convolution.sums = way_number(WAY_SUMS) == 2 ? 2 : 1;
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
    return pass->convolution.way == CONVOLUTION_FORWARD && step->sums
               ? sums_search(self, step, pass, us)
               : ALNICO_SUCCESS;
}

/* Forward, or for the weights: as it is, or by rows. */
static alnico_status_t way_search(struct cudnn_net *self, struct cudnn_step *step,
                                  enum convolution_way way)
{
    struct cudnn_pass *plain = &step->passes[way], expanded = *plain;
    double us, by_rows;
    TRY(shape_search(self, step, plain, &us));
    if (!rows_pass(self, step, &expanded))
        return ALNICO_SUCCESS;
    const alnico_status_t status = shape_search(self, step, &expanded, &by_rows);
    if (status != ALNICO_SUCCESS && status != ALNICO_ERROR_UNSUPPORTED)
        return status;
    by_rows = status == ALNICO_SUCCESS ? by_rows + rows_us(&step->rows) : HUGE_VAL;
    if (way_better(step, way == CONVOLUTION_FORWARD ? "forward" : "weights", WAY_ROWS, us,
                   by_rows)) {
        *plain = expanded;
        self->rowed++;
    }
    return ALNICO_SUCCESS;
}

alnico_status_t cudnn_convolution_search(struct cudnn_net *self, struct cudnn_step *step)
{
    TRY(way_search(self, step, CONVOLUTION_FORWARD));
    step->sums = step->passes[CONVOLUTION_FORWARD].memory.sums;
    self->summed += step->sums != NULL;
    TRY(way_search(self, step, CONVOLUTION_WEIGHTS));
    return step->has_data ? data_search(self, step) : ALNICO_SUCCESS;
}

alnico_status_t cudnn_convolution_finish(struct cudnn_net *self, struct cudnn_step *step)
{
    for (int way = 0; way < 3; way++) {
        struct cudnn_pass *pass = &step->passes[way];
        self->multiplied += pass->choice.product != NULL;
        if (pass->choice.plan)
            TRY(convolution_pack(&self->handle, &self->packs, &pass->memory, self->workspace,
                                 &pass->pack));
    }
    return ALNICO_SUCCESS;
}
