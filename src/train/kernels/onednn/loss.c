/* Losses: the softmax of a cross-entropy on oneDNN, all else by own passes, since values of losses
 * are plain and what they read may be in blocks of channels. See onednn/steps.h. */
#include "train/kernels/onednn/steps.h"

#include "base/status.h"

#include <math.h>

/* A loss's terms. */
struct terms {
    size_t count, channels, pixels; /* pixels: of an image */
    struct runs in;                 /* of what it reads */
    float share, smoothing;
};

static struct terms terms_of(const struct compiled *self, const struct step *step)
{
    const struct tensor *in = &self->setup.network->tensors[step->in[0]];
    const size_t pixels = in->height * in->width,
                 count = plan_images(self->setup.plan, step->in[0]) * pixels;
    const double weight = loss_weight(&self->setup.network->nodes[step->first].operation),
                 terms = network_terms(self->setup.network, step->first, self->setup.plan->batch);
    return (struct terms){.count = count,
                          .channels = in->channels,
                          .pixels = pixels,
                          .in = activation_runs(self, step->in[0]),
                          .share = (float)(weight / terms),
                          .smoothing = self->setup.options.smoothing};
}

/* Where channel k of term n stands in what the loss reads. */
static size_t place(const struct terms *t, size_t n, size_t k)
{
    return n / t->pixels * t->in.image + n % t->pixels * t->in.pixel + k / t->in.run * t->in.apart +
           k % t->in.run;
}

/* y: the loss's value; a: what it reads. */
static void pass_gather(const struct compiled *self, const struct action *action)
{
    const struct terms t = terms_of(self, action->step);
    for (size_t n = 0; n < t.count; n++)
        for (size_t k = 0; k < t.channels; k++)
            action->y[n * t.channels + k] = action->a[place(&t, n, k)];
}

/* y: the gradient of what it reads, written or added to; a: the loss's value. */
static void gradient_put(const struct terms *t, const struct action *action, size_t n, size_t k,
                         float gradient)
{
    float *dx = &action->y[place(t, n, k)];
    *dx = action->add ? *dx + gradient : gradient;
}

static void pass_cross_entropy(const struct compiled *self, const struct action *action)
{
    const struct terms t = terms_of(self, action->step);
    const int32_t *labels = self->setup.arenas->labels;
    for (size_t n = 0; n < t.count; n++)
        for (size_t k = 0; k < t.channels; k++) {
            const float target =
                (1 - t.smoothing) * ((size_t)labels[n] == k) + t.smoothing / (float)t.channels;
            const float away = expf(action->a[n * t.channels + k]) - target;
            gradient_put(&t, action, n, k, labels[n] < 0 ? 0 : away * t.share);
        }
}

static void pass_squared_error(const struct compiled *self, const struct action *action)
{
    const struct terms t = terms_of(self, action->step);
    const int32_t *labels = self->setup.arenas->labels;
    for (size_t n = 0; n < t.count; n++)
        for (size_t k = 0; k < t.channels; k++) {
            const float target = t.channels > 1 ? (size_t)labels[n] == k : (float)labels[n];
            const float away = action->a[n * t.channels + k] - target;
            gradient_put(&t, action, n, k,
                         labels[n] < 0 ? 0 : 2 * away / (float)t.channels * t.share);
        }
}

/* Appends the logarithm of the softmax of what was gathered, in its place. */
static alnico_status_t softmax_append(struct compiled *self, const struct step *step,
                                      struct sequence *sequence)
{
    dnnl_memory_desc_t layout;
    dnnl_logsoftmax_desc_t description;
    dnnl_primitive_desc_t made;
    dnnl_memory_t value;
    struct call call;
    TRY(matrix_layout(self, step->out, &layout));
    TRY(matrix_memory(self, step->out, setup_value(&self->setup, step->out), &value));
    TRY(onednn_status(
        dnnl_logsoftmax_forward_desc_init(&description, dnnl_forward_inference, &layout, 1),
        "a softmax"));
    TRY(onednn_primitive(&self->library, &description, NULL, &made, &call));
    call_argument(&call, DNNL_ARG_SRC, value);
    call_argument(&call, DNNL_ARG_DST, value);
    return sequence_call(sequence, &call);
}

alnico_status_t build_loss(struct compiled *self, const struct step *step,
                           struct sequences *sequences)
{
    const bool softmax = step_is(self->setup.network, step, 0, OPERATION_CROSS_ENTROPY);
    struct action action = {.own = pass_gather,
                            .step = step,
                            .y = setup_value(&self->setup, step->out),
                            .a = setup_value(&self->setup, step->in[0])};
    TRY(sequence_append(&sequences->forward, &action));
    if (softmax)
        TRY(softmax_append(self, step, &sequences->forward));
    action.own = softmax ? pass_cross_entropy : pass_squared_error;
    action.a = action.y;
    action.y = setup_diff(&self->setup, step->in[0]);
    action.add = step->accumulate[0];
    return action.y ? sequence_append(&sequences->backward, &action) : ALNICO_SUCCESS;
}
