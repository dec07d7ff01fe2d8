/*
 * Batch norm on oneDNN: alone, fused with a ReLU by the library, or followed by an own pass that
 * adds and clips in place. See onednn/steps.h.
 */
#include "train/kernels/onednn/steps.h"

#include "base/status.h"
#include "base/vectorised.h"

#include <math.h>
#include <string.h>

/* y: running means and variances of `count` channels; a: the batch's; b: n / (n - 1). */
static void pass_running(float *y, const float *a, const float *b, size_t count)
{
    for (size_t i = 0; i < 2 * count; i++)
        y[i] += NETWORK_NORM_MOMENTUM * ((i < count ? a[i] : a[i] * b[0]) - y[i]);
}

/* ---- Over several ranks: the library takes means and variances as given, and own passes make them
 * and what they add to the gradient ---- */

enum { LANES = 16 }; /* channels that are summed at once; they stand side by side */

static double joint_pixels(const struct compiled *self, const struct step *step)
{
    return network_joint(self->setup.network, step->first, self->setup.plan->batch);
}

/* Some channels of the pixels of an image. */
struct lanes {
    size_t count, pixels, apart; /* numbers from one pixel to the next */
};

/* Adds up the numbers and their squares. */
__attribute__((always_inline)) static inline void sums_run(const float *x, struct lanes lanes,
                                                           double *sums, double *squares)
{
    for (size_t i = 0; i < lanes.pixels; i++, x += lanes.apart)
#pragma omp simd
        for (size_t k = 0; k < lanes.count; k++) {
            sums[k] += (double)x[k];
            squares[k] += (double)x[k] * (double)x[k];
        }
}

/* The loops of all lanes have constants for bounds. */
VECTORISED static void lanes_sum(const float *x, struct lanes lanes, double *sums, double *squares)
{
    const struct lanes full = {LANES, lanes.pixels, lanes.apart};
    if (lanes.count == LANES)
        sums_run(x, full, sums, squares);
    else
        sums_run(x, lanes, sums, squares);
}

/* y = (add ? y : 0) + dy - level - slope * x */
__attribute__((always_inline)) static inline void centre_run(float *y, const float *dy,
                                                             const float *x, struct lanes lanes,
                                                             const float *level, const float *slope,
                                                             bool add)
{
    for (size_t i = 0; i < lanes.pixels * lanes.apart; i += lanes.apart)
#pragma omp simd
        for (size_t k = 0; k < lanes.count; k++)
            y[i + k] = (add ? y[i + k] : 0) + dy[i + k] - level[k] - slope[k] * x[i + k];
}

VECTORISED static void lanes_centre(float *y, const float *dy, const float *x, struct lanes lanes,
                                    const float *level, const float *slope, bool add)
{
    const struct lanes full = {LANES, lanes.pixels, lanes.apart};
    if (lanes.count == LANES && !add)
        centre_run(y, dy, x, full, level, slope, false);
    else
        centre_run(y, dy, x, lanes, level, slope, add);
}

/* The channels from c on, up to LANES, which stand side by side; where they do in an image. */
static struct lanes lanes_of(const struct compiled *self, size_t t, size_t c, size_t *at)
{
    const struct tensor *tensor = &self->setup.network->tensors[t];
    const struct runs runs = activation_runs(self, t);
    const size_t left = tensor->channels - c;
    *at = c / runs.run * runs.apart + c % runs.run;
    return (struct lanes){left < LANES ? left : LANES, tensor->height * tensor->width, runs.pixel};
}

/* The sums of x and its square. */
static void pass_sums(const struct compiled *self, const struct action *action)
{
    const size_t t = action->step->in[0], images = plan_images(self->setup.plan, t),
                 channels = self->setup.network->tensors[t].channels,
                 image = activation_runs(self, t).image;
    double *joint = self->setup.arenas->joint;
#pragma omp parallel for
    for (size_t c = 0; c < channels; c += LANES) {
        double sums[LANES] = {0}, squares[LANES] = {0};
        size_t at;
        const struct lanes lanes = lanes_of(self, t, c, &at);
        for (size_t n = 0; n < images; n++)
            lanes_sum(action->a + n * image + at, lanes, sums, squares);
        memcpy(joint + c, sums, lanes.count * sizeof *sums);
        memcpy(joint + channels + c, squares, lanes.count * sizeof *squares);
    }
}

/* y: means and variances, of all ranks' sums; they move the running ones. */
static void pass_join(const struct compiled *self, const struct action *action)
{
    const struct node *node = &self->setup.network->nodes[action->step->first];
    const double *joint = self->setup.arenas->joint, count = joint_pixels(self, action->step);
    const size_t channels = node->bias.count;
    float *running = self->setup.arenas->statistics + node->statistics.offset;
    const float unbiased = (float)(count / fmax(count - 1, 1));
    for (size_t c = 0; c < channels; c++) {
        const double mean = joint[c] / count;
        action->y[c] = (float)mean;
        action->y[channels + c] = (float)fmax(joint[channels + c] / count - mean * mean, 0);
    }
    pass_running(running, action->y, &unbiased, channels);
}

/* The gradients of shift and scale become sums. */
static void pass_slopes(const struct compiled *self, const struct action *action)
{
    const struct node *node = &self->setup.network->nodes[action->step->first];
    const float *gradients = self->setup.arenas->gradients;
    double *joint = self->setup.arenas->joint;
    for (size_t c = 0; c < node->bias.count; c++) {
        joint[c] = (double)gradients[node->bias.offset + c];
        joint[node->bias.count + c] = (double)gradients[node->weight.offset + c];
    }
}

/* y, the gradient of the input, is a less what the means and variances, b, take of it. */
static void pass_centre(const struct compiled *self, const struct action *action)
{
    const size_t t = action->step->in[0], images = plan_images(self->setup.plan, t),
                 channels = self->setup.network->tensors[t].channels,
                 image = activation_runs(self, t).image;
    const struct node *node = &self->setup.network->nodes[action->step->first];
    const double *joint = self->setup.arenas->joint, count = joint_pixels(self, action->step);
    const float *x = setup_value(&self->setup, t),
                *scales = self->setup.arenas->parameters + node->weight.offset;
#pragma omp parallel for
    for (size_t c = 0; c < channels; c += LANES) {
        float level[LANES], slope[LANES];
        size_t at;
        const struct lanes lanes = lanes_of(self, t, c, &at);
        for (size_t k = 0; k < lanes.count; k++) {
            const double variance = (double)action->b[channels + c + k] + NETWORK_NORM_EPSILON;
            const double share = (double)scales[c + k] / sqrt(variance) / count;
            const double steep = share * joint[channels + c + k] / sqrt(variance);
            slope[k] = (float)steep;
            level[k] = (float)(share * joint[c + k] - steep * (double)action->b[c + k]);
        }
        for (size_t n = 0; n < images; n++, at += image)
            lanes_centre(action->y + at, action->a + at, x + at, lanes, level, slope, action->add);
    }
}

struct norm {
    const struct node *node;
    dnnl_memory_desc_t layout;
    size_t channels;
    bool joint;
    unsigned flags;
    float *moments; /* the batch's means, then variances; frozen: the running ones */
    dnnl_memory_t mean, variance, scale, shift, workspace;
    dnnl_primitive_desc_t forward;
};

static alnico_status_t norm_describe(struct compiled *self, const struct step *step, struct norm *n)
{
    dnnl_memory_desc_t both;
    dnnl_memory_t owner;
    void *moments;
    float *parameters = self->setup.arenas->parameters;
    *n = (struct norm){.node = &self->setup.network->nodes[step->first],
                       .channels = self->setup.network->tensors[step->in[0]].channels,
                       .flags = dnnl_use_scale | dnnl_use_shift};
    if (step->count == 2)
        n->flags |= dnnl_fuse_norm_relu;
    n->joint = joint_pixels(self, step) > 0 && !self->setup.options.frozen;
    if (self->setup.options.frozen || n->joint)
        n->flags |= dnnl_use_global_stats;
    TRY(activation_layout(self, step->in[0], &n->layout));
    TRY(vector_layout(2 * n->channels, &both));
    TRY(onednn_memory(&self->library, &both, NULL, &owner));
    TRY(onednn_status(dnnl_memory_get_data_handle(owner, &moments), "a memory object"));
    n->moments = self->setup.options.frozen
                     ? self->setup.arenas->statistics + n->node->statistics.offset
                     : moments;
    TRY(vector_memory(self, n->moments, n->channels, &n->mean));
    TRY(vector_memory(self, n->moments + n->channels, n->channels, &n->variance));
    TRY(vector_memory(self, parameters + n->node->weight.offset, n->channels, &n->scale));
    return vector_memory(self, parameters + n->node->bias.offset, n->channels, &n->shift);
}

/* Arguments that forward and backward share. */
static void norm_arguments(const struct compiled *self, const struct step *step,
                           const struct norm *n, dnnl_memory_t mean, dnnl_memory_t variance,
                           struct call *call)
{
    call_argument(call, DNNL_ARG_SRC, self->values[step->in[0]]);
    call_argument(call, DNNL_ARG_MEAN, mean);
    call_argument(call, DNNL_ARG_VARIANCE, variance);
    call_argument(call, DNNL_ARG_SCALE, n->scale);
    call_argument(call, DNNL_ARG_SHIFT, n->shift);
}

/* Appends max(out + other, 0), if the step has an addition. */
static alnico_status_t norm_add(struct compiled *self, const struct step *step,
                                struct sequence *sequence)
{
    if (step->count != 3)
        return ALNICO_SUCCESS;
    float *y = setup_value(&self->setup, step->out);
    return sequence_pass(sequence, elementwise_add_relu, y, y,
                         setup_value(&self->setup, step->in[1]), batch_elements(self, step->out));
}

/* Appends the update of the running statistics. */
static alnico_status_t norm_running(struct compiled *self, const struct step *step,
                                    const struct norm *n, struct sequence *sequence)
{
    const size_t count = batch_elements(self, step->in[0]) / n->channels;
    dnnl_memory_desc_t layout;
    dnnl_memory_t owner;
    void *factor;
    TRY(vector_layout(1, &layout));
    TRY(onednn_memory(&self->library, &layout, NULL, &owner));
    TRY(onednn_status(dnnl_memory_get_data_handle(owner, &factor), "a memory object"));
    *(float *)factor = (float)((double)count / (double)(count > 1 ? count - 1 : 1));
    float *running = self->setup.arenas->statistics + n->node->statistics.offset;
    return sequence_pass(sequence, pass_running, running, n->moments, factor, n->channels);
}

static alnico_status_t norm_training(struct compiled *self, const struct step *step, struct norm *n,
                                     struct sequence *sequence)
{
    dnnl_batch_normalization_desc_t description;
    struct call call;
    TRY(onednn_status(dnnl_batch_normalization_forward_desc_init(&description,
                                                                 dnnl_forward_training, &n->layout,
                                                                 NETWORK_NORM_EPSILON, n->flags),
                      "a batch norm"));
    TRY(onednn_primitive(&self->library, &description, NULL, &n->forward, &call));
    norm_arguments(self, step, n, n->mean, n->variance, &call);
    call_argument(&call, DNNL_ARG_DST, self->values[step->out]);
    if (n->flags & dnnl_fuse_norm_relu) {
        TRY(onednn_memory(&self->library, onednn_layout(n->forward, dnnl_query_workspace_md), NULL,
                          &n->workspace));
        call_argument(&call, DNNL_ARG_WORKSPACE, n->workspace);
    }
    TRY(sequence_call(sequence, &call));
    if (!self->setup.options.frozen && !n->joint)
        TRY(norm_running(self, step, n, sequence));
    return norm_add(self, step, sequence);
}

static alnico_status_t norm_inference(struct compiled *self, const struct step *step,
                                      struct norm *n, struct sequence *sequence)
{
    float *running = self->setup.arenas->statistics + n->node->statistics.offset;
    dnnl_batch_normalization_desc_t description;
    dnnl_primitive_desc_t made;
    dnnl_memory_t mean, variance;
    struct call call;
    TRY(vector_memory(self, running, n->channels, &mean));
    TRY(vector_memory(self, running + n->channels, n->channels, &variance));
    TRY(onednn_status(dnnl_batch_normalization_forward_desc_init(
                          &description, dnnl_forward_inference, &n->layout, NETWORK_NORM_EPSILON,
                          n->flags | dnnl_use_global_stats),
                      "a batch norm in inference"));
    TRY(onednn_primitive(&self->library, &description, NULL, &made, &call));
    norm_arguments(self, step, n, mean, variance, &call);
    call_argument(&call, DNNL_ARG_DST, self->values[step->out]);
    TRY(sequence_call(sequence, &call));
    return norm_add(self, step, sequence);
}

/* Appends what makes the means and variances of all ranks. */
static alnico_status_t norm_join(const struct compiled *self, const struct step *step,
                                 const struct norm *n, struct sequences *sequences)
{
    const struct action sums = {.own = pass_sums,
                                .step = step,
                                .a = setup_value(&self->setup, step->in[0])},
                        join = {.own = pass_join, .step = step, .y = n->moments};
    TRY(sequence_append(&sequences->sums[0], &sums));
    return sequence_append(&sequences->forward, &join);
}

/* Appends what takes the gradients of all ranks' means and variances off that of the input, which
 * stands where the library made it. */
static alnico_status_t norm_centre(const struct compiled *self, const struct step *step,
                                   const struct norm *n, struct sequences *sequences)
{
    float *diff = setup_diff(&self->setup, step->in[0]);
    const struct action slopes = {.own = pass_slopes, .step = step},
                        centre = {.own = pass_centre,
                                  .step = step,
                                  .y = diff,
                                  .a = step->accumulate[0] ? setup_scratch(&self->setup, step, 1)
                                                           : diff,
                                  .b = n->moments,
                                  .add = step->accumulate[0]};
    TRY(sequence_append(&sequences->sums[1], &slopes));
    return diff ? sequence_append(&sequences->backward, &centre) : ALNICO_SUCCESS;
}

/* Appends the masking of the output's gradient, which is then that of the norm's output and of the
 * other addend: it stands in the latter's place if that is free, and in scratch otherwise. */
static alnico_status_t norm_split(struct compiled *self, const struct step *step,
                                  struct sequence *sequence, dnnl_memory_t *masked)
{
    float *diff = setup_diff(&self->setup, step->in[1]);
    const bool direct = diff && !step->accumulate[1];
    const size_t count = batch_elements(self, step->out);
    float *target = direct ? diff : step_scratch(self, step);
    dnnl_memory_desc_t layout;
    TRY(activation_layout(self, step->out, &layout));
    TRY(onednn_memory(&self->library, &layout, target, masked));
    TRY(sequence_pass(sequence, elementwise_mask, target, setup_diff(&self->setup, step->out),
                      setup_value(&self->setup, step->out), count));
    if (direct || !diff)
        return ALNICO_SUCCESS;
    return sequence_pass(sequence, elementwise_accumulate, diff, target, NULL, count);
}

static alnico_status_t norm_backward(struct compiled *self, const struct step *step, struct norm *n,
                                     struct sequence *sequence)
{
    float *gradients = self->setup.arenas->gradients;
    dnnl_batch_normalization_desc_t description;
    dnnl_primitive_desc_t made;
    dnnl_memory_t scale, shift, arriving = self->diffs[step->out];
    struct call call;
    if (step->count == 3)
        TRY(norm_split(self, step, sequence, &arriving));
    TRY(vector_memory(self, gradients + n->node->weight.offset, n->channels, &scale));
    TRY(vector_memory(self, gradients + n->node->bias.offset, n->channels, &shift));
    TRY(onednn_status(dnnl_batch_normalization_backward_desc_init(&description, dnnl_backward,
                                                                  &n->layout, &n->layout,
                                                                  NETWORK_NORM_EPSILON, n->flags),
                      "a batch norm's gradient"));
    TRY(onednn_primitive(&self->library, &description, n->forward, &made, &call));
    norm_arguments(self, step, n, n->mean, n->variance, &call);
    call_argument(&call, DNNL_ARG_DIFF_DST, arriving);
    call_argument(&call, DNNL_ARG_DIFF_SCALE, scale);
    call_argument(&call, DNNL_ARG_DIFF_SHIFT, shift);
    if (n->workspace)
        call_argument(&call, DNNL_ARG_WORKSPACE, n->workspace);
    return sequence_diff(self, step, &call, n->joint, sequence);
}

/* Of a joint norm the library's part comes before the ranks' sums. */
alnico_status_t build_norm(struct compiled *self, const struct step *step,
                           struct sequences *sequences)
{
    struct norm n;
    TRY(norm_describe(self, step, &n));
    if (n.joint)
        TRY(norm_join(self, step, &n, sequences));
    if (step_empty(self->setup.plan, step))
        return norm_centre(self, step, &n, sequences);
    TRY(norm_training(self, step, &n, &sequences->forward));
    TRY(norm_inference(self, step, &n, &sequences->inference));
    TRY(norm_backward(self, step, &n, n.joint ? &sequences->sums[1] : &sequences->backward));
    return n.joint ? norm_centre(self, step, &n, sequences) : ALNICO_SUCCESS;
}
