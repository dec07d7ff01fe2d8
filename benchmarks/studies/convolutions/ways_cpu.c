/* The ways of ways.h on the CPU, one thread. */
#include "benchmarks/studies/convolutions/ways.h"

#include "benchmarks/studies/convolutions/winograd.h"
#include "benchmarks/studies/study.h"

#include <cblas.h>
#include <complex.h>
#include <fftw3.h>
#include <stdlib.h>
#include <string.h>

struct way_memory {
    struct shape shape;
    float *columns; /* im2col: channels x window^2 rows of pixels */
    /* FFT: planes of rows x columns numbers, and of rows x half complex ones, of x of an image, of w,
     * of y of an image. */
    size_t rows, half;
    float *plane;
    float complex *x, *w, *y;
    fftwf_plan forward, backward;
    /* Winograd: u: products x filters x channels, v: products x channels x tiles, m: products x
     * filters x tiles. */
    size_t tiles_a_side;
    float *u, *v, *m;
};

static size_t pixels_of(const struct shape *s)
{
    return s->side * s->side;
}

static struct way_memory *memory_make(const struct shape *shape)
{
    struct way_memory *memory = study_memory(sizeof *memory);
    memory->shape = *shape;
    return memory;
}

/* A pixel of a channel of an image; 0 outside. */
static float pixel(const float *plane, size_t side, ptrdiff_t row, ptrdiff_t column)
{
    const ptrdiff_t end = (ptrdiff_t)side;
    return row < 0 || column < 0 || row >= end || column >= end
               ? 0
               : plane[(size_t)row * side + (size_t)column];
}

double convolution_exact(const struct shape *s, const float *x, const float *w, size_t place)
{
    const size_t pixels = pixels_of(s), image = place / (s->filters * pixels),
                 filter = place / pixels % s->filters;
    const ptrdiff_t pad = (ptrdiff_t)(s->window / 2), row = (ptrdiff_t)(place % pixels / s->side),
                    column = (ptrdiff_t)(place % s->side);
    double sum = 0;
    for (size_t c = 0; c < s->channels; c++) {
        const float *plane = x + (image * s->channels + c) * pixels,
                    *kernel = w + (filter * s->channels + c) * s->window * s->window;
        for (size_t i = 0; i < s->window * s->window; i++)
            sum += (double)kernel[i] * pixel(plane, s->side, row + (ptrdiff_t)(i / s->window) - pad,
                                             column + (ptrdiff_t)(i % s->window) - pad);
    }
    return sum;
}

/* ---- A product of matrices ---- */

static struct way_memory *im2col_open(const struct study_device *device, const struct shape *s)
{
    (void)device;
    struct way_memory *memory = memory_make(s);
    memory->columns =
        study_memory(s->channels * s->window * s->window * pixels_of(s) * sizeof(float));
    return memory;
}

static void im2col_close(struct way_memory *memory)
{
    free(memory->columns);
    free(memory);
}

/* The plane, moved by (down, right), zeros where nothing of it is. */
static void plane_move(float *to, const float *plane, size_t side, ptrdiff_t down, ptrdiff_t right)
{
    const ptrdiff_t end = (ptrdiff_t)side, from = right < 0 ? -right : 0,
                    until = right > 0 ? end - right : end;
    memset(to, 0, side * side * sizeof *to);
    for (ptrdiff_t row = 0; row < end; row++)
        if (row + down >= 0 && row + down < end && until > from)
            memcpy(to + row * end + from, plane + (row + down) * end + from + right,
                   (size_t)(until - from) * sizeof *to);
}

static void im2col_run(struct way_memory *memory, const float *x, const float *w, float *y)
{
    const struct shape *s = &memory->shape;
    const size_t pixels = pixels_of(s), window = s->window * s->window,
                 depth = s->channels * window;
    const ptrdiff_t pad = (ptrdiff_t)(s->window / 2);
    for (size_t image = 0; image < s->images; image++) {
        for (size_t i = 0; i < depth; i++)
            plane_move(memory->columns + i * pixels,
                       x + (image * s->channels + i / window) * pixels, s->side,
                       (ptrdiff_t)(i % window / s->window) - pad, (ptrdiff_t)(i % s->window) - pad);
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)s->filters, (int)pixels,
                    (int)depth, 1, w, (int)depth, memory->columns, (int)pixels, 0,
                    y + image * s->filters * pixels, (int)pixels);
    }
}

/* ---- Transforms ---- */

size_t convolution_fft_side(const struct shape *s)
{
    for (size_t side = s->side + s->window / 2;; side++) {
        size_t rest = side;
        for (size_t prime = 2; prime <= 5; prime++)
            while (rest % prime == 0)
                rest /= prime;
        if (rest == 1)
            return side;
    }
}

static float complex *spectra(const struct way_memory *memory, size_t count)
{
    float complex *out = fftwf_alloc_complex(count * memory->rows * memory->half);
    if (!out)
        program_fail("no memory for %zu transforms", count);
    return out;
}

static struct way_memory *fft_open(const struct study_device *device, const struct shape *s)
{
    (void)device;
    struct way_memory *memory = memory_make(s);
    memory->rows = convolution_fft_side(s);
    memory->half = memory->rows / 2 + 1;
    memory->plane = fftwf_alloc_real(memory->rows * memory->rows);
    memory->x = spectra(memory, s->channels);
    memory->w = spectra(memory, s->channels * s->filters);
    memory->y = spectra(memory, 1);
    const int rows = (int)memory->rows;
    memory->forward =
        fftwf_plan_dft_r2c_2d(rows, rows, memory->plane, (fftwf_complex *)memory->y, FFTW_MEASURE);
    memory->backward =
        fftwf_plan_dft_c2r_2d(rows, rows, (fftwf_complex *)memory->y, memory->plane, FFTW_MEASURE);
    if (!memory->plane || !memory->forward || !memory->backward)
        program_fail("FFTW has no plan for %d x %d", rows, rows);
    return memory;
}

static void fft_close(struct way_memory *memory)
{
    fftwf_destroy_plan(memory->forward);
    fftwf_destroy_plan(memory->backward);
    fftwf_free(memory->plane);
    fftwf_free(memory->x);
    fftwf_free(memory->w);
    fftwf_free(memory->y);
    free(memory);
}

/* Transforms a plane that stands at (0, 0), or a window whose middle does, around the edges. */
static void transform(const struct way_memory *memory, const float *from, size_t side,
                      size_t middle, float complex *to)
{
    const size_t rows = memory->rows;
    memset(memory->plane, 0, rows * rows * sizeof *memory->plane);
    for (size_t i = 0; i < side * side; i++)
        memory
            ->plane[(i / side + rows - middle) % rows * rows + (i % side + rows - middle) % rows] =
            from[i];
    fftwf_execute_dft_r2c(memory->forward, memory->plane, (fftwf_complex *)to);
}

/* y += x conj(w): a correlation. By parts: compilers call a function for complex products. */
static void spectrum_add(float *restrict y, const float *restrict x, const float *restrict w,
                         size_t count)
{
    for (size_t i = 0; i < 2 * count; i += 2) {
        y[i] += x[i] * w[i] + x[i + 1] * w[i + 1];
        y[i + 1] += x[i + 1] * w[i] - x[i] * w[i + 1];
    }
}

static void fft_image(struct way_memory *memory, const float *x, float *y)
{
    const struct shape *s = &memory->shape;
    const size_t count = memory->rows * memory->half, pixels = pixels_of(s);
    const float share = 1 / (float)(memory->rows * memory->rows);
    for (size_t c = 0; c < s->channels; c++)
        transform(memory, x + c * pixels, s->side, 0, memory->x + c * count);
    for (size_t f = 0; f < s->filters; f++) {
        memset(memory->y, 0, count * sizeof *memory->y);
        for (size_t c = 0; c < s->channels; c++)
            spectrum_add((float *)memory->y, (const float *)(memory->x + c * count),
                         (const float *)(memory->w + (f * s->channels + c) * count), count);
        fftwf_execute(memory->backward);
        for (size_t i = 0; i < pixels; i++)
            y[f * pixels + i] = memory->plane[i / s->side * memory->rows + i % s->side] * share;
    }
}

static void fft_run(struct way_memory *memory, const float *x, const float *w, float *y)
{
    const struct shape *s = &memory->shape;
    for (size_t i = 0; i < s->filters * s->channels; i++)
        transform(memory, w + i * s->window * s->window, s->window, s->window / 2,
                  memory->w + i * memory->rows * memory->half);
    for (size_t image = 0; image < s->images; image++)
        fft_image(memory, x + image * s->channels * pixels_of(s),
                  y + image * s->filters * pixels_of(s));
}

/* ---- Winograd ---- */

static struct way_memory *winograd_open(const struct study_device *device, const struct shape *s)
{
    (void)device;
    struct way_memory *memory = memory_make(s);
    const size_t side = memory->tiles_a_side = (s->side + 1) / 2,
                 each = WINOGRAD_PRODUCTS * sizeof(float);
    memory->u = study_memory(s->filters * s->channels * each);
    memory->v = study_memory(s->channels * side * side * each);
    memory->m = study_memory(s->filters * side * side * each);
    return memory;
}

static void winograd_close(struct way_memory *memory)
{
    free(memory->u);
    free(memory->v);
    free(memory->m);
    free(memory);
}

static void weights_transform(struct way_memory *memory, const float *w)
{
    const size_t count = memory->shape.filters * memory->shape.channels;
    for (size_t i = 0; i < count; i++) {
        float all[WINOGRAD_PRODUCTS];
        winograd_weights(w + 9 * i, all);
        for (size_t k = 0; k < WINOGRAD_PRODUCTS; k++)
            memory->u[k * count + i] = all[k];
    }
}

static void pixels_transform(struct way_memory *memory, const float *x)
{
    const size_t side = memory->tiles_a_side, tiles = side * side,
                 count = memory->shape.channels * tiles;
    for (size_t i = 0; i < count; i++) {
        const float *plane = x + i / tiles * pixels_of(&memory->shape);
        const ptrdiff_t row = 2 * (ptrdiff_t)(i % tiles / side) - 1,
                        column = 2 * (ptrdiff_t)(i % side) - 1;
        float d[16], all[WINOGRAD_PRODUCTS];
        for (ptrdiff_t k = 0; k < 16; k++)
            d[k] = pixel(plane, memory->shape.side, row + k / 4, column + k % 4);
        winograd_pixels(d, all);
        for (size_t k = 0; k < WINOGRAD_PRODUCTS; k++)
            memory->v[k * count + i] = all[k];
    }
}

static void results_transform(const struct way_memory *memory, float *y)
{
    const size_t side = memory->tiles_a_side, tiles = side * side, image = memory->shape.side,
                 count = memory->shape.filters * tiles;
    for (size_t i = 0; i < count; i++) {
        float *plane = y + i / tiles * pixels_of(&memory->shape), all[WINOGRAD_PRODUCTS], out[4];
        const size_t row = 2 * (i % tiles / side), column = 2 * (i % side);
        for (size_t k = 0; k < WINOGRAD_PRODUCTS; k++)
            all[k] = memory->m[k * count + i];
        winograd_results(all, out);
        for (size_t k = 0; k < 4; k++)
            if (row + k / 2 < image && column + k % 2 < image)
                plane[(row + k / 2) * image + column + k % 2] = out[k];
    }
}

static void winograd_run(struct way_memory *memory, const float *x, const float *w, float *y)
{
    const struct shape *s = &memory->shape;
    const size_t tiles = memory->tiles_a_side * memory->tiles_a_side;
    weights_transform(memory, w);
    for (size_t image = 0; image < s->images; image++) {
        pixels_transform(memory, x + image * s->channels * pixels_of(s));
        for (size_t k = 0; k < WINOGRAD_PRODUCTS; k++)
            cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasNoTrans, (int)s->filters, (int)tiles,
                        (int)s->channels, 1, memory->u + k * s->filters * s->channels,
                        (int)s->channels, memory->v + k * s->channels * tiles, (int)tiles, 0,
                        memory->m + k * s->filters * tiles, (int)tiles);
        results_transform(memory, y + image * s->filters * pixels_of(s));
    }
}

const struct convolution_way convolution_ways_cpu[CONVOLUTION_WAYS] = {
    {.name = "im2col", .open = im2col_open, .close = im2col_close, .run = im2col_run},
    {.name = "FFT", .open = fft_open, .close = fft_close, .run = fft_run},
    {.name = "Winograd",
     .window = 3,
     .open = winograd_open,
     .close = winograd_close,
     .run = winograd_run}};
