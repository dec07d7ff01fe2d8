/*
 * Dense layers, by cuBLAS, which counts columns first: a matrix of rows is to it the transposed
 * one. x: batch x inputs, w: filters x inputs, y: batch x filters. See cudnn/steps.h.
 */
#include "train/kernels/cudnn/steps.h"

#include "base/status.h"

struct matrix {
    const void *at;
    alnico_datatype_t type;
    bool transposed;
    size_t row; /* elements from one row to the next */
};

/* c (rows x columns) = a (rows x depth) b (depth x columns), or added to. */
static alnico_status_t multiply(struct cudnn_net *self, const struct matrix *a,
                                const struct matrix *b, const struct matrix *c, size_t rows,
                                size_t columns, size_t depth, bool add)
{
    const float alpha = 1, beta = add ? 1 : 0;
    void *out = (void *)(uintptr_t)c->at;
    return cublas_status(
        self->handle.library->cublasGemmEx(
            self->handle.cublas, b->transposed ? CUBLAS_OP_T : CUBLAS_OP_N,
            a->transposed ? CUBLAS_OP_T : CUBLAS_OP_N, (int)columns, (int)rows, (int)depth, &alpha,
            b->at, cublas_type(b->type), (int)b->row, a->at, cublas_type(a->type), (int)a->row,
            &beta, out, cublas_type(c->type), (int)c->row,
            cublas_compute(self->type, self->setup.options.full_float), CUBLAS_GEMM_DEFAULT),
        "cublasGemmEx");
}

/* Inputs, and filters with padding. */
static void dense_sizes(const struct cudnn_step *step, size_t *inputs, size_t *filters)
{
    const struct train_fold *w = &step->weights.fold;
    *inputs = w->out_height * w->out_width * w->padded;
    *filters = w->out_outer;
}

static size_t dense_batch(const struct cudnn_net *self, const struct cudnn_step *step)
{
    return plan_images(self->setup.plan, step->step->out);
}

static alnico_status_t dense_forward(struct cudnn_net *self, struct cudnn_step *step, bool training)
{
    const alnico_datatype_t type =
        is_logits(self->setup.network, step->step->out) ? ALNICO_FLOAT32 : self->type;
    size_t inputs, filters;
    dense_sizes(step, &inputs, &filters);
    const struct matrix x = {step_value(self, step, 0), self->type, false, inputs};
    const struct matrix w = {step->weights.working, self->type, true, inputs};
    const struct matrix y = {setup_value(&self->setup, step->step->out), type, false, filters};
    TRY(multiply(self, &x, &w, &y, dense_batch(self, step), filters, inputs, false));
    return epilogue_forward(self, step, training);
}

static alnico_status_t dense_data(struct cudnn_net *self, struct cudnn_step *step)
{
    size_t inputs, filters;
    dense_sizes(step, &inputs, &filters);
    const struct matrix dx = {step_diff(self, step, 0), self->type, false, inputs};
    const struct matrix w = {step->weights.working, self->type, false, inputs};
    const struct matrix dy = {setup_diff(&self->setup, step->step->out), self->type, false,
                              filters};
    return dx.at ? multiply(self, &dy, &w, &dx, dense_batch(self, step), inputs, filters,
                            step->step->accumulate[0])
                 : ALNICO_SUCCESS;
}

static alnico_status_t dense_parameters(struct cudnn_net *self, struct cudnn_step *step)
{
    size_t inputs, filters;
    dense_sizes(step, &inputs, &filters);
    const struct matrix x = {step_value(self, step, 0), self->type, false, inputs};
    const struct matrix dw = {step->weights.gradient, self->type, false, inputs};
    const struct matrix dy = {setup_diff(&self->setup, step->step->out), self->type, true, filters};
    TRY(multiply(self, &dy, &x, &dw, filters, inputs, dense_batch(self, step), false));
    return weights_home(self, step);
}

static alnico_status_t dense_inputs(struct cudnn_net *self, struct cudnn_step *step)
{
    TRY(epilogue_backward(self, step));
    return dense_data(self, step);
}

static alnico_status_t dense_backward(struct cudnn_net *self, struct cudnn_step *step)
{
    TRY(epilogue_backward(self, step));
    TRY(dense_parameters(self, step));
    return dense_data(self, step);
}

alnico_status_t cudnn_dense_make(struct cudnn_net *self, struct cudnn_step *step)
{
    step->forward = dense_forward;
    step->backward = dense_backward;
    step->backward_inputs = dense_inputs;
    step->backward_parameters = dense_parameters;
    epilogue_make(self, step);
    return weights_make(self, step);
}
