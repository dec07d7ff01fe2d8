/* Which operations the cuDNN kernels take as one, what memory they need, and where things stand.
 * See cudnn/steps.h. */
#include "train/kernels/cudnn/steps.h"

#include "base/status.h"

size_t padded_to_eight(size_t channels)
{
    return (channels + 7) / 8 * 8;
}

size_t padded_channels(const struct network *network, size_t tensor)
{
    return padded_to_eight(network->tensors[tensor].channels);
}

/* Whether a loss makes a tensor. */
static bool is_value(const struct network *network, size_t tensor)
{
    return tensor > 0 && is_loss(&network->nodes[tensor - 1].operation);
}

bool is_logits(const struct network *network, size_t tensor)
{
    if (!tensor || network->nodes[tensor - 1].operation.kind != OPERATION_DENSE ||
        network->tensors[tensor].readers != 1)
        return false;
    for (size_t i = tensor; i < network->count; i++)
        if (network->nodes[i].in[0] == tensor)
            return is_loss(&network->nodes[i].operation);
    return false;
}

size_t tensor_rows(const struct plan *plan, size_t tensor)
{
    const struct tensor *t = &plan->network->tensors[tensor];
    return plan_images(plan, tensor) * t->height * t->width;
}

/* Bytes of a tensor's batch, and of its gradient. */
size_t cudnn_bytes_rule(const struct plan *plan, size_t tensor)
{
    const struct network *network = plan->network;
    const alnico_datatype_t type =
        is_logits(network, tensor) ? ALNICO_FLOAT32 : precision_type(plan->precision);
    if (tensor == 0 || is_value(network, tensor))
        return plan_float_bytes(plan, tensor);
    return tensor_rows(plan, tensor) * padded_channels(network, tensor) * datatype_bytes(type);
}

size_t fold_bytes(const struct train_fold *fold)
{
    return fold->out_outer * fold->out_height * fold->out_width * fold->padded *
           datatype_bytes((alnico_datatype_t)fold->type);
}

/* A convolution of stride f > 1 on few channels is made one of stride 1 on f x f times as many. 1:
 * it is not. */
static size_t fold_of(const struct network *network, const struct node *node)
{
    enum { CHANNELS_MOST = 48 };
    const struct operation *operation = &node->operation;
    const size_t f = operation->stride, channels = network->tensors[node->in[0]].channels;
    const bool fits = f > 1 && f < CHANNELS_MOST && operation->window > 1;
    if (operation->kind != OPERATION_CONVOLUTION || node->in[0] != 0 || !fits)
        return 1;
    return channels * f * f <= CHANNELS_MOST ? f : 1;
}

/* So many pixels stand before the image, so that windows begin at whole squares. */
static size_t fold_shift(size_t pad, size_t fold)
{
    return (fold - pad % fold) % fold;
}

/* Squares that a window of a folded convolution is high, or wide. */
static size_t fold_window(const struct operation *operation, size_t pad, size_t fold)
{
    return (operation->window + fold_shift(pad, fold) + fold - 1) / fold;
}

bool reads_images(const struct step *step)
{
    bool reads = false;
    for (size_t i = 0; i < step->inputs; i++)
        reads |= step->in[i] == 0;
    return reads;
}

struct train_fold input_fold(const struct plan *plan, const struct step *step)
{
    const struct network *network = plan->network;
    const struct node *node = &network->nodes[step->first];
    const struct tensor *in = &network->tensors[0], *out = network_output(network, step->first);
    const size_t f = fold_of(network, node);
    struct train_fold fold = {.fold = (unsigned)f,
                              .channels = (unsigned)in->channels,
                              .padded = (unsigned)padded_to_eight(in->channels * f * f),
                              .outer = plan_images(plan, 0),
                              .height = in->height,
                              .width = in->width,
                              .out_outer = plan_images(plan, 0),
                              .out_height = in->height,
                              .out_width = in->width,
                              .type = (int)precision_type(plan->precision)};
    if (f == 1)
        return fold;
    fold.before_rows = (unsigned)(node->pad_rows + fold_shift(node->pad_rows, f));
    fold.before_columns = (unsigned)(node->pad_columns + fold_shift(node->pad_columns, f));
    fold.out_height = out->height + fold_window(&node->operation, node->pad_rows, f) - 1;
    fold.out_width = out->width + fold_window(&node->operation, node->pad_columns, f) - 1;
    return fold;
}

/* The arena's weights are as computed with if nothing is padded, and they begin on 16 bytes. */
static bool weights_direct(const struct plan *plan, const struct node *node,
                           const struct train_fold *fold)
{
    const size_t at = node->weight.offset * datatype_bytes(precision_type(plan->precision));
    return fold->fold == 1 && fold->channels == fold->padded && fold->outer == fold->out_outer &&
           at % 16 == 0;
}

struct train_fold weights_fold(const struct plan *plan, const struct node *node, bool *direct)
{
    const struct operation *operation = &node->operation;
    const struct tensor *in = &plan->network->tensors[node->in[0]];
    const bool dense = operation->kind == OPERATION_DENSE;
    const size_t f = fold_of(plan->network, node);
    struct train_fold fold = {.fold = (unsigned)f,
                              .before_rows = (unsigned)fold_shift(node->pad_rows, f),
                              .before_columns = (unsigned)fold_shift(node->pad_columns, f),
                              .channels = (unsigned)in->channels,
                              .padded = (unsigned)padded_to_eight(in->channels * f * f),
                              .outer = operation->filters,
                              .height = dense ? in->height : operation->window,
                              .width = dense ? in->width : operation->window,
                              .out_outer = padded_to_eight(operation->filters),
                              .type = (int)precision_type(plan->precision)};
    fold.out_height = f > 1 ? fold_window(operation, node->pad_rows, f) : fold.height;
    fold.out_width = f > 1 ? fold_window(operation, node->pad_columns, f) : fold.width;
    *direct = weights_direct(plan, node, &fold);
    return fold;
}

static bool kind_at(const struct network *network, size_t at, enum operation_kind kind)
{
    return at < network->count && network->nodes[at].operation.kind == kind;
}

/* Whether only the next operation reads what the one at `at` makes. */
static bool private(const struct network *network, size_t at, size_t reader)
{
    const struct node *node = &network->nodes[reader];
    const size_t tensor = at + 1;
    return network->tensors[tensor].readers == 1 &&
           (node->in[0] == tensor || (node->inputs == 2 && node->in[1] == tensor));
}

/* With a ReLU behind it that alone reads what it makes, one more. */
static size_t with_relu(const struct network *network, size_t at, size_t count)
{
    return kind_at(network, at + count, OPERATION_RELU) &&
                   private(network, at + count - 1, at + count)
               ? count + 1
               : count;
}

/* Two batch norms and their sum. */
static bool joined(const struct network *network, size_t at)
{
    return kind_at(network, at, OPERATION_BATCH_NORM) &&
           kind_at(network, at + 1, OPERATION_BATCH_NORM) &&
           kind_at(network, at + 2, OPERATION_ADD) && private(network, at, at + 2) &&
           private(network, at + 1, at + 2) &&
           network->nodes[at].in[0] != network->nodes[at + 1].in[0];
}

/* A batch norm and the sum of it and something else. */
static bool norm_added(const struct network *network, size_t at)
{
    if (!kind_at(network, at + 1, OPERATION_ADD) || !private(network, at, at + 1))
        return false;
    const struct node *add = &network->nodes[at + 1];
    const size_t other = add->in[0] == at + 1 ? add->in[1] : add->in[0];
    return other != at + 1 && other != network->nodes[at].in[0];
}

/* A batch norm, a ReLU and a maximum pooling that train_norm_pool does. */
static bool norm_pooled(const struct network *network, size_t at)
{
    const enum operation_kind kinds[] = {OPERATION_BATCH_NORM, OPERATION_RELU, OPERATION_MAX_POOL};
    size_t rows, columns;
    if (!method_taken(METHOD_NORM_POOL) || !plan_chained(network, at, kinds, 3))
        return false;
    const struct node *pool = &network->nodes[at + 2];
    network_window(network, at + 2, &rows, &columns);
    return rows == 3 && columns == 3 && pool->operation.stride == 2 && pool->pad_rows == 1 &&
           pool->pad_columns == 1 && !pool->operation.ceil;
}

/* Whether batch norms are over several ranks: each is a step, whose sums are joined before it. */
static bool norms_join(const struct network *network)
{
    return network->part && network->part->norm_parts;
}

static size_t norm_run(const struct network *network, size_t at)
{
    if (!norms_join(network) && norm_pooled(network, at))
        return 3;
    if (!norms_join(network) && joined(network, at))
        return with_relu(network, at, 3);
    return with_relu(network, at, norm_added(network, at) ? 2 : 1);
}

/* With a ReLU behind it that alone reads what it makes, and dropout behind that. */
static size_t linear_run(const struct network *network, size_t at)
{
    const size_t count = with_relu(network, at, 1);
    return count > 1 && kind_at(network, at + count, OPERATION_DROPOUT) &&
                   private(network, at + count - 1, at + count)
               ? count + 1
               : count;
}

/* Whether a tensor is what a convolution and its ReLU make, for one reader alone. */
static bool is_movable(const struct network *network, size_t tensor)
{
    return tensor > 1 && network->tensors[tensor].readers == 1 &&
           network->tensors[tensor].channels % 8 == 0 &&
           kind_at(network, tensor - 2, OPERATION_CONVOLUTION) &&
           linear_run(network, tensor - 2) == 2;
}

static bool all_movable(const struct network *network, const struct node *concat)
{
    bool all = concat->operation.kind == OPERATION_CONCAT;
    for (size_t i = 0; all && i < concat->inputs; i++)
        all = is_movable(network, concat->in[i]);
    return all;
}

/* The parts of a concatenation are made in its place, if all can be; and what a move puts between
 * margins, between them. */
struct plan_part cudnn_within_rule(const struct plan *plan, size_t tensor)
{
    const struct network *network = plan->network;
    const struct plan_part between = move_within(plan, tensor);
    if (between.whole)
        return between;
    const size_t bytes = datatype_bytes(precision_type(plan->precision));
    if (!is_movable(network, tensor) || !method_taken(METHOD_JOIN))
        return (struct plan_part){0};
    for (size_t at = tensor; at < network->count; at++) {
        const struct node *node = &network->nodes[at];
        size_t channels = 0;
        for (size_t i = 0; i < node->inputs; i++) {
            if (node->in[i] == tensor && all_movable(network, node))
                return (struct plan_part){at + 1, channels * bytes};
            channels += network->tensors[node->in[i]].channels;
        }
    }
    return (struct plan_part){0};
}

/* Not unless it is asked for: no GPU has shown yet from what size on it pays. Rows of one image stand in
 * memory as an image does; sums are of a whole output, and a dropout is not the same in training. */
bool cudnn_divides_rule(const struct plan *plan, const struct step *step)
{
    const struct network *network = plan->network;
    bool divides = method_taken(METHOD_INTERIOR) && method_number(METHOD_INTERIOR) == 2 &&
                   step_is(network, step, 0, OPERATION_CONVOLUTION) &&
                   !step_is(network, step, -1, OPERATION_DROPOUT) &&
                   !statistics_wanted(plan, step) && plan_images(plan, step->out) == 1;
    for (size_t i = 0; i < step->view_count; i++)
        divides &=
            box_extent(&step->views[i].in, AXIS_COLUMNS) == network->tensors[step->in[0]].width &&
            box_extent(&step->views[i].out, AXIS_COLUMNS) ==
                network_output(network, step->first)->width;
    return divides;
}

size_t row_pitch(const struct plan *plan, size_t tensor)
{
    const size_t whole = cudnn_within_rule(plan, tensor).whole;
    return padded_channels(plan->network, whole ? whole : tensor);
}

/* Bytes of scratch for what a convolution makes, if its output's rows stand apart in another tensor. */
static size_t made_bytes(const struct plan *plan, const struct step *step)
{
    return row_pitch(plan, step->out) == padded_channels(plan->network, step->out)
               ? 0
               : plan_line(cudnn_bytes_rule(plan, step->out));
}

static size_t add_run(const struct network *network, size_t at)
{
    return with_relu(network, at, 1);
}

bool statistics_wanted(const struct plan *plan, const struct step *step)
{
    const struct network *network = plan->network;
    const struct node *node = &network->nodes[step->first];
    const bool taken = plan->precision == PRECISION_FP16 ||
                       (plan->precision == PRECISION_BF16 && method_number(METHOD_STATISTICS) == 2);
    if (!method_taken(METHOD_STATISTICS) || !taken || norms_join(network) ||
        node->operation.kind != OPERATION_CONVOLUTION || node->bias.count || step->count > 1)
        return false;
    for (size_t i = 0; i < network->count; i++)
        if (kind_at(network, i, OPERATION_BATCH_NORM) && network->nodes[i].in[0] == step->out)
            return true;
    return false;
}

size_t statistics_bytes(const struct plan *plan, const struct step *step)
{
    return plan_line(2 * padded_channels(plan->network, step->out) * sizeof(float));
}

struct pool_saves pool_saves(const struct plan *plan, const struct step *step)
{
    const size_t elements =
        tensor_rows(plan, step->out) * padded_channels(plan->network, step->out);
    struct pool_saves at = {.index = plan_line(cudnn_bytes_rule(plan, step->out))};
    at.mask = at.index + plan_line(elements);
    at.bytes = at.mask + plan_line(elements / 8);
    return at;
}

/* Bytes of what the step saves besides packed images. */
static size_t saved_bytes(const struct plan *plan, const struct step *step)
{
    const struct network *network = plan->network;
    const size_t elements = tensor_rows(plan, step->out) * padded_channels(network, step->out);
    if (step_is(network, step, 0, OPERATION_MAX_POOL))
        return elements;
    if (step_is(network, step, -1, OPERATION_MAX_POOL))
        return pool_saves(plan, step).bytes;
    const bool mask = step_is(network, step, 0, OPERATION_BATCH_NORM) && step->count > 2 &&
                      step_is(network, step, -1, OPERATION_RELU);
    return mask ? elements / 8 : 0;
}

static size_t diff_scratch_bytes(const struct plan *plan, const struct step *step)
{
    const enum operation_kind kind = plan->network->nodes[step->first].operation.kind;
    const struct train_strided spread = strided_of(plan, step);
    return kind == OPERATION_CONVOLUTION && step->accumulate[0]
               ? plan_line(cudnn_bytes_rule(plan, step->in[0]))
               : plan_line(strided_bytes(&spread));
}

/* Batch norms read each row before they write it; what is gated for the other input of an addition,
 * dy, too. */
static void needs_norm(const struct plan *plan, const struct step *step, struct step_needs *out)
{
    const bool two = step_is(plan->network, step, 1, OPERATION_BATCH_NORM);
    out->in[1] = two;
    if (step_is(plan->network, step, -1, OPERATION_MAX_POOL))
        return;
    out->over_value[0] = true;
    out->over_value[1] = two;
    out->over_gradient[1] = step->inputs > 1 && !two;
}

/* What a ReLU lets through is seen by the output. */
static void needs_relu(const struct plan *plan, const struct step *step, struct step_needs *out)
{
    (void)plan;
    out->out = step->count > 1;
}

/* By the kind of a step's first operation: how many operations from there on run as one (NULL: 1);
 * whether backward reads the values of input 0, of the output; and what else it needs. */
static const struct {
    plan_run_function *run;
    bool in, out;
    void (*needs)(const struct plan *plan, const struct step *step, struct step_needs *out);
} rules[OPERATION_KINDS] = {
    [OPERATION_CONVOLUTION] = {linear_run, .in = true, .needs = needs_relu},
    [OPERATION_BATCH_NORM] = {norm_run, .in = true, .needs = needs_norm},
    [OPERATION_RELU] = {.out = true},
    [OPERATION_SIGMOID] = {.out = true},
    [OPERATION_ADD] = {add_run, .needs = needs_relu},
    [OPERATION_DENSE] = {linear_run, .in = true, .needs = needs_relu},
    [OPERATION_LOCAL_NORM] = {.in = true},
    [OPERATION_CROSS_ENTROPY] = {.out = true},
    [OPERATION_SQUARED_ERROR] = {.out = true},
};

size_t cudnn_run_rule(const struct network *network, size_t at)
{
    const enum operation_kind kind = network->nodes[at].operation.kind;
    return rules[kind].run ? rules[kind].run(network, at) : 1;
}

void cudnn_needs_rule(const struct plan *plan, const struct step *step, struct step_needs *out)
{
    const struct node *node = &plan->network->nodes[step->first];
    const struct train_im2col rows = im2col_of(plan, step);
    out->in[0] = rules[node->operation.kind].in;
    out->out = rules[node->operation.kind].out;
    if (rules[node->operation.kind].needs)
        rules[node->operation.kind].needs(plan, step, out);
    out->saved = plan_line(saved_bytes(plan, step));
    out->scratch[1] = diff_scratch_bytes(plan, step);
    if (node->operation.kind == OPERATION_CONVOLUTION || node->operation.kind == OPERATION_DENSE) {
        bool direct;
        const struct train_fold fold = weights_fold(plan, node, &direct);
        out->scratch[1] += fold_bytes(&fold);
    }
    out->scratch[0] = im2col_bytes(&rows);
    if (out->scratch[0])
        out->scratch[1] = plan_line(out->scratch[1]) + out->scratch[0];
    for (int i = 0; i < 2; i++)
        if (made_bytes(plan, step))
            out->scratch[i] = plan_line(out->scratch[i]) + made_bytes(plan, step);
}

void *step_value(const struct cudnn_net *self, const struct cudnn_step *step, size_t i)
{
    const size_t tensor = step->step->in[i];
    return tensor == 0 ? step->images : setup_value(&self->setup, tensor);
}

void *step_diff(const struct cudnn_net *self, const struct cudnn_step *step, size_t i)
{
    const size_t tensor = step->step->in[i];
    return tensor == 0 ? NULL : setup_diff(&self->setup, tensor);
}

void *step_made(const struct cudnn_net *self, const struct cudnn_step *step, int backward)
{
    const struct kernels_setup *setup = &self->setup;
    const size_t bytes = made_bytes(setup->plan, step->step), out = step->step->out;
    struct step_needs needs = {0};
    if (!bytes)
        return backward ? setup_diff(setup, out) : setup_value(setup, out);
    cudnn_needs_rule(setup->plan, step->step, &needs);
    return (char *)setup_scratch(setup, step->step, backward) + needs.scratch[backward] - bytes;
}

void *step_scratch_weights(const struct cudnn_net *self, const struct cudnn_step *step)
{
    return (char *)setup_scratch(&self->setup, step->step, 1) +
           diff_scratch_bytes(self->setup.plan, step->step);
}

void *step_scratch_im2col(const struct cudnn_net *self, const struct cudnn_step *step)
{
    return (char *)step_scratch_weights(self, step) + plan_line(step->weights.bytes);
}
