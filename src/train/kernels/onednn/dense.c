/* Dense layers on oneDNN (inner products). See onednn/steps.h. */
#include "train/kernels/onednn/steps.h"

#include "base/status.h"

struct dense {
    struct weights weights;
    dnnl_memory_desc_t in, out;
    dnnl_memory_t value, diff; /* of the output, as a matrix */
    dnnl_primitive_desc_t forward;
};

static alnico_status_t dense_describe(struct compiled *self, const struct step *step,
                                      struct dense *d)
{
    const struct node *node = &self->setup.network->nodes[step->first];
    const struct tensor *in = &self->setup.network->tensors[step->in[0]];
    const dnnl_dims_t dims = {(dnnl_dim_t)node->operation.filters, (dnnl_dim_t)in->channels,
                              (dnnl_dim_t)in->height, (dnnl_dim_t)in->width};
    *d = (struct dense){0};
    TRY(activation_layout(self, step->in[0], &d->in));
    TRY(matrix_layout(self, step->out, &d->out));
    TRY(matrix_memory(self, step->out, setup_value(&self->setup, step->out), &d->value));
    TRY(matrix_memory(self, step->out, setup_diff(&self->setup, step->out), &d->diff));
    return weights_describe(self, node, dims, &d->weights);
}

static alnico_status_t dense_forward(struct compiled *self, const struct step *step,
                                     struct dense *d, struct sequence *sequence)
{
    dnnl_inner_product_desc_t description;
    dnnl_memory_t weights;
    struct call call;
    TRY(onednn_status(dnnl_inner_product_forward_desc_init(&description, dnnl_forward_training,
                                                           &d->in, &d->weights.any,
                                                           &d->weights.bias, &d->out),
                      "a dense layer"));
    TRY(onednn_primitive(&self->library, &description, NULL, &d->forward, &call));
    TRY(weights_load(self, &d->weights, onednn_layout(d->forward, dnnl_query_weights_md), sequence,
                     &weights));
    call_argument(&call, DNNL_ARG_SRC, self->values[step->in[0]]);
    call_argument(&call, DNNL_ARG_WEIGHTS, weights);
    call_argument(&call, DNNL_ARG_BIAS, d->weights.bias_memory);
    call_argument(&call, DNNL_ARG_DST, d->value);
    return sequence_call(sequence, &call);
}

static alnico_status_t dense_weights(struct compiled *self, const struct step *step,
                                     struct dense *d, struct sequence *sequence)
{
    dnnl_inner_product_desc_t description;
    dnnl_primitive_desc_t made;
    struct call call;
    TRY(onednn_status(dnnl_inner_product_backward_weights_desc_init(
                          &description, &d->in, &d->weights.any, &d->weights.bias, &d->out),
                      "a dense layer's weight gradient"));
    TRY(onednn_primitive(&self->library, &description, d->forward, &made, &call));
    call_argument(&call, DNNL_ARG_SRC, self->values[step->in[0]]);
    call_argument(&call, DNNL_ARG_DIFF_DST, d->diff);
    call_argument(&call, DNNL_ARG_DIFF_BIAS, d->weights.bias_gradient);
    return weights_store(self, &d->weights, onednn_layout(made, dnnl_query_diff_weights_md), &call,
                         sequence);
}

static alnico_status_t dense_data(struct compiled *self, const struct step *step, struct dense *d,
                                  struct sequence *sequence)
{
    dnnl_inner_product_desc_t description;
    dnnl_primitive_desc_t made;
    dnnl_memory_t weights, target;
    struct call call;
    TRY(onednn_status(
        dnnl_inner_product_backward_data_desc_init(&description, &d->in, &d->weights.any, &d->out),
        "a dense layer's data gradient"));
    TRY(onednn_primitive(&self->library, &description, d->forward, &made, &call));
    TRY(weights_load(self, &d->weights, onednn_layout(made, dnnl_query_weights_md), sequence,
                     &weights));
    TRY(diff_target(self, step, 0, &target));
    call_argument(&call, DNNL_ARG_DIFF_DST, d->diff);
    call_argument(&call, DNNL_ARG_WEIGHTS, weights);
    call_argument(&call, DNNL_ARG_DIFF_SRC, target);
    TRY(sequence_call(sequence, &call));
    return diff_finish(self, step, 0, sequence);
}

alnico_status_t build_dense(struct compiled *self, const struct step *step,
                            struct sequences *sequences)
{
    struct dense d;
    TRY(dense_describe(self, step, &d));
    TRY(dense_forward(self, step, &d, &sequences->forward));
    TRY(dense_weights(self, step, &d, &sequences->backward));
    if (!self->diffs[step->in[0]])
        return ALNICO_SUCCESS;
    return dense_data(self, step, &d, &sequences->backward);
}
