/* Convolution on oneDNN, with its bias: forward, weight gradient, data gradient. See
 * onednn/steps.h. */
#include "train/kernels/onednn/steps.h"

#include "base/status.h"

#include <string.h>

struct convolution {
    struct weights weights;
    dnnl_memory_desc_t in, out;
    dnnl_memory_t source; /* the input's values, in the layout `in` */
    dnnl_dims_t stride, pad;
    dnnl_primitive_desc_t forward; /* the hint for backward */
};

/* The images are [row][column][channel]; to make blocks from few channels the library wants them
 * [channel][row][column]. With one channel that is the same. */
static alnico_status_t convolution_images(struct compiled *self, struct convolution *c,
                                          struct sequence *sequence)
{
    const dnnl_memory_t images = c->source;
    const bool same = c->in.dims[1] == 1;
    dnnl_dims_t dims;
    struct call reorder;
    memcpy(dims, c->in.dims, sizeof dims);
    TRY(onednn_status(dnnl_memory_desc_init_by_tag(&c->in, 4, dims, dnnl_f32, dnnl_nchw),
                      "a layout of images"));
    TRY(onednn_memory(&self->library, &c->in, same ? self->setup.arenas->images : NULL,
                      &c->source));
    if (same)
        return ALNICO_SUCCESS;
    TRY(onednn_reorder(&self->library, images, c->source, &reorder));
    return sequence_call(sequence, &reorder);
}

static alnico_status_t convolution_describe(struct compiled *self, const struct step *step,
                                            struct convolution *c)
{
    const struct node *node = &self->setup.network->nodes[step->first];
    const dnnl_dim_t window = (dnnl_dim_t)node->operation.window;
    const dnnl_dims_t dims = {(dnnl_dim_t)node->operation.filters,
                              (dnnl_dim_t)self->setup.network->tensors[step->in[0]].channels,
                              window, window};
    *c = (struct convolution){.source = self->values[step->in[0]]};
    for (int i = 0; i < 2; i++) {
        c->stride[i] = (dnnl_dim_t)node->operation.stride;
        c->pad[i] = (dnnl_dim_t)node->operation.pad;
    }
    TRY(activation_layout(self, step->in[0], &c->in));
    TRY(activation_layout(self, step->out, &c->out));
    return weights_describe(self, node, dims, &c->weights);
}

static alnico_status_t convolution_forward(struct compiled *self, const struct step *step,
                                           struct convolution *c, struct sequence *sequence)
{
    dnnl_convolution_desc_t description;
    dnnl_memory_t weights;
    struct call call;
    TRY(onednn_status(dnnl_convolution_forward_desc_init(
                          &description, dnnl_forward_training, dnnl_convolution_direct, &c->in,
                          &c->weights.any, c->weights.biased ? &c->weights.bias : NULL, &c->out,
                          c->stride, c->pad, c->pad),
                      "a convolution"));
    TRY(onednn_primitive(&self->library, &description, NULL, &c->forward, &call));
    self->reference |= onednn_reference(c->forward);
    TRY(weights_load(self, &c->weights, onednn_layout(c->forward, dnnl_query_weights_md), sequence,
                     &weights));
    call_argument(&call, DNNL_ARG_SRC, c->source);
    call_argument(&call, DNNL_ARG_WEIGHTS, weights);
    if (c->weights.biased)
        call_argument(&call, DNNL_ARG_BIAS, c->weights.bias_memory);
    call_argument(&call, DNNL_ARG_DST, self->values[step->out]);
    return sequence_call(sequence, &call);
}

static alnico_status_t convolution_weights(struct compiled *self, const struct step *step,
                                           struct convolution *c, struct sequence *sequence)
{
    dnnl_convolution_desc_t description;
    dnnl_primitive_desc_t made;
    struct call call;
    TRY(onednn_status(dnnl_convolution_backward_weights_desc_init(
                          &description, dnnl_convolution_direct, &c->in, &c->weights.any,
                          c->weights.biased ? &c->weights.bias : NULL, &c->out, c->stride, c->pad,
                          c->pad),
                      "a convolution's weight gradient"));
    TRY(onednn_primitive(&self->library, &description, c->forward, &made, &call));
    self->reference |= onednn_reference(made);
    call_argument(&call, DNNL_ARG_SRC, c->source);
    call_argument(&call, DNNL_ARG_DIFF_DST, self->diffs[step->out]);
    if (c->weights.biased)
        call_argument(&call, DNNL_ARG_DIFF_BIAS, c->weights.bias_gradient);
    return weights_store(self, &c->weights, onednn_layout(made, dnnl_query_diff_weights_md), &call,
                         sequence);
}

static alnico_status_t convolution_data(struct compiled *self, const struct step *step,
                                        struct convolution *c, struct sequence *sequence)
{
    dnnl_convolution_desc_t description;
    dnnl_primitive_desc_t made;
    dnnl_memory_t weights, target;
    struct call call;
    TRY(onednn_status(dnnl_convolution_backward_data_desc_init(
                          &description, dnnl_convolution_direct, &c->in, &c->weights.any, &c->out,
                          c->stride, c->pad, c->pad),
                      "a convolution's data gradient"));
    TRY(onednn_primitive(&self->library, &description, c->forward, &made, &call));
    self->reference |= onednn_reference(made);
    TRY(weights_load(self, &c->weights, onednn_layout(made, dnnl_query_weights_md), sequence,
                     &weights));
    TRY(diff_target(self, step, 0, &target));
    call_argument(&call, DNNL_ARG_DIFF_DST, self->diffs[step->out]);
    call_argument(&call, DNNL_ARG_WEIGHTS, weights);
    call_argument(&call, DNNL_ARG_DIFF_SRC, target);
    TRY(sequence_call(sequence, &call));
    return diff_finish(self, step, 0, sequence);
}

alnico_status_t build_convolution(struct compiled *self, const struct step *step,
                                  struct sequences *sequences)
{
    struct convolution c;
    TRY(convolution_describe(self, step, &c));
    if (self->blocked && step->in[0] == 0)
        TRY(convolution_images(self, &c, &sequences->forward));
    TRY(convolution_forward(self, step, &c, &sequences->forward));
    TRY(convolution_weights(self, step, &c, &sequences->backward));
    if (!self->diffs[step->in[0]])
        return ALNICO_SUCCESS;
    return convolution_data(self, step, &c, &sequences->backward);
}
