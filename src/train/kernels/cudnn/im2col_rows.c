/*
 * The way `rows`: the neighbouring squares that a window of folded images covers in one row become
 * channels, so that the window is one column wide and cuDNN's engines find more channels to
 * multiply. What that makes of the images is several times as large, so that it stands in the
 * step's scratch only, and is made anew forward and for the weights' gradient. Weights lie in
 * memory as without. See cudnn_steps.h.
 */
#include "train/kernels/cudnn/steps.h"

#include "base/status.h"

struct train_rows rows_of(const struct plan *plan, const struct step *step)
{
    const struct node *node = &plan->network->nodes[step->first];
    if (!way_taken(WAY_ROWS) || node->operation.kind != OPERATION_CONVOLUTION || step->in[0] != 0)
        return (struct train_rows){0};
    bool direct;
    const struct train_fold images = input_fold(plan, step);
    const struct train_fold weights = weights_fold(plan, node, &direct);
    if (weights.fold == 1 || weights.out_width == 1)
        return (struct train_rows){0};
    return (struct train_rows){.rows = images.out_outer * images.out_height,
                               .width = images.out_width,
                               .out_width = images.out_width - weights.out_width + 1,
                               .columns = (unsigned)weights.out_width,
                               .padded = images.padded,
                               .type = images.type};
}

size_t rows_bytes(const struct train_rows *rows)
{
    return rows->rows * rows->out_width * rows->columns * rows->padded *
           type_bytes((alnico_datatype_t)rows->type);
}

bool rows_pass(const struct cudnn_net *self, const struct cudnn_step *step, struct cudnn_pass *pass)
{
    struct convolution *c = &pass->convolution;
    if (!rows_bytes(&step->rows) || c->way == CONVOLUTION_DATA)
        return false;
    c->width = step->rows.out_width;
    c->channels *= step->rows.columns;
    c->columns = 1;
    pass->memory.x = c->way == CONVOLUTION_FORWARD ? setup_scratch(&self->setup, step->step, 0)
                                                   : step_scratch_rows(self, step);
    pass->rows = true;
    return true;
}

double rows_us(const struct train_rows *rows)
{
    const size_t each = rows->padded * type_bytes((alnico_datatype_t)rows->type);
    return pass_us(rows->rows * rows->width * each + rows_bytes(rows));
}

alnico_status_t rows_run(const struct cudnn_net *self, const struct cudnn_step *step,
                         const struct cudnn_pass *pass)
{
    if (!pass->rows)
        return ALNICO_SUCCESS;
    return gpu_status(train_rows(&self->gpu, &step->rows, pass->memory.x, step->images),
                      "making channels of the rows of windows");
}
