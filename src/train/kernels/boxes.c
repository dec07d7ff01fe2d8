/* See kernels/boxes.h. */
#include "train/kernels/boxes.h"

#include "train/base/threads.h"

void pixel_copy(float *y, const struct runs *to, size_t first, const float *x,
                const struct runs *from, size_t skip, size_t channels, bool add)
{
    for (size_t c = 0, some; c < channels; c += some) {
        const size_t a = first + c, b = skip + c;
        float *out = y + a / to->run * to->apart + a % to->run;
        const float *in = x + b / from->run * from->apart + b % from->run;
        some = channels - c;
        some = some < to->run - a % to->run ? some : to->run - a % to->run;
        some = some < from->run - b % from->run ? some : from->run - b % from->run;
        for (size_t i = 0; i < some; i++)
            out[i] = (add ? out[i] : 0) + in[i];
    }
}

/* Zeros in the same order. */
static void pixel_clear(float *y, const struct runs *to, size_t first, size_t channels)
{
    for (size_t c = first; c < first + channels; c++)
        y[c / to->run * to->apart + c % to->run] = 0;
}

static const size_t nowhere[AXES];

/* A message is a tensor of its box alone. */
static struct box_view message_view(float *message, const size_t count[AXES])
{
    const size_t channels = count[AXIS_CHANNELS], pixels = count[AXIS_ROWS] * count[AXIS_COLUMNS];
    return (struct box_view){
        .at = message,
        .width = count[AXIS_COLUMNS],
        .runs = {.run = channels, .pixel = channels, .image = pixels * channels},
        .from = nowhere};
}

/* The first channel of the box's pixel 0 in a row of an image, counted in the box. */
static float *row_at(const struct box_view *view, size_t n, size_t i)
{
    const size_t row = view->from[AXIS_ROWS] + i;
    return view->at + (view->from[AXIS_IMAGES] + n) * view->runs.image +
           (row * view->width + view->from[AXIS_COLUMNS]) * view->runs.pixel;
}

static void boxes_clear(const struct box_copy *copy, const struct box_view *to)
{
    const size_t *count = copy->count;
    for (size_t n = 0; n < count[AXIS_IMAGES]; n++)
        for (size_t i = 0; i < count[AXIS_ROWS]; i++)
            for (size_t j = 0; j < count[AXIS_COLUMNS]; j++)
                pixel_clear(row_at(to, n, i) + j * to->runs.pixel, &to->runs,
                            to->from[AXIS_CHANNELS], count[AXIS_CHANNELS]);
}

void boxes_copy(const struct box_copy *copy, struct box_view from, struct box_view to)
{
    const size_t *count = copy->count, channels = count[AXIS_CHANNELS];
    if (copy->from.message)
        from = message_view(copy->from.message, count);
    if (copy->to.message)
        to = message_view(copy->to.message, count);
    if (copy->zero) {
        boxes_clear(copy, &to);
        return;
    }
#pragma omp parallel for collapse(                                                                 \
    2) if (count[AXIS_IMAGES] * count[AXIS_ROWS] * count[AXIS_COLUMNS] * channels > THREADS_SHARE)
    for (size_t n = 0; n < count[AXIS_IMAGES]; n++)
        for (size_t i = 0; i < count[AXIS_ROWS]; i++)
            for (size_t j = 0; j < count[AXIS_COLUMNS]; j++)
                pixel_copy(row_at(&to, n, i) + j * to.runs.pixel, &to.runs, to.from[AXIS_CHANNELS],
                           row_at(&from, n, i) + j * from.runs.pixel, &from.runs,
                           from.from[AXIS_CHANNELS], channels, copy->add);
}
