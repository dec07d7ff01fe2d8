/* Helpers that the steps of the oneDNN kernels are made with. See onednn/steps.h. */
#include "train/kernels/onednn/steps.h"

#include "base/status.h"
#include "train/base/clock.h"

#include <stdlib.h>

alnico_status_t sequence_append(struct sequence *sequence, const struct action *action)
{
    if (sequence->count == sequence->capacity) {
        const size_t capacity = sequence->capacity ? 2 * sequence->capacity : 4;
        struct action *actions = realloc(sequence->actions, capacity * sizeof *actions);
        if (!actions)
            return error_set(ALNICO_ERROR_MEMORY, "oneDNN kernels: no memory");
        sequence->actions = actions;
        sequence->capacity = capacity;
    }
    sequence->actions[sequence->count++] = *action;
    return ALNICO_SUCCESS;
}

alnico_status_t sequence_call(struct sequence *sequence, const struct call *call)
{
    return sequence_append(sequence, &(struct action){.call = *call});
}

alnico_status_t sequence_pass(struct sequence *sequence, elementwise_function *pass, float *y,
                              const float *a, const float *b, size_t count)
{
    return sequence_append(sequence,
                           &(struct action){.pass = pass, .y = y, .a = a, .b = b, .count = count});
}

static void run_own(struct compiled *self, const struct action *action)
{
    const double begin = action->foreign ? clock_seconds() : 0;
    action->own(self, action);
    if (action->foreign)
        self->library.seconds += clock_seconds() - begin;
}

alnico_status_t sequence_run(struct compiled *self, const struct sequence *sequence)
{
    for (size_t i = 0; i < sequence->count; i++) {
        const struct action *action = &sequence->actions[i];
        if (action->pass)
            action->pass(action->y, action->a, action->b, action->count);
        else if (action->own)
            run_own(self, action);
        else
            TRY(onednn_execute(&self->library, &action->call));
    }
    return ALNICO_SUCCESS;
}

static dnnl_format_tag_t activation_tag(const struct compiled *self, size_t t)
{
    const size_t channels = self->setup.network->tensors[t].channels;
    return self->blocked && t > 0 && channels % CHANNEL_BLOCK == 0 ? dnnl_nChw16c : dnnl_nhwc;
}

bool activation_plain(const struct network *network, size_t t)
{
    return t == 0 || !onednn_wide() || network->tensors[t].channels % CHANNEL_BLOCK;
}

struct runs activation_runs(const struct compiled *self, size_t t)
{
    const struct tensor *tensor = &self->setup.network->tensors[t];
    const size_t pixels = tensor->height * tensor->width, channels = tensor->channels;
    const bool blocked = activation_tag(self, t) == dnnl_nChw16c;
    const size_t run = blocked ? CHANNEL_BLOCK : channels;
    return (struct runs){
        .run = run, .pixel = run, .apart = pixels * run, .image = pixels * channels};
}

bool activation_matrix(const struct compiled *self, size_t t)
{
    const struct tensor *tensor = &self->setup.network->tensors[t];
    return activation_tag(self, t) == dnnl_nhwc || tensor->height * tensor->width == 1;
}

alnico_status_t activation_layout(const struct compiled *self, size_t t, dnnl_memory_desc_t *out)
{
    const struct tensor *tensor = &self->setup.network->tensors[t];
    const dnnl_dims_t dims = {(dnnl_dim_t)plan_images(self->setup.plan, t),
                              (dnnl_dim_t)tensor->channels, (dnnl_dim_t)tensor->height,
                              (dnnl_dim_t)tensor->width};
    return onednn_status(
        dnnl_memory_desc_init_by_tag(out, 4, dims, dnnl_f32, activation_tag(self, t)),
        "an activation's layout");
}

alnico_status_t matrix_layout(const struct compiled *self, size_t t, dnnl_memory_desc_t *out)
{
    const struct tensor *tensor = &self->setup.network->tensors[t];
    const dnnl_dims_t dims = {
        (dnnl_dim_t)(plan_images(self->setup.plan, t) * tensor->height * tensor->width),
        (dnnl_dim_t)tensor->channels};
    return onednn_status(dnnl_memory_desc_init_by_tag(out, 2, dims, dnnl_f32, dnnl_nc),
                         "a matrix's layout");
}

alnico_status_t vector_layout(size_t count, dnnl_memory_desc_t *out)
{
    const dnnl_dims_t dims = {(dnnl_dim_t)count};
    return onednn_status(dnnl_memory_desc_init_by_tag(out, 1, dims, dnnl_f32, dnnl_x),
                         "a vector's layout");
}

alnico_status_t vector_memory(struct compiled *self, float *at, size_t count, dnnl_memory_t *out)
{
    dnnl_memory_desc_t layout;
    TRY(vector_layout(count, &layout));
    return onednn_memory(&self->library, &layout, at, out);
}

alnico_status_t matrix_memory(struct compiled *self, size_t t, float *at, dnnl_memory_t *out)
{
    dnnl_memory_desc_t layout;
    TRY(matrix_layout(self, t, &layout));
    return onednn_memory(&self->library, &layout, at, out);
}

size_t batch_elements(const struct compiled *self, size_t t)
{
    return plan_float_bytes(self->setup.plan, t) / sizeof(float);
}

float *step_scratch(const struct compiled *self, const struct step *step)
{
    char *scratch = setup_scratch(&self->setup, step, 1);
    return (float *)(void *)(scratch + plan_line(plan_float_bytes(self->setup.plan, step->in[0])));
}

alnico_status_t sequence_diff(struct compiled *self, const struct step *step, struct call *call,
                              bool own, struct sequence *sequence)
{
    dnnl_memory_desc_t layout;
    dnnl_memory_t target = self->diffs[step->in[0]];
    float *scratch = setup_scratch(&self->setup, step, 1);
    const bool adds = target && step->accumulate[0];
    if (!target || adds) {
        TRY(activation_layout(self, step->in[0], &layout));
        TRY(onednn_memory(&self->library, &layout, scratch, &target));
    }
    call_argument(call, DNNL_ARG_DIFF_SRC, target);
    TRY(sequence_call(sequence, call));
    return adds && !own ? sequence_pass(sequence, elementwise_accumulate,
                                        setup_diff(&self->setup, step->in[0]), scratch, NULL,
                                        batch_elements(self, step->in[0]))
                        : ALNICO_SUCCESS;
}

alnico_status_t weights_describe(struct compiled *self, const struct node *node,
                                 const struct weight_shape *shape, struct weights *out)
{
    float *parameters = self->setup.arenas->parameters, *gradients = self->setup.arenas->gradients;
    const size_t at = node->weight.offset, bias = node->bias.offset;
    out->biased = node->bias.count > 0;
    TRY(onednn_status(dnnl_memory_desc_init_by_tag(&out->plain, shape->count, shape->dims, dnnl_f32,
                                                   shape->plain),
                      "a layout of weights"));
    TRY(onednn_status(dnnl_memory_desc_init_by_tag(&out->any, shape->count, shape->dims, dnnl_f32,
                                                   dnnl_format_tag_any),
                      "a layout of weights"));
    TRY(onednn_memory(&self->library, &out->plain, parameters + at, &out->memory));
    TRY(onednn_memory(&self->library, &out->plain, gradients + at, &out->gradient));
    if (!out->biased)
        return ALNICO_SUCCESS;
    TRY(vector_layout(node->bias.count, &out->bias));
    TRY(onednn_memory(&self->library, &out->bias, parameters + bias, &out->bias_memory));
    return onednn_memory(&self->library, &out->bias, gradients + bias, &out->bias_gradient);
}

alnico_status_t weights_load(struct compiled *self, const struct weights *weights,
                             const dnnl_memory_desc_t *wanted, struct sequence *sequence,
                             dnnl_memory_t *out)
{
    struct call reorder;
    *out = weights->memory;
    if (dnnl_memory_desc_equal(&weights->plain, wanted))
        return ALNICO_SUCCESS;
    TRY(onednn_memory(&self->library, wanted, NULL, out));
    TRY(onednn_reorder(&self->library, weights->memory, *out, &reorder));
    return sequence_call(sequence, &reorder);
}

alnico_status_t weights_store(struct compiled *self, const struct weights *weights,
                              const dnnl_memory_desc_t *made, struct call *call,
                              struct sequence *sequence)
{
    dnnl_memory_t memory = weights->gradient;
    const bool direct = dnnl_memory_desc_equal(&weights->plain, made);
    struct call reorder;
    if (!direct)
        TRY(onednn_memory(&self->library, made, NULL, &memory));
    call_argument(call, DNNL_ARG_DIFF_WEIGHTS, memory);
    TRY(sequence_call(sequence, call));
    if (direct)
        return ALNICO_SUCCESS;
    TRY(onednn_reorder(&self->library, memory, weights->gradient, &reorder));
    return sequence_call(sequence, &reorder);
}
