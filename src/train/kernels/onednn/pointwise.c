/* ReLU, sigmoid and addition (with a ReLU or without) on oneDNN. See onednn/steps.h. */
#include "train/kernels/onednn/steps.h"

#include "base/status.h"

/* By the output, which backward reads instead of the input. */
static dnnl_alg_kind_t activation_algorithm(const struct compiled *self, const struct step *step)
{
    return step_is(self->setup.network, step, 0, OPERATION_SIGMOID)
               ? dnnl_eltwise_logistic_use_dst_for_bwd
               : dnnl_eltwise_relu_use_dst_for_bwd;
}

alnico_status_t build_activation(struct compiled *self, const struct step *step,
                                 struct sequences *sequences)
{
    const dnnl_alg_kind_t algorithm = activation_algorithm(self, step);
    dnnl_memory_desc_t layout;
    dnnl_eltwise_desc_t description;
    dnnl_primitive_desc_t forward, made;
    struct call call;
    TRY(activation_layout(self, step->out, &layout));
    TRY(onednn_status(dnnl_eltwise_forward_desc_init(&description, dnnl_forward_training, algorithm,
                                                     &layout, 0, 0),
                      "an activation function"));
    TRY(onednn_primitive(&self->library, &description, NULL, &forward, &call));
    call_argument(&call, DNNL_ARG_SRC, self->values[step->in[0]]);
    call_argument(&call, DNNL_ARG_DST, self->values[step->out]);
    TRY(sequence_call(&sequences->forward, &call));
    if (!self->diffs[step->in[0]])
        return ALNICO_SUCCESS;
    TRY(onednn_status(
        dnnl_eltwise_backward_desc_init(&description, algorithm, &layout, &layout, 0, 0),
        "an activation function's gradient"));
    TRY(onednn_primitive(&self->library, &description, forward, &made, &call));
    call_argument(&call, DNNL_ARG_DST, self->values[step->out]);
    call_argument(&call, DNNL_ARG_DIFF_DST, self->diffs[step->out]);
    return sequence_diff(self, step, &call, false, &sequences->backward);
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
