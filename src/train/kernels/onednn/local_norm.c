/* Local response norm on oneDNN. See onednn/steps.h. */
#include "train/kernels/onednn/steps.h"

#include "base/status.h"

/* The library divides alpha by the window, too. */
static alnico_status_t forward_describe(const struct operation *operation,
                                        const dnnl_memory_desc_t *layout, dnnl_lrn_desc_t *out)
{
    return onednn_status(dnnl_lrn_forward_desc_init(out, dnnl_forward_training,
                                                    dnnl_lrn_across_channels, layout,
                                                    (dnnl_dim_t)operation->window, operation->alpha,
                                                    operation->beta, operation->k),
                         "a local norm");
}

/* What the library keeps from forward to backward; NULL: nothing. */
static alnico_status_t workspace_make(struct compiled *self, const_dnnl_primitive_desc_t forward,
                                      dnnl_memory_t *out)
{
    const dnnl_memory_desc_t *layout = onednn_layout(forward, dnnl_query_workspace_md);
    *out = NULL;
    return dnnl_memory_desc_get_size(layout) ? onednn_memory(&self->library, layout, NULL, out)
                                             : ALNICO_SUCCESS;
}

alnico_status_t build_local_norm(struct compiled *self, const struct step *step,
                                 struct sequences *sequences)
{
    const struct operation *operation = &self->setup.network->nodes[step->first].operation;
    dnnl_memory_desc_t layout;
    dnnl_lrn_desc_t description;
    dnnl_primitive_desc_t forward, made;
    dnnl_memory_t workspace;
    struct call call;
    TRY(activation_layout(self, step->out, &layout));
    TRY(forward_describe(operation, &layout, &description));
    TRY(onednn_primitive(&self->library, &description, NULL, &forward, &call));
    TRY(workspace_make(self, forward, &workspace));
    call_argument(&call, DNNL_ARG_SRC, self->values[step->in[0]]);
    call_argument(&call, DNNL_ARG_DST, self->values[step->out]);
    if (workspace)
        call_argument(&call, DNNL_ARG_WORKSPACE, workspace);
    TRY(sequence_call(&sequences->forward, &call));
    if (!self->diffs[step->in[0]])
        return ALNICO_SUCCESS;
    TRY(onednn_status(dnnl_lrn_backward_desc_init(&description, dnnl_lrn_across_channels, &layout,
                                                  &layout, (dnnl_dim_t)operation->window,
                                                  operation->alpha, operation->beta, operation->k),
                      "a local norm's gradient"));
    TRY(onednn_primitive(&self->library, &description, forward, &made, &call));
    call_argument(&call, DNNL_ARG_SRC, self->values[step->in[0]]);
    call_argument(&call, DNNL_ARG_DIFF_DST, self->diffs[step->out]);
    if (workspace)
        call_argument(&call, DNNL_ARG_WORKSPACE, workspace);
    return sequence_diff(self, step, &call, false, &sequences->backward);
}
