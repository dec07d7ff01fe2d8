/* See kernels/boxes.h. */
#include "train/kernels/boxes.h"

#include "base/vectorised.h"
#include "train/base/threads.h"

/* A run of channels of some pixels; numbers from one pixel to the next. */
struct stretch {
    float *y;
    const float *x;
    size_t to, from, pixels;
};

__attribute__((always_inline)) static inline void stretch_add(struct stretch s, size_t channels,
                                                              bool add)
{
    for (size_t p = 0; p < s.pixels; p++, s.y += s.to, s.x += s.from)
#pragma omp simd
        for (size_t c = 0; c < channels; c++)
            s.y[c] = add ? s.y[c] + s.x[c] : s.x[c];
}

/* Pixels that stand side by side are one; the loops of a cache line have constants for bounds. */
VECTORISED static void stretch_copy(struct stretch s, size_t channels, bool add)
{
    if (s.to == channels && s.from == channels) {
        channels *= s.pixels;
        s.pixels = 1;
    }
    if (channels == THREADS_LINE && add)
        stretch_add(s, THREADS_LINE, true);
    else if (channels == THREADS_LINE)
        stretch_add(s, THREADS_LINE, false);
    else
        stretch_add(s, channels, add);
}

void pixels_copy(float *y, const struct runs *to, size_t first, const float *x,
                 const struct runs *from, size_t skip, size_t channels, size_t pixels, bool add)
{
    for (size_t c = 0, some; c < channels; c += some) {
        const size_t a = first + c, b = skip + c;
        some = channels - c;
        some = some < to->run - a % to->run ? some : to->run - a % to->run;
        some = some < from->run - b % from->run ? some : from->run - b % from->run;
        const struct stretch stretch = {y + a / to->run * to->apart + a % to->run,
                                        x + b / from->run * from->apart + b % from->run, to->pixel,
                                        from->pixel, pixels};
        stretch_copy(stretch, some, add);
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

float *box_row(const struct box_view *view, size_t n, size_t i)
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
                pixel_clear(box_row(to, n, i) + j * to->runs.pixel, &to->runs,
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
    if (box_row(&to, 0, 0) == box_row(&from, 0, 0))
        return;
#pragma omp parallel for collapse(                                                                 \
    2) if (count[AXIS_IMAGES] * count[AXIS_ROWS] * count[AXIS_COLUMNS] * channels > THREADS_SHARE)
    for (size_t n = 0; n < count[AXIS_IMAGES]; n++)
        for (size_t i = 0; i < count[AXIS_ROWS]; i++)
            pixels_copy(box_row(&to, n, i), &to.runs, to.from[AXIS_CHANNELS], box_row(&from, n, i),
                        &from.runs, from.from[AXIS_CHANNELS], channels, count[AXIS_COLUMNS],
                        copy->add);
}
