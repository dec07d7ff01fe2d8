/*
 * The network on oneDNN 2.x. Weights stay plain in the arenas; where the library prefers blocks
 * they are reordered each time. Batch norm runs together with a following ReLU, or addition and
 * ReLU; an addition together with a ReLU. Called through kernels_onednn (kernels.h); the steps are
 * made in onednn/.
 */
#include "train/kernels/onednn/steps.h"

#include "base/status.h"
#include "train/base/threads.h"

#include <omp.h>
#include <stdlib.h>

static size_t run_fused(const struct network *network, size_t at)
{
    static const enum operation_kind three[] = {OPERATION_BATCH_NORM, OPERATION_ADD,
                                                OPERATION_RELU};
    static const enum operation_kind norm_relu[] = {OPERATION_BATCH_NORM, OPERATION_RELU};
    static const enum operation_kind add_relu[] = {OPERATION_ADD, OPERATION_RELU};
    const struct node *node = &network->nodes[at];
    if (plan_chained(network, at, three, 3) && network->nodes[at + 1].in[1] != node->in[0])
        return 3;
    if (plan_chained(network, at, norm_relu, 2) || plan_chained(network, at, add_relu, 2))
        return 2;
    return 1;
}

static size_t step_bytes(const struct plan *plan, const struct step *step)
{
    return plan_line(plan_float_bytes(plan, step->in[0]));
}

/* What a move puts between margins stands there, unless it begins in the middle of a cache line. */
static struct plan_part onednn_within(const struct plan *plan, size_t tensor)
{
    const size_t pixel = plan->network->tensors[tensor].channels * sizeof(float);
    const struct plan_part part = activation_plain(plan->network, tensor)
                                      ? plan_between(plan, tensor, pixel)
                                      : (struct plan_part){0};
    return part.offset % (THREADS_LINE * sizeof(float)) ? (struct plan_part){0} : part;
}

/* Values that backward reads; and scratch for a gradient that is made elsewhere first, because it
 * is to be added or nobody needs it, and for the gradient that a batch norm with an addition
 * splits. Pooling and batch norm with ReLU keep what they need in the library. */
static void onednn_needs(const struct plan *plan, const struct step *step, struct step_needs *out)
{
    const struct operation *operation = &plan->network->nodes[step->first].operation;
    const enum operation_kind kind = operation->kind;
    const bool norm = kind == OPERATION_BATCH_NORM;
    out->in[0] = kind == OPERATION_CONVOLUTION || kind == OPERATION_DENSE ||
                 kind == OPERATION_LOCAL_NORM || norm;
    out->out = kind == OPERATION_RELU || kind == OPERATION_SIGMOID || is_loss(operation) ||
               (kind == OPERATION_ADD && step->count == 2) || (norm && step->count == 3);
    const bool own = kind == OPERATION_MOVE || kind == OPERATION_DROPOUT ||
                     kind == OPERATION_CONCAT || kind == OPERATION_UPSAMPLE || is_loss(operation);
    if (!own && (step->accumulate[0] || step->in[0] == 0))
        out->scratch[1] = step_bytes(plan, step);
    if (norm && step->count == 3 && (step->accumulate[1] || step->in[1] == 0))
        out->scratch[1] = 2 * step_bytes(plan, step);
}

/* By the kind of a step's first operation; NULL: oneDNN has none. */
static build_function *const builds[OPERATION_KINDS] = {
    [OPERATION_CONVOLUTION] = build_linear,
    [OPERATION_BATCH_NORM] = build_norm,
    [OPERATION_RELU] = build_activation,
    [OPERATION_SIGMOID] = build_activation,
    [OPERATION_ADD] = build_add,
    [OPERATION_UPSAMPLE] = build_upsample,
    [OPERATION_MAX_POOL] = build_pool,
    [OPERATION_AVERAGE_POOL] = build_pool,
    [OPERATION_DENSE] = build_linear,
    [OPERATION_CROSS_ENTROPY] = build_loss,
    [OPERATION_SQUARED_ERROR] = build_loss,
    [OPERATION_LOCAL_NORM] = build_local_norm,
    [OPERATION_DROPOUT] = build_dropout,
    [OPERATION_CONCAT] = build_concat,
};

static alnico_status_t build_step(struct compiled *self, size_t step)
{
    const struct step *planned = &self->setup.plan->steps[step];
    const struct operation *operation = &self->setup.network->nodes[planned->first].operation;
    const bool joint =
        network_joint(self->setup.network, planned->first, self->setup.plan->batch) > 0;
    if (operation->kind == OPERATION_MOVE || (step_empty(self->setup.plan, planned) && !joint))
        return ALNICO_SUCCESS;
    if (builds[operation->kind])
        return builds[operation->kind](self, planned, &self->steps[step]);
    return error_set(ALNICO_ERROR_UNSUPPORTED, "oneDNN kernels: no %s, which '%s' is",
                     operation_kind_name(operation->kind), operation->name);
}

/* OpenMP keeps the number of threads for each thread that begins parallel regions. */
static void compiled_enter(const struct compiled *self)
{
    if (self->setup.options.threads > 0 && omp_get_max_threads() != self->setup.options.threads)
        omp_set_num_threads(self->setup.options.threads);
}

static alnico_status_t compiled_forward(void *self, size_t step, bool training)
{
    struct compiled *compiled = self;
    const struct sequences *sequences = &compiled->steps[step];
    compiled_enter(compiled);
    const bool inference = !training && sequences->inference.count;
    TRY(sequence_run(compiled, inference ? &sequences->inference : &sequences->forward));
    return sequence_run(compiled, &sequences->border);
}

static alnico_status_t compiled_interior(void *self, size_t step)
{
    struct compiled *compiled = self;
    compiled_enter(compiled);
    return sequence_run(compiled, &compiled->steps[step].forward);
}

static alnico_status_t compiled_border(void *self, size_t step)
{
    struct compiled *compiled = self;
    compiled_enter(compiled);
    return sequence_run(compiled, &compiled->steps[step].border);
}

static alnico_status_t compiled_inputs(void *self, size_t step)
{
    struct compiled *compiled = self;
    compiled_enter(compiled);
    return sequence_run(compiled, &compiled->steps[step].backward);
}

static alnico_status_t compiled_parameters(void *self, size_t step)
{
    struct compiled *compiled = self;
    compiled_enter(compiled);
    return sequence_run(compiled, &compiled->steps[step].parameters);
}

static alnico_status_t compiled_backward(void *self, size_t step)
{
    TRY(compiled_inputs(self, step));
    return compiled_parameters(self, step);
}

static alnico_status_t compiled_sums(void *self, size_t step, bool backward)
{
    struct compiled *compiled = self;
    compiled_enter(compiled);
    return sequence_run(compiled, &compiled->steps[step].sums[backward]);
}

static struct box_view view_of(const struct compiled *self, const struct box_end *end)
{
    return (struct box_view){.at = end->diff ? setup_diff(&self->setup, end->tensor)
                                             : setup_value(&self->setup, end->tensor),
                             .width = self->setup.network->tensors[end->tensor].width,
                             .runs = activation_runs(self, end->tensor),
                             .from = end->from};
}

static alnico_status_t compiled_copy(void *self, const struct box_copy *copies, size_t count)
{
    const struct compiled *compiled = self;
    compiled_enter(compiled);
    for (size_t i = 0; i < count; i++)
        boxes_copy(&copies[i], view_of(compiled, &copies[i].from),
                   view_of(compiled, &copies[i].to));
    return ALNICO_SUCCESS;
}

/* Whole rows of one image. */
static void *compiled_direct(void *self, const struct box_end *end, const size_t count[AXES])
{
    const struct compiled *compiled = self;
    const struct tensor *tensor = &compiled->setup.network->tensors[end->tensor];
    const struct box_view view = view_of(compiled, end);
    const bool whole = count[AXIS_CHANNELS] == tensor->channels &&
                       count[AXIS_COLUMNS] == tensor->width && count[AXIS_IMAGES] == 1;
    return whole && activation_plain(compiled->setup.network, end->tensor) ? box_row(&view, 0, 0)
                                                                           : NULL;
}

static double compiled_seconds(const void *self)
{
    const struct compiled *compiled = self;
    return compiled->library.seconds;
}

/* Back to what compiled_build begins with. */
static void compiled_clear(struct compiled *self)
{
    for (size_t i = 0; self->steps && i < self->setup.plan->count; i++) {
        free(self->steps[i].forward.actions);
        free(self->steps[i].inference.actions);
        free(self->steps[i].backward.actions);
        free(self->steps[i].parameters.actions);
        free(self->steps[i].sums[0].actions);
        free(self->steps[i].sums[1].actions);
        free(self->steps[i].border.actions);
    }
    onednn_close(&self->library);
    free(self->steps);
    free(self->values);
    free(self->diffs);
    *self = (struct compiled){.setup = self->setup};
}

static void compiled_destroy(void *self)
{
    if (!self)
        return;
    compiled_clear(self);
    free(self);
}

/* Memory objects for all tensors that exist between steps. */
static alnico_status_t compiled_tensors(struct compiled *self)
{
    const struct plan *plan = self->setup.plan;
    dnnl_memory_desc_t layout;
    for (size_t t = 0; t <= self->setup.network->count; t++) {
        float *diff = setup_diff(&self->setup, t);
        if (!batch_elements(self, t))
            continue;
        TRY(activation_layout(self, t, &layout));
        if (t == 0 || plan->values[t] != PLAN_NONE)
            TRY(onednn_memory(&self->library, &layout, setup_value(&self->setup, t),
                              &self->values[t]));
        if (diff)
            TRY(onednn_memory(&self->library, &layout, diff, &self->diffs[t]));
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t compiled_allocate(struct compiled *self)
{
    const size_t tensors = self->setup.network->count + 1;
    self->steps = calloc(self->setup.plan->count, sizeof *self->steps);
    self->values = calloc(tensors, sizeof(dnnl_memory_t));
    self->diffs = calloc(tensors, sizeof(dnnl_memory_t));
    if (self->steps && self->values && self->diffs)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_MEMORY, "oneDNN kernels: no memory");
}

static alnico_status_t compiled_build(struct compiled *self, bool blocked)
{
    self->blocked = blocked;
    TRY(compiled_allocate(self));
    TRY(onednn_open(&self->library));
    TRY(compiled_tensors(self));
    for (size_t s = 0; s < self->setup.plan->count; s++)
        TRY(build_step(self, s));
    return ALNICO_SUCCESS;
}

/* Blocks of 16 channels are fastest where the machine's vectors and the network's channels suit
 * them: where there are no such vectors, or the library has only its reference code for them, the
 * plain layout is taken instead. */
static alnico_status_t compiled_prepare(struct compiled *self)
{
    const alnico_status_t status = compiled_build(self, onednn_wide());
    if (status == ALNICO_ERROR_MEMORY ||
        (status == ALNICO_SUCCESS && (!self->reference || !self->blocked)))
        return status;
    compiled_clear(self);
    return compiled_build(self, false);
}

static alnico_status_t compiled_create(const struct kernels_setup *setup, void **out)
{
    *out = NULL;
    struct compiled *self = calloc(1, sizeof *self);
    if (!self)
        return error_set(ALNICO_ERROR_MEMORY, "oneDNN kernels: no memory");
    self->setup = *setup;
    compiled_enter(self);
    const alnico_status_t status = compiled_prepare(self);
    if (status != ALNICO_SUCCESS)
        compiled_destroy(self);
    else
        *out = self;
    return status;
}

const struct kernels_ops kernels_onednn = {
    .name = "onednn",
    .about = "oneDNN primitives, batch norm and additions fused with what follows",
    .device = ALNICO_DEVICE_CPU,
    .precisions = 1 << PRECISION_FP32,
    .rules = {.run = run_fused,
              .divides = linear_divides,
              .within = onednn_within,
              .needs = onednn_needs},
    .create = compiled_create,
    .destroy = compiled_destroy,
    .forward = compiled_forward,
    .backward = compiled_backward,
    .forward_interior = compiled_interior,
    .forward_border = compiled_border,
    .backward_inputs = compiled_inputs,
    .backward_parameters = compiled_parameters,
    .sums = compiled_sums,
    .copy = compiled_copy,
    .direct = compiled_direct,
    .library_seconds = compiled_seconds,
};
