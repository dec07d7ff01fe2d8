/*
 * im2col by rows: the neighbouring squares that a window of folded images covers in one row become
 * channels, so that the window is one column wide and cuDNN's engines find more channels to
 * multiply. What that makes of the images is several times as large, so that it stands in the
 * step's scratch only, and is made anew forward and for the weights' gradient. Weights lie in
 * memory as without. See cudnn/steps.h.
 */
#include "train/kernels/cudnn/steps.h"

#include "base/status.h"

struct train_im2col im2col_of(const struct plan *plan, const struct step *step)
{
    const struct node *node = &plan->network->nodes[step->first];
    if (!method_taken(METHOD_IM2COL) || node->operation.kind != OPERATION_CONVOLUTION ||
        step->in[0] != 0)
        return (struct train_im2col){0};
    bool direct;
    const struct train_fold images = input_fold(plan, step);
    const struct train_fold weights = weights_fold(plan, node, &direct);
    if (weights.fold == 1 || weights.out_width == 1)
        return (struct train_im2col){0};
    return (struct train_im2col){.rows = images.out_outer * images.out_height,
                                 .width = images.out_width,
                                 .out_width = images.out_width - weights.out_width + 1,
                                 .columns = (unsigned)weights.out_width,
                                 .padded = images.padded,
                                 .type = images.type};
}

size_t im2col_bytes(const struct train_im2col *rows)
{
    return rows->rows * rows->out_width * rows->columns * rows->padded *
           datatype_bytes((alnico_datatype_t)rows->type);
}

bool im2col_pass(const struct cudnn_net *self, const struct cudnn_step *step,
                 struct cudnn_pass *pass)
{
    struct convolution *c = &pass->convolution;
    if (!im2col_bytes(&step->im2col) || c->direction == CONVOLUTION_DATA)
        return false;
    c->width = step->im2col.out_width;
    c->channels *= step->im2col.columns;
    c->columns = 1;
    pass->memory.x = c->direction == CONVOLUTION_FORWARD
                         ? setup_scratch(&self->setup, step->step, 0)
                         : step_scratch_im2col(self, step);
    pass->im2col = true;
    return true;
}

double im2col_us(const struct train_im2col *rows)
{
    const size_t each = rows->padded * datatype_bytes((alnico_datatype_t)rows->type);
    return pass_us(rows->rows * rows->width * each + im2col_bytes(rows));
}

alnico_status_t im2col_run(const struct cudnn_net *self, const struct cudnn_step *step,
                           const struct cudnn_pass *pass)
{
    if (!pass->im2col)
        return ALNICO_SUCCESS;
    return gpu_status(train_im2col(&self->gpu, &step->im2col, pass->memory.x, step->images),
                      "making channels of the rows of windows");
}
