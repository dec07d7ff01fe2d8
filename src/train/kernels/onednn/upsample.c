/* Nearest upsampling, by own passes: oneDNN has none that leaves pixels out at the far ends. See
 * onednn/steps.h. */
#include "train/kernels/onednn/steps.h"

#include "base/status.h"
#include "train/base/threads.h"

#include <string.h>

/* The two tensors. What lies together in the output does so in the input, which is plain or in the
 * same blocks. */
struct upsample {
    const struct tensor *in, *out;
    struct runs from, to; /* of in, of out */
    size_t factor, batch, runs, run;
};

/* Where a run of pixel (i, 0) of image n begins. */
static size_t place(const struct upsample *u, const struct runs *r, size_t n, size_t run, size_t i)
{
    const size_t channel = run * u->run, width = r == &u->from ? u->in->width : u->out->width;
    return n * r->image + channel / r->run * r->apart + channel % r->run + i * width * r->pixel;
}

static struct upsample upsample_of(const struct compiled *self, const struct step *step)
{
    struct upsample u = {.in = &self->setup.network->tensors[step->in[0]],
                         .out = &self->setup.network->tensors[step->out],
                         .from = activation_runs(self, step->in[0]),
                         .to = activation_runs(self, step->out),
                         .factor = self->setup.network->nodes[step->first].operation.stride,
                         .batch = plan_images(self->setup.plan, step->out)};
    u.run = u.to.run;
    u.runs = u.in->channels / u.run;
    return u;
}

static void row_copy(const struct upsample *u, float *y, const float *x)
{
    for (size_t j = 0; j < u->out->width; j++)
        memcpy(y + j * u->to.pixel, x + j / u->factor * u->from.pixel, u->run * sizeof *y);
}

static void row_add(const struct upsample *u, float *dx, const float *dy)
{
    for (size_t j = 0; j < u->out->width; j++)
        for (size_t k = 0; k < u->run; k++)
            dx[j / u->factor * u->from.pixel + k] += dy[j * u->to.pixel + k];
}

/* y: the output's values; a: the input's. */
static void pass_forward(const struct compiled *self, const struct action *action)
{
    const struct upsample u = upsample_of(self, action->step);
#pragma omp parallel for collapse(3) if (action->count > THREADS_SHARE)
    for (size_t n = 0; n < u.batch; n++)
        for (size_t g = 0; g < u.runs; g++)
            for (size_t i = 0; i < u.out->height; i++)
                row_copy(&u, action->y + place(&u, &u.to, n, g, i),
                         action->a + place(&u, &u.from, n, g, i / u.factor));
}

static void row_clear(const struct upsample *u, float *dx)
{
    for (size_t j = 0; j < u->in->width; j++)
        memset(dx + j * u->from.pixel, 0, u->run * sizeof *dx);
}

/* y: the gradient of the input, which is added to or written; a: that of the output. */
static void pass_backward(const struct compiled *self, const struct action *action)
{
    const struct upsample u = upsample_of(self, action->step);
#pragma omp parallel for collapse(3) if (action->count > THREADS_SHARE)
    for (size_t n = 0; n < u.batch; n++)
        for (size_t g = 0; g < u.runs; g++)
            for (size_t i = 0; i < u.in->height; i++) {
                float *dx = action->y + place(&u, &u.from, n, g, i);
                if (!action->add)
                    row_clear(&u, dx);
                for (size_t k = i * u.factor; k < (i + 1) * u.factor && k < u.out->height; k++)
                    row_add(&u, dx, action->a + place(&u, &u.to, n, g, k));
            }
}

alnico_status_t build_upsample(struct compiled *self, const struct step *step,
                               struct sequences *sequences)
{
    struct action action = {.own = pass_forward,
                            .step = step,
                            .y = setup_value(&self->setup, step->out),
                            .a = setup_value(&self->setup, step->in[0]),
                            .count = batch_elements(self, step->out)};
    TRY(sequence_append(&sequences->forward, &action));
    action.own = pass_backward;
    action.y = setup_diff(&self->setup, step->in[0]);
    action.a = setup_diff(&self->setup, step->out);
    action.add = step->accumulate[0];
    return action.y ? sequence_append(&sequences->backward, &action) : ALNICO_SUCCESS;
}
