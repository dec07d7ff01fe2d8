/* Convolution and dense layers (inner products) on oneDNN, with their bias: forward, weight gradient,
 * data gradient. See onednn/steps.h. */
#include "train/kernels/onednn/steps.h"

#include "base/status.h"
#include "train/kernels/methods.h"

#include <math.h>
#include <string.h>

struct linear {
    struct weights weights;
    dnnl_memory_desc_t in, out;
    dnnl_memory_t source;          /* the input's values, in the layout `in` */
    dnnl_memory_t value, diff;     /* of the output; of a dense layer as a matrix */
    dnnl_dims_t stride, pad, end;  /* pad before the image and behind it */
    dnnl_primitive_desc_t forward; /* the hint for backward */
    dnnl_memory_t loaded;          /* weights that forward has loaded; NULL: none yet */
    bool dense;
};

union description {
    dnnl_convolution_desc_t convolution;
    dnnl_inner_product_desc_t dense;
};

/* The images are [row][column][channel]; to make blocks from few channels the library wants them
 * [channel][row][column]. With one channel that is the same. */
static alnico_status_t convolution_images(struct compiled *self, struct linear *l,
                                          struct sequence *sequence)
{
    const dnnl_memory_t images = l->source;
    const bool same = l->in.dims[1] == 1;
    dnnl_dims_t dims;
    struct call reorder;
    memcpy(dims, l->in.dims, sizeof dims);
    TRY(onednn_status(dnnl_memory_desc_init_by_tag(&l->in, 4, dims, dnnl_f32, dnnl_nchw),
                      "a layout of images"));
    TRY(onednn_memory(&self->library, &l->in, same ? self->setup.arenas->images : NULL,
                      &l->source));
    if (same)
        return ALNICO_SUCCESS;
    TRY(onednn_reorder(&self->library, images, l->source, &reorder));
    return sequence_call(sequence, &reorder);
}

/* So much that the last window fits. */
static void ends_pad(struct linear *l, size_t window)
{
    for (int i = 0; i < 2; i++) {
        const dnnl_dim_t covered = (l->out.dims[2 + i] - 1) * l->stride[i] + (dnnl_dim_t)window;
        const dnnl_dim_t behind = covered - l->in.dims[2 + i] - l->pad[i];
        l->end[i] = behind > 0 ? behind : 0;
    }
}

/* A dense layer whose input is not in blocks of channels is a product of matrices. Its weights stay as
 * they are in the arenas: the library's own order for them gains less than bringing them there takes
 * (benchmarks/studies/skinny.c). */
static alnico_status_t dense_describe(struct compiled *self, const struct step *step,
                                      struct linear *l)
{
    const struct node *node = &self->setup.network->nodes[step->first];
    const dnnl_dims_t in = {l->in.dims[0], l->in.dims[1] * l->in.dims[2] * l->in.dims[3]};
    const struct weight_shape shape = {
        .count = 2, .dims = {(dnnl_dim_t)node->operation.filters, in[1]}, .plain = dnnl_oi};
    TRY(onednn_status(dnnl_memory_desc_init_by_tag(&l->in, 2, in, dnnl_f32, dnnl_nc),
                      "a matrix's layout"));
    TRY(weights_describe(self, node, &shape, &l->weights));
    l->weights.any = l->weights.plain;
    return ALNICO_SUCCESS;
}

static alnico_status_t linear_describe(struct compiled *self, const struct step *step,
                                       struct linear *l)
{
    const struct node *node = &self->setup.network->nodes[step->first];
    const struct operation *operation = &node->operation;
    const struct tensor *in = &self->setup.network->tensors[step->in[0]];
    const bool dense = operation->kind == OPERATION_DENSE;
    const struct weight_shape shape = {
        .count = 4,
        .plain = dnnl_ohwi,
        .dims = {(dnnl_dim_t)operation->filters, (dnnl_dim_t)in->channels,
                 (dnnl_dim_t)(dense ? in->height : operation->window),
                 (dnnl_dim_t)(dense ? in->width : operation->window)}};
    *l = (struct linear){.source = self->values[step->in[0]],
                         .value = self->values[step->out],
                         .diff = self->diffs[step->out],
                         .dense = dense};
    for (int i = 0; i < 2; i++) {
        l->stride[i] = (dnnl_dim_t)operation->stride;
        l->pad[i] = (dnnl_dim_t)(i ? node->pad_columns : node->pad_rows);
    }
    TRY(activation_layout(self, step->in[0], &l->in));
    TRY(dense ? matrix_layout(self, step->out, &l->out)
              : activation_layout(self, step->out, &l->out));
    if (!dense)
        ends_pad(l, operation->window);
    if (dense) {
        TRY(matrix_memory(self, step->out, setup_value(&self->setup, step->out), &l->value));
        TRY(matrix_memory(self, step->out, setup_diff(&self->setup, step->out), &l->diff));
    }
    return dense && activation_matrix(self, step->in[0])
               ? dense_describe(self, step, l)
               : weights_describe(self, node, &shape, &l->weights);
}

static alnico_status_t linear_primitive(struct compiled *self, const struct linear *l,
                                        const union description *description,
                                        dnnl_primitive_desc_t *made, struct call *call)
{
    TRY(onednn_primitive(&self->library, description, l->forward, made, call));
    self->reference |= !l->dense && onednn_reference(*made);
    return ALNICO_SUCCESS;
}

/* A call forward but for what it reads and makes. */
static alnico_status_t linear_forward(struct compiled *self, struct linear *l, struct call *call)
{
    const dnnl_memory_desc_t *bias = l->weights.biased ? &l->weights.bias : NULL;
    union description d;
    if (l->dense)
        TRY(onednn_status(dnnl_inner_product_forward_desc_init(&d.dense, dnnl_forward_training,
                                                               &l->in, &l->weights.any, bias,
                                                               &l->out),
                          "a dense layer"));
    else
        TRY(onednn_status(dnnl_convolution_forward_desc_init(
                              &d.convolution, dnnl_forward_training, dnnl_convolution_direct,
                              &l->in, &l->weights.any, bias, &l->out, l->stride, l->pad, l->end),
                          "a convolution"));
    TRY(linear_primitive(self, l, &d, &l->forward, call));
    if (bias)
        call_argument(call, DNNL_ARG_BIAS, l->weights.bias_memory);
    return ALNICO_SUCCESS;
}

/* Appends a call that linear_forward has made, and what loads its weights, unless they are. */
static alnico_status_t linear_append(struct compiled *self, struct linear *l, struct call call,
                                     struct sequence *sequence)
{
    const dnnl_memory_desc_t *wanted = onednn_layout(l->forward, dnnl_query_weights_md), *loaded;
    if (l->loaded)
        TRY(onednn_status(dnnl_memory_get_memory_desc(l->loaded, &loaded), "a layout"));
    if (!l->loaded || !dnnl_memory_desc_equal(loaded, wanted))
        TRY(weights_load(self, &l->weights, wanted, sequence, &l->loaded));
    call_argument(&call, DNNL_ARG_SRC, l->source);
    call_argument(&call, DNNL_ARG_WEIGHTS, l->loaded);
    call_argument(&call, DNNL_ARG_DST, l->value);
    return sequence_call(sequence, &call);
}

/* Whether a box has all columns of a tensor. */
static bool whole_rows(const struct tensor *tensor, const struct box *box)
{
    return box_extent(box, AXIS_COLUMNS) == tensor->width;
}

/* Whether making the interior by itself hides more waiting than the calls for the border cost, which read
 * the weights again. Times in us, of two ranks on cores of an EPYC: a halo through shared memory, most of
 * which is waiting for the other rank; calls of oneDNN. */
static bool interior_pays(const struct plan *plan, const struct step *step)
{
    static const double message = 100, message_bytes = 8e3, call = 10, weight_bytes = 20e3,
                        products = 30e3;
    const struct node *node = &plan->network->nodes[step->first];
    const double halo =
        (double)(views_halo(plan->network, step->first, plan->batch) * sizeof(float));
    const double weights = (double)(node->weight.count * sizeof(float));
    const double images = (double)box_extent(&step->views[0].out, AXIS_IMAGES);
    const struct tensor *out = &plan->network->tensors[step->out];
    const double work = (double)(box_elements(&step->views[0].out) / out->channels) *
                        (double)node->weight.count / products;
    const double extra = (images * (double)step->view_count - 1) * (call + weights / weight_bytes);
    return fmin(message + halo / message_bytes, work) > extra;
}

bool linear_divides(const struct plan *plan, const struct step *step)
{
    const struct network *network = plan->network;
    const struct tensor *in = &network->tensors[step->in[0]], *out = &network->tensors[step->out];
    bool divides = network->nodes[step->first].operation.kind == OPERATION_CONVOLUTION &&
                   method_taken(METHOD_INTERIOR) && activation_plain(network, step->in[0]) &&
                   activation_plain(network, step->out);
    for (size_t i = 0; i < step->view_count; i++)
        divides &= whole_rows(in, &step->views[i].in) && whole_rows(out, &step->views[i].out);
    return divides && (method_number(METHOD_INTERIOR) == 2 || interior_pays(plan, step));
}

/* Rows of one image, of a tensor whose channels stand side by side. */
static alnico_status_t rows_layout(const struct compiled *self, size_t t, const struct box *box,
                                   dnnl_memory_desc_t *out)
{
    const struct tensor *tensor = &self->setup.network->tensors[t];
    const dnnl_dims_t dims = {1, (dnnl_dim_t)tensor->channels,
                              (dnnl_dim_t)box_extent(box, AXIS_ROWS), (dnnl_dim_t)tensor->width};
    return onednn_status(dnnl_memory_desc_init_by_tag(out, 4, dims, dnnl_f32, dnnl_nhwc),
                         "the layout of a view");
}

static alnico_status_t rows_memory(struct compiled *self, size_t t, const struct box *box,
                                   size_t image, const dnnl_memory_desc_t *layout,
                                   dnnl_memory_t *out)
{
    const struct runs runs = activation_runs(self, t);
    const size_t width = self->setup.network->tensors[t].width, row = (size_t)box->from[AXIS_ROWS];
    float *value = setup_value(&self->setup, t);
    return onednn_memory(&self->library, layout,
                         value + image * runs.image + row * width * runs.pixel, out);
}

/* Appends a view of the output, image by image. */
static alnico_status_t linear_view(struct compiled *self, const struct step *step, size_t number,
                                   struct linear *l, struct sequence *sequence)
{
    const struct view *view = &step->views[number];
    struct linear rows = *l;
    struct call call;
    TRY(rows_layout(self, step->in[0], &view->in, &rows.in));
    TRY(rows_layout(self, step->out, &view->out, &rows.out));
    rows.pad[0] = (dnnl_dim_t)view->pad_rows;
    ends_pad(&rows, self->setup.network->nodes[step->first].operation.window);
    TRY(linear_forward(self, &rows, &call));
    for (size_t n = 0; n < box_extent(&view->out, AXIS_IMAGES); n++) {
        TRY(rows_memory(self, step->in[0], &view->in, n, &rows.in, &rows.source));
        TRY(rows_memory(self, step->out, &view->out, n, &rows.out, &rows.value));
        TRY(linear_append(self, &rows, call, sequence));
    }
    l->loaded = rows.loaded;
    return ALNICO_SUCCESS;
}

static alnico_status_t linear_weights(struct compiled *self, const struct linear *l,
                                      struct sequence *sequence)
{
    const dnnl_memory_desc_t *bias = l->weights.biased ? &l->weights.bias : NULL;
    union description d;
    dnnl_primitive_desc_t made;
    struct call call;
    if (l->dense)
        TRY(onednn_status(dnnl_inner_product_backward_weights_desc_init(
                              &d.dense, &l->in, &l->weights.any, bias, &l->out),
                          "a dense layer's weight gradient"));
    else
        TRY(onednn_status(dnnl_convolution_backward_weights_desc_init(
                              &d.convolution, dnnl_convolution_direct, &l->in, &l->weights.any,
                              bias, &l->out, l->stride, l->pad, l->end),
                          "a convolution's weight gradient"));
    TRY(linear_primitive(self, l, &d, &made, &call));
    call_argument(&call, DNNL_ARG_SRC, l->source);
    call_argument(&call, DNNL_ARG_DIFF_DST, l->diff);
    if (bias)
        call_argument(&call, DNNL_ARG_DIFF_BIAS, l->weights.bias_gradient);
    return weights_store(self, &l->weights, onednn_layout(made, dnnl_query_diff_weights_md), &call,
                         sequence);
}

static alnico_status_t linear_data(struct compiled *self, const struct step *step,
                                   const struct linear *l, struct sequence *sequence)
{
    union description d;
    dnnl_primitive_desc_t made;
    dnnl_memory_t weights;
    struct call call;
    if (l->dense)
        TRY(onednn_status(
            dnnl_inner_product_backward_data_desc_init(&d.dense, &l->in, &l->weights.any, &l->out),
            "a dense layer's data gradient"));
    else
        TRY(onednn_status(dnnl_convolution_backward_data_desc_init(
                              &d.convolution, dnnl_convolution_direct, &l->in, &l->weights.any,
                              &l->out, l->stride, l->pad, l->end),
                          "a convolution's data gradient"));
    TRY(linear_primitive(self, l, &d, &made, &call));
    TRY(weights_load(self, &l->weights, onednn_layout(made, dnnl_query_weights_md), sequence,
                     &weights));
    call_argument(&call, DNNL_ARG_DIFF_DST, l->diff);
    call_argument(&call, DNNL_ARG_WEIGHTS, weights);
    return sequence_diff(self, step, &call, false, sequence);
}

alnico_status_t build_linear(struct compiled *self, const struct step *step,
                             struct sequences *sequences)
{
    struct linear l;
    struct call call;
    int made = DENSE_NOTHING;
    TRY(linear_describe(self, step, &l));
    if (l.dense && activation_matrix(self, step->in[0]))
        TRY(dense_products(self, step, sequences, &made));
    if (made == DENSE_ALL)
        return ALNICO_SUCCESS;
    if (!l.dense && self->blocked && step->in[0] == 0)
        TRY(convolution_images(self, &l, &sequences->forward));
    TRY(linear_forward(self, &l, &call));
    if (!step->view_count)
        TRY(linear_append(self, &l, call, &sequences->forward));
    for (size_t i = 0; i < step->view_count; i++)
        TRY(linear_view(self, step, i, &l, i ? &sequences->border : &sequences->forward));
    if (made == DENSE_GRADIENTS)
        return ALNICO_SUCCESS;
    TRY(linear_weights(self, &l, &sequences->parameters));
    if (!self->diffs[step->in[0]])
        return ALNICO_SUCCESS;
    return linear_data(self, step, &l, &sequences->backward);
}
