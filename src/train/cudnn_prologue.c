/*
 * The way `prologue`, in fp16: a batch norm and its ReLU are carried out by the convolution behind
 * them while it reads, forward and in its weights' gradient, so that what they make is never
 * written. The batch norm's backward needs only its x anyway. cuDNN's engines round factor and
 * offset to float16. See cudnn_steps.h.
 */
#include "cudnn_steps.h"

#include "log.h"
#include "status.h"

/* A batch norm and its ReLU, and nothing else. */
static bool norm_alone(const struct network *network, const struct step *step)
{
    return step->count == 2 && network->nodes[step->first].operation.kind == OPERATION_BATCH_NORM &&
           network->nodes[step->first + 1].operation.kind == OPERATION_RELU;
}

size_t prologue_norm(const struct plan *plan, const struct step *step)
{
    const size_t tensor = step->in[0];
    if (!way_taken(WAY_PROLOGUE) || plan->precision != PRECISION_FP16 || !sums_wanted(plan, step) ||
        plan->network->tensors[tensor].readers != 1)
        return PLAN_NONE;
    for (size_t s = 0; s < plan->count; s++)
        if (plan->steps[s].out == tensor)
            return norm_alone(plan->network, &plan->steps[s]) ? s : PLAN_NONE;
    return PLAN_NONE;
}

size_t prologue_bytes(const struct plan *plan, const struct step *step)
{
    return prologue_norm(plan, step) == PLAN_NONE
               ? 0
               : 2 * padded_channels(plan->network, step->in[0]) * sizeof(uint16_t);
}

void prologue_make(struct cudnn_net *self, struct cudnn_step *step)
{
    const size_t s = prologue_norm(self->setup.plan, step->step);
    if (s == PLAN_NONE)
        return;
    step->normed = &self->steps[s];
    step->normed->norm.halves = own_take(self, prologue_bytes(self->setup.plan, step->step));
    self->prologues.wanted++;
}

/* Makes a pass read what the batch norm reads. No engine has more of a workspace than is set down
 * for one. */
static alnico_status_t pass_find(struct cudnn_net *self, const struct train_norm *norm,
                                 struct cudnn_pass *pass)
{
    pass->convolution.norm = true;
    pass->memory.x = (void *)(uintptr_t)norm->x;
    pass->memory.factor = norm->halves;
    pass->memory.offset = (uint16_t *)norm->halves + norm->padded;
    TRY(plans_find(self->plans, &pass->convolution, &pass->memory, &pass->choice));
    return pass->choice.workspace <= WORKSPACE_USUAL
               ? ALNICO_SUCCESS
               : error_set(ALNICO_ERROR_UNSUPPORTED,
                           "a workspace of %zu bytes, expected %d at most", pass->choice.workspace,
                           WORKSPACE_USUAL);
}

/* Forward with the sums, which is all that the engines have, and the weights' gradient. */
static alnico_status_t passes_find(struct cudnn_net *self, const struct cudnn_step *step,
                                   float *sums, struct cudnn_pass *forward,
                                   struct cudnn_pass *weights)
{
    const struct train_norm *norm = &step->normed->norm;
    forward->convolution.sums = 1;
    forward->memory.sums = sums;
    forward->memory.squares = sums + forward->convolution.filters;
    TRY(pass_find(self, norm, forward));
    return pass_find(self, norm, weights);
}

/* What is spared besides: to read x and write what the batch norm makes of it, and perhaps to read
 * y for its sums. */
static double spared_us(const struct cudnn_net *self, const struct cudnn_step *step)
{
    const struct plan *plan = self->setup.plan;
    const double pass = pass_us(2 * cudnn_bytes_rule(plan, step->step->in[0]));
    return step->sums ? pass : pass + pass_us(cudnn_bytes_rule(plan, step->step->out));
}

static void prologue_take(struct cudnn_net *self, struct cudnn_step *step, float *sums,
                          const struct cudnn_pass *forward, const struct cudnn_pass *weights)
{
    const struct cudnn_pass *const taken[] = {forward, weights};
    for (size_t i = 0; i < 2; i++) {
        step->passes[taken[i]->convolution.way] = *taken[i];
        if (self->workspace_bytes < taken[i]->choice.workspace)
            self->workspace_bytes = taken[i]->choice.workspace;
    }
    self->summed += step->sums == NULL;
    step->sums = sums;
    step->normed->inside = true;
    self->prologues.taken++;
}

static void found_log(const struct cudnn_step *step, alnico_status_t status,
                      const struct cudnn_pass *forward, const struct cudnn_pass *weights,
                      double less)
{
    const char *name = step->node->operation.name;
    if (status == ALNICO_SUCCESS)
        log_write(LOG_DEBUG,
                  "cuDNN kernels: '%s': forward %.1f us and weights %.1f us, with a batch norm "
                  "%.1f and %.1f: %.1f less",
                  name, step->passes[CONVOLUTION_FORWARD].choice.us,
                  step->passes[CONVOLUTION_WEIGHTS].choice.us, forward->choice.us,
                  weights->choice.us, less);
    else
        log_write(LOG_DEBUG, "cuDNN kernels: '%s' does not carry out its batch norm: %s", name,
                  alnico_error_detail());
}

alnico_status_t prologue_search(struct cudnn_net *self, struct cudnn_step *step, float *sums)
{
    struct cudnn_pass forward = step->passes[CONVOLUTION_FORWARD],
                      weights = step->passes[CONVOLUTION_WEIGHTS];
    const double plain = forward.choice.us + weights.choice.us;
    if (!step->normed)
        return ALNICO_SUCCESS;
    const alnico_status_t status = passes_find(self, step, sums, &forward, &weights);
    const double less = plain + spared_us(self, step) - forward.choice.us - weights.choice.us;
    found_log(step, status, &forward, &weights, less);
    self->prologues.found += status == ALNICO_SUCCESS;
    if (status == ALNICO_SUCCESS && (less > 0 || way_number(WAY_PROLOGUE) == 2)) {
        self->prologues.less_us += less;
        prologue_take(self, step, sums, &forward, &weights);
        return ALNICO_SUCCESS;
    }
    step->normed->norm.halves = NULL;
    return status == ALNICO_ERROR_UNSUPPORTED ? ALNICO_SUCCESS : status;
}

void prologue_log(const struct cudnn_net *self)
{
    if (way_taken(WAY_PROLOGUE))
        log_write(LOG_INFO,
                  "cuDNN kernels: %zu convolutions read a batch norm and ReLU, for %zu engines "
                  "normalise what they read, %zu take them: by their times %.0f us less",
                  self->prologues.wanted, self->prologues.found, self->prologues.taken,
                  self->prologues.less_us);
}
