/* ReLU, addition (with a ReLU or without) and cross-entropy on oneDNN. See onednn/steps.h. */
#include "train/kernels/onednn/steps.h"

#include "base/status.h"

#include <assert.h>
#include <math.h>

alnico_status_t build_relu(struct compiled *self, const struct step *step,
                           struct sequences *sequences)
{
    dnnl_memory_desc_t layout;
    dnnl_eltwise_desc_t description;
    dnnl_primitive_desc_t forward, made;
    struct call call;
    TRY(activation_layout(self, step->out, &layout));
    TRY(onednn_status(dnnl_eltwise_forward_desc_init(&description, dnnl_forward_training,
                                                     dnnl_eltwise_relu_use_dst_for_bwd, &layout, 0,
                                                     0),
                      "a relu"));
    TRY(onednn_primitive(&self->library, &description, NULL, &forward, &call));
    call_argument(&call, DNNL_ARG_SRC, self->values[step->in[0]]);
    call_argument(&call, DNNL_ARG_DST, self->values[step->out]);
    TRY(sequence_call(&sequences->forward, &call));
    if (!self->diffs[step->in[0]])
        return ALNICO_SUCCESS;
    TRY(onednn_status(dnnl_eltwise_backward_desc_init(
                          &description, dnnl_eltwise_relu_use_dst_for_bwd, &layout, &layout, 0, 0),
                      "a relu's gradient"));
    TRY(onednn_primitive(&self->library, &description, forward, &made, &call));
    call_argument(&call, DNNL_ARG_DST, self->values[step->out]);
    call_argument(&call, DNNL_ARG_DIFF_DST, self->diffs[step->out]);
    return sequence_diff(self, step, &call, &sequences->backward);
}

/* Appends what an addition does to its addends' gradients. */
static alnico_status_t add_backward(struct compiled *self, const struct step *step,
                                    struct sequence *sequence)
{
    const float *dy = setup_diff(&self->setup, step->out),
                *y = setup_value(&self->setup, step->out);
    for (size_t i = 0; i < 2; i++) {
        const bool adds = step->accumulate[i];
        float *dx = setup_diff(&self->setup, step->in[i]);
        elementwise_function *pass = adds ? elementwise_accumulate : elementwise_copy;
        if (step->count == 2)
            pass = adds ? elementwise_mask_add : elementwise_mask;
        if (dx)
            TRY(sequence_pass(sequence, pass, dx, dy, y, batch_elements(self, step->out)));
    }
    return ALNICO_SUCCESS;
}

/* Appends out = a + b. */
static alnico_status_t add_plain(struct compiled *self, const struct step *step,
                                 struct sequence *sequence)
{
    dnnl_memory_desc_t layout;
    dnnl_binary_desc_t description;
    dnnl_primitive_desc_t made;
    struct call call;
    TRY(activation_layout(self, step->out, &layout));
    TRY(onednn_status(
        dnnl_binary_desc_init(&description, dnnl_binary_add, &layout, &layout, &layout),
        "an addition"));
    TRY(onednn_primitive(&self->library, &description, NULL, &made, &call));
    call_argument(&call, DNNL_ARG_SRC_0, self->values[step->in[0]]);
    call_argument(&call, DNNL_ARG_SRC_1, self->values[step->in[1]]);
    call_argument(&call, DNNL_ARG_DST, self->values[step->out]);
    return sequence_call(sequence, &call);
}

alnico_status_t build_add(struct compiled *self, const struct step *step,
                          struct sequences *sequences)
{
    if (step->count == 2)
        TRY(sequence_pass(&sequences->forward, elementwise_add_relu,
                          setup_value(&self->setup, step->out),
                          setup_value(&self->setup, step->in[0]),
                          setup_value(&self->setup, step->in[1]), batch_elements(self, step->out)));
    else
        TRY(add_plain(self, step, &sequences->forward));
    return add_backward(self, step, &sequences->backward);
}

/* y: gradient of the logits; a: log probabilities; count: classes. */
static void pass_cross_entropy(const struct compiled *self, const struct action *action)
{
    const size_t batch = self->setup.plan->batch, classes = action->count;
    const float share = 1.0f / (float)batch, smoothing = self->setup.options.smoothing;
    for (size_t n = 0; n < batch; n++)
        for (size_t k = 0; k < classes; k++) {
            const int32_t label = self->setup.arenas->labels[n];
            const size_t i = n * classes + k;
            const float target =
                (1 - smoothing) * ((size_t)label == k) + smoothing / (float)classes;
            action->y[i] = label < 0 ? 0 : (expf(action->a[i]) - target) * share;
        }
}

alnico_status_t build_cross_entropy(struct compiled *self, const struct step *step,
                                    struct sequences *sequences)
{
    float *y = setup_value(&self->setup, step->out), *dx = setup_diff(&self->setup, step->in[0]);
    dnnl_memory_desc_t layout;
    dnnl_logsoftmax_desc_t description;
    dnnl_primitive_desc_t made;
    dnnl_memory_t in, out;
    struct call call;
    TRY(matrix_layout(self, step->in[0], &layout));
    TRY(matrix_memory(self, step->in[0], setup_value(&self->setup, step->in[0]), &in));
    TRY(matrix_memory(self, step->out, y, &out));
    TRY(onednn_status(
        dnnl_logsoftmax_forward_desc_init(&description, dnnl_forward_inference, &layout, 1),
        "a softmax"));
    TRY(onednn_primitive(&self->library, &description, NULL, &made, &call));
    call_argument(&call, DNNL_ARG_SRC, in);
    call_argument(&call, DNNL_ARG_DST, out);
    TRY(sequence_call(&sequences->forward, &call));
    if (!dx)
        return ALNICO_SUCCESS;
    assert(!step->accumulate[0]);
    const size_t classes = self->setup.network->tensors[step->out].channels;
    return sequence_append(
        &sequences->backward,
        &(struct action){.own = pass_cross_entropy, .y = dx, .a = y, .count = classes});
}
