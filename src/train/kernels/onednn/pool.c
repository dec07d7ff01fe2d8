/* Max and average pooling on oneDNN. See onednn/steps.h. */
#include "train/kernels/onednn/steps.h"

#include "base/status.h"

struct pool {
    dnnl_memory_desc_t in, out;
    dnnl_alg_kind_t algorithm;
    dnnl_dims_t window, stride, pad, end; /* pad before the image and behind it */
    dnnl_primitive_desc_t forward;
    dnnl_memory_t workspace; /* where the maxima were; NULL for averages */
};

static alnico_status_t pool_describe(struct compiled *self, const struct step *step, struct pool *p)
{
    const struct node *node = &self->setup.network->nodes[step->first];
    const struct operation *operation = &node->operation;
    size_t rows, columns;
    network_window(self->setup.network, step->first, &rows, &columns);
    *p = (struct pool){.window = {(dnnl_dim_t)rows, (dnnl_dim_t)columns}};
    p->algorithm =
        operation->kind == OPERATION_MAX_POOL ? dnnl_pooling_max : dnnl_pooling_avg_exclude_padding;
    TRY(activation_layout(self, step->in[0], &p->in));
    TRY(activation_layout(self, step->out, &p->out));
    for (int i = 0; i < 2; i++) {
        p->stride[i] = operation->stride ? (dnnl_dim_t)operation->stride : 1;
        p->pad[i] = (dnnl_dim_t)(i ? node->pad_columns : node->pad_rows);
        const dnnl_dim_t covered = (p->out.dims[2 + i] - 1) * p->stride[i] + p->window[i];
        const dnnl_dim_t behind = covered - p->in.dims[2 + i] - p->pad[i];
        p->end[i] = behind > 0 ? behind : 0;
    }
    return ALNICO_SUCCESS;
}

static alnico_status_t pool_forward(struct compiled *self, const struct step *step, struct pool *p,
                                    struct sequence *sequence)
{
    dnnl_pooling_desc_t description;
    struct call call;
    TRY(onednn_status(dnnl_pooling_forward_desc_init(&description, dnnl_forward_training,
                                                     p->algorithm, &p->in, &p->out, p->stride,
                                                     p->window, p->pad, p->end),
                      "a pooling"));
    TRY(onednn_primitive(&self->library, &description, NULL, &p->forward, &call));
    call_argument(&call, DNNL_ARG_SRC, self->values[step->in[0]]);
    call_argument(&call, DNNL_ARG_DST, self->values[step->out]);
    if (p->algorithm == dnnl_pooling_max) {
        TRY(onednn_memory(&self->library, onednn_layout(p->forward, dnnl_query_workspace_md), NULL,
                          &p->workspace));
        call_argument(&call, DNNL_ARG_WORKSPACE, p->workspace);
    }
    return sequence_call(sequence, &call);
}

static alnico_status_t pool_backward(struct compiled *self, const struct step *step, struct pool *p,
                                     struct sequence *sequence)
{
    dnnl_pooling_desc_t description;
    dnnl_primitive_desc_t made;
    struct call call;
    TRY(onednn_status(dnnl_pooling_backward_desc_init(&description, p->algorithm, &p->in, &p->out,
                                                      p->stride, p->window, p->pad, p->end),
                      "a pooling's gradient"));
    TRY(onednn_primitive(&self->library, &description, p->forward, &made, &call));
    call_argument(&call, DNNL_ARG_DIFF_DST, self->diffs[step->out]);
    if (p->workspace)
        call_argument(&call, DNNL_ARG_WORKSPACE, p->workspace);
    return sequence_diff(self, step, &call, false, sequence);
}

alnico_status_t build_pool(struct compiled *self, const struct step *step,
                           struct sequences *sequences)
{
    struct pool p;
    TRY(pool_describe(self, step, &p));
    TRY(pool_forward(self, step, &p, &sequences->forward));
    if (!self->diffs[step->in[0]])
        return ALNICO_SUCCESS;
    return pool_backward(self, step, &p, &sequences->backward);
}
