/* Dropout and concatenation: own passes in whichever layout the tensors have, shared among the
 * threads. See onednn/steps.h. */
#include "train/kernels/onednn/steps.h"

#include "base/status.h"

#include <string.h>

static size_t pixels_of(const struct compiled *self, size_t t)
{
    const struct tensor *tensor = &self->setup.network->tensors[t];
    return tensor->height * tensor->width;
}

/* ---- Dropout ---- */

/* One pixel of y = x times the factors, or added. */
static void pixel_drop(const struct dropout *dropout, uint64_t image, size_t pixel,
                       const struct runs *runs, size_t channels, const struct action *action,
                       size_t at)
{
    const size_t groups = dropout_groups(channels);
    uint64_t hash = 0;
    for (size_t c = 0; c < channels; c++) {
        const size_t i = at + c / runs->run * runs->apart + c % runs->run;
        if (c % DROPOUT_CHANNELS == 0)
            hash = dropout_hash(image, pixel, groups, c / DROPOUT_CHANNELS);
        action->y[i] =
            (action->add ? action->y[i] : 0) + action->a[i] * dropout_factor(dropout, hash, c);
    }
}

static void pass_dropout(const struct compiled *self, const struct action *action)
{
    const size_t t = action->step->out, pixels = pixels_of(self, t);
    const size_t channels = self->setup.network->tensors[t].channels;
    const struct runs runs = activation_runs(self, t);
    const struct dropout dropout = setup_dropout(&self->setup, action->step->first);
    const size_t images = plan_images(self->setup.plan, t);
#pragma omp parallel for
    for (size_t i = 0; i < images * pixels; i++) {
        const size_t n = i / pixels, pixel = i % pixels;
        pixel_drop(&dropout, dropout_image(&dropout, n), dropout_pixel(&dropout, pixel), &runs,
                   channels, action, n * runs.image + pixel * runs.pixel);
    }
}

alnico_status_t build_dropout(struct compiled *self, const struct step *step,
                              struct sequences *sequences)
{
    const float *x = setup_value(&self->setup, step->in[0]);
    float *y = setup_value(&self->setup, step->out), *dx = setup_diff(&self->setup, step->in[0]);
    struct action action = {.own = pass_dropout, .y = y, .a = x, .step = step};
    TRY(sequence_append(&sequences->forward, &action));
    TRY(sequence_pass(&sequences->inference, elementwise_copy, y, x, NULL,
                      batch_elements(self, step->out)));
    if (!dx)
        return ALNICO_SUCCESS;
    action.y = dx;
    action.a = setup_diff(&self->setup, step->out);
    action.add = step->accumulate[0];
    return sequence_append(&sequences->backward, &action);
}

/* ---- Concatenation ---- */

/* Channels from `first` on of tensor `whole` are those of tensor `part`. */
struct slice {
    size_t whole, part, first;
};

static struct slice slice_of(const struct compiled *self, const struct step *step, size_t i)
{
    struct slice slice = {.whole = step->out, .part = step->in[i]};
    for (size_t k = 0; k < i; k++)
        slice.first += self->setup.network->tensors[step->in[k]].channels;
    return slice;
}

/* count: which input. y: of the output, or backward of the input, from a. */
static void pass_slice(const struct compiled *self, const struct action *action, bool backward)
{
    const struct slice slice = slice_of(self, action->step, action->count);
    const struct runs whole = activation_runs(self, slice.whole),
                      part = activation_runs(self, slice.part);
    const struct runs *to = backward ? &part : &whole, *from = backward ? &whole : &part;
    const size_t pixels = pixels_of(self, slice.whole);
    const size_t channels = self->setup.network->tensors[slice.part].channels;
    const size_t images = plan_images(self->setup.plan, slice.whole);
#pragma omp parallel for
    for (size_t i = 0; i < images * pixels; i++) {
        const size_t n = i / pixels, pixel = i % pixels;
        pixels_copy(action->y + n * to->image + pixel * to->pixel, to, backward ? 0 : slice.first,
                    action->a + n * from->image + pixel * from->pixel, from,
                    backward ? slice.first : 0, channels, 1, action->add);
    }
}

static void pass_concat(const struct compiled *self, const struct action *action)
{
    pass_slice(self, action, false);
}

static void pass_split(const struct compiled *self, const struct action *action)
{
    pass_slice(self, action, true);
}

alnico_status_t build_concat(struct compiled *self, const struct step *step,
                             struct sequences *sequences)
{
    for (size_t i = 0; i < step->inputs; i++) {
        float *dx = setup_diff(&self->setup, step->in[i]);
        struct action action = {.own = pass_concat,
                                .y = setup_value(&self->setup, step->out),
                                .a = setup_value(&self->setup, step->in[i]),
                                .count = i,
                                .step = step};
        TRY(sequence_append(&sequences->forward, &action));
        if (!dx)
            continue;
        action.own = pass_split;
        action.y = dx;
        action.a = setup_diff(&self->setup, step->out);
        action.add = step->accumulate[i];
        TRY(sequence_append(&sequences->backward, &action));
    }
    return ALNICO_SUCCESS;
}
