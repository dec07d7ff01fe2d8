/* The trainer's own kernels against plain loops in float64, in three types, over shapes with odd
 * numbers of rows, padded channels, one block and many. Prints every difference and goes on. */
#include "tests/gpu/train/check.h"

#include "train/base/random.h"
#include "train/kernels/cuda/launch.h"
#include "train/kernels/kernels.h"

#include <math.h>
#include <string.h>

static const int types[] = {ALNICO_FLOAT32, ALNICO_BFLOAT16, ALNICO_FLOAT16};
static struct train_gpu gpu;
static uint64_t state;
static char what[160];

static const char *say(const char *kernel, int type, const char *shape, const char *part)
{
    snprintf(what, sizeof what, "%s, %s, %s: %s", kernel, type_name(type), shape, part);
    return what;
}

/* ---- Batch norm ---- */

struct norm_case {
    size_t rows;
    unsigned channels;
};
static const struct norm_case norm_cases[] = {{1, 8},     {7, 3},      {36, 5},    {1000, 16},
                                              {777, 24},  {4999, 64},  {613, 200}, {70000, 64},
                                              {98, 2048}, {3136, 512}, {20001, 40}};

/* One batch norm with all that it needs. */
struct norm_bench {
    struct vector x, scale, shift, running, numbers, scale_diff, shift_diff;
    struct train_norm norm;
    double *mean, *inverse; /* expected */
};

static struct norm_bench bench_make(const struct norm_case *c, int type, double middle)
{
    const unsigned padded = (c->channels + 7) / 8 * 8;
    struct norm_bench b = {.x = vector_padded(&state, c->rows, c->channels, padded, type, middle),
                           .scale = vector_random(c->channels, ALNICO_FLOAT32, &state, 1, 0.5),
                           .shift = vector_random(c->channels, ALNICO_FLOAT32, &state, 0, 0.5),
                           .running = vector_random(2 * c->channels, ALNICO_FLOAT32, &state, 2, 1),
                           .numbers = vector_poisoned(NORM_NUMBERS * padded, ALNICO_FLOAT32),
                           .scale_diff = vector_poisoned(c->channels, ALNICO_FLOAT32),
                           .shift_diff = vector_poisoned(c->channels, ALNICO_FLOAT32),
                           .mean = doubles(padded),
                           .inverse = doubles(padded)};
    b.norm = (struct train_norm){.x = b.x.gpu,
                                 .rows = c->rows,
                                 .channels = c->channels,
                                 .padded = padded,
                                 .scale = b.scale.gpu,
                                 .shift = b.shift.gpu,
                                 .running = b.running.gpu,
                                 .numbers = b.numbers.gpu,
                                 .scale_diff = b.scale_diff.gpu,
                                 .shift_diff = b.shift_diff.gpu,
                                 .type = type,
                                 .gradient_type = ALNICO_FLOAT32};
    return b;
}

static void bench_free(struct norm_bench *b)
{
    struct vector *const all[] = {&b->x,       &b->scale,      &b->shift,     &b->running,
                                  &b->numbers, &b->scale_diff, &b->shift_diff};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        vector_free(all[i]);
    free(b->mean);
    free(b->inverse);
}

/* Statistics, and the running ones after them. */
static void bench_measure(struct norm_bench *b, const char *shape)
{
    const struct train_norm *n = &b->norm;
    double *running = doubles(2 * n->channels);
    for (unsigned c = 0; c < n->channels; c++) {
        double sum = 0, squares = 0;
        for (size_t r = 0; r < n->rows; r++)
            sum += b->x.host[r * n->padded + c];
        b->mean[c] = sum / (double)n->rows;
        for (size_t r = 0; r < n->rows; r++)
            squares += pow(b->x.host[r * n->padded + c] - b->mean[c], 2);
        const double variance = squares / (double)n->rows;
        const double unbiased = squares / (double)(n->rows > 1 ? n->rows - 1 : 1);
        b->inverse[c] = 1 / sqrt(variance + 1e-5);
        running[c] = b->running.host[c] + 0.1 * (b->mean[c] - b->running.host[c]);
        running[n->channels + c] =
            b->running.host[n->channels + c] + 0.1 * (unbiased - b->running.host[n->channels + c]);
    }
    launched(gpu.stream, train_norm_statistics(&gpu, n), "train_norm_statistics");
    vector_get(&b->numbers);
    vector_get(&b->running);
    check_close(say("statistics", n->type, shape, "mean"), b->numbers.host, b->mean, n->channels,
                1e-5, 1e-5);
    check_close(say("statistics", n->type, shape, "inverse deviation"),
                b->numbers.host + NORM_INVERSE * n->padded, b->inverse, n->channels, 0, 1e-4);
    check_close(say("statistics", n->type, shape, "running"), b->running.host, running,
                2 * (size_t)n->channels, 1e-5, 1e-5);
    free(running);
}

/* The same from sums that were made before. */
static void bench_sums(struct norm_bench *b, const char *shape)
{
    const struct train_norm *n = &b->norm;
    struct vector sums = vector_make(2 * n->padded, ALNICO_FLOAT32);
    double *running = doubles(2 * n->channels);
    for (unsigned c = 0; c < n->channels; c++) {
        const double variance = pow(b->inverse[c], -2) - 1e-5, rows = (double)n->rows;
        const double unbiased = variance * rows / (rows > 1 ? rows - 1 : 1);
        const float *before = b->running.host + c;
        sums.host[c] = (float)(b->mean[c] * rows);
        sums.host[n->padded + c] = (float)((variance + b->mean[c] * b->mean[c]) * rows);
        running[c] = before[0] + 0.1 * (b->mean[c] - before[0]);
        running[n->channels + c] = before[n->channels] + 0.1 * (unbiased - before[n->channels]);
    }
    vector_put(&sums);
    launched(gpu.stream, train_norm_measure(&gpu, n, sums.gpu, (float *)sums.gpu + n->padded),
             "train_norm_measure");
    vector_get(&b->numbers);
    vector_get(&b->running);
    check_close(say("measure", n->type, shape, "mean"), b->numbers.host, b->mean, n->channels, 1e-5,
                1e-5);
    for (unsigned c = 0; c < n->channels && n->rows > 1;
         c++) { /* of one row there is no variance */
        const float *inverse = b->numbers.host + NORM_INVERSE * n->padded + c;
        check_close(say("measure", n->type, shape, "inverse deviation"), inverse, &b->inverse[c], 1,
                    0, 1e-4);
    }
    check_close(say("measure", n->type, shape, "running"), b->running.host, running,
                2 * (size_t)n->channels, 1e-4, 1e-4);
    vector_free(&sums);
    free(running);
}

/* With the GPU's factor and offset, and rounded as there: the comparison is of the pass alone. */
static float normalised(const struct norm_bench *b, size_t i)
{
    const unsigned c = (unsigned)(i % b->norm.padded);
    return fmaf(b->x.host[i], b->numbers.host[NORM_FACTOR * b->norm.padded + c],
                b->numbers.host[NORM_OFFSET * b->norm.padded + c]);
}

/* What is added: 0 nothing, 1 a tensor, 2 another batch norm. */
struct norm_pass {
    int other;
    bool relu, add, frozen;
    bool over; /* what backward makes is written over x and dy */
};
static const struct norm_pass norm_passes[] = {
    {0, false, false, false, false}, {0, true, false, false, false}, {0, true, true, true, false},
    {1, false, true, false, false},  {1, true, false, false, false}, {1, true, true, false, false},
    {2, false, false, false, false}, {2, true, false, false, false}, {2, true, true, true, false},
    {0, true, false, false, true},   {1, true, false, false, true},  {2, true, false, false, true}};

/* The gated gradient, x - mean etc. of one batch norm. */
static void expect_gradient(const struct norm_bench *b, const double *g, bool frozen, double *dx,
                            double *dscale, double *dshift)
{
    const struct train_norm *n = &b->norm;
    const double rows = (double)n->rows;
    for (unsigned c = 0; c < n->padded; c++) {
        double sum = 0, product = 0;
        if (c >= n->channels)
            continue;
        for (size_t i = c; i < n->rows * n->padded; i += n->padded) {
            sum += g[i];
            product += g[i] * (b->x.host[i] - b->mean[c]) * b->inverse[c];
        }
        dshift[c] = sum;
        dscale[c] = product;
        for (size_t i = c; i < n->rows * n->padded; i += n->padded) {
            const double normal = (b->x.host[i] - b->mean[c]) * b->inverse[c];
            const double away = frozen ? 0 : (sum + normal * product) / rows;
            dx[i] += (double)b->scale.host[c] * b->inverse[c] * (g[i] - away);
        }
    }
}

static double largest(const double *x, size_t count)
{
    double most = 0;
    for (size_t i = 0; i < count; i++)
        most = fmax(most, fabs(x[i]));
    return most;
}

/* The most that a gradient is multiplied with: differences of such products are exact to so much
 * only. */
static double steepest(const struct norm_bench *b)
{
    double most = 0;
    for (unsigned c = 0; c < b->norm.channels; c++)
        most = fmax(most, fabs(b->scale.host[c] * b->inverse[c]));
    return most;
}

/* The gradients of one batch norm. */
static void check_gradients(struct norm_bench *b, const double *g, struct vector *dx,
                            const double *before, const struct norm_pass *p, const char *shape)
{
    const struct train_norm *n = &b->norm;
    const size_t count = n->rows * n->padded;
    double *expected = doubles(count), *dscale = doubles(n->padded), *dshift = doubles(n->padded);
    for (size_t i = 0; i < count && p->add; i++)
        expected[i] = before[i];
    expect_gradient(b, g, p->frozen, expected, dscale, dshift);
    vector_get(dx);
    vector_get(&b->scale_diff);
    vector_get(&b->shift_diff);
    const double sums = 1e-6 * sqrt((double)n->rows) * 10 + 1e-5;
    check_close(say("norm backward", n->type, shape, "dshift"), b->shift_diff.host, dshift,
                n->channels, sums, 1e-5);
    check_close(say("norm backward", n->type, shape, "dscale"), b->scale_diff.host, dscale,
                n->channels, 4 * sums, 1e-4);
    check_close(say("norm backward", n->type, shape, "dx"), dx->host, expected, count,
                2e-6 * steepest(b) * largest(g, count) + 1e-6, 1.5 * type_epsilon(n->type) + 1e-5);
    free(expected);
    free(dscale);
    free(dshift);
}

static void vector_copy(struct vector *to, const struct vector *from)
{
    memcpy(to->host, from->host, from->count * sizeof *from->host);
    vector_put(to);
}

static void norm_pass_check(const struct norm_case *c, int type, const struct norm_pass *p)
{
    struct norm_bench a = bench_make(c, type, 3), b = bench_make(c, type, -1);
    const size_t count = a.x.count;
    char shape[100];
    snprintf(shape, sizeof shape, "%zu x %u, other %d, relu %d, add %d, frozen %d, over %d",
             c->rows, c->channels, p->other, p->relu, p->add, p->frozen, p->over);
    bench_measure(&a, shape);
    bench_measure(&b, shape);
    if (p == norm_passes)
        bench_sums(&a, shape);
    struct vector plain = vector_padded(&state, c->rows, c->channels, a.norm.padded, type, 0);
    struct vector dy = vector_padded(&state, c->rows, c->channels, a.norm.padded, type, 0.2);
    struct vector y = vector_poisoned(count, type);
    struct vector outs[3];
    double *before[3], *expected = doubles(count), *g = doubles(count);
    uint8_t *mask, *mask_host = calloc(count / 8 + 1, 1);
    GPU(cudaMalloc((void **)&mask, count / 8 + 1));
    GPU(cudaMemset(mask, 0x5a, count / 8 + 1));
    for (int k = 0; k < 3; k++) {
        outs[k] = vector_padded(&state, c->rows, c->channels, a.norm.padded, type, 0);
        before[k] = doubles(count);
        for (size_t i = 0; i < count; i++)
            before[k][i] = outs[k].host[i];
    }
    const bool masked = p->other && p->relu;
    const struct train_normalise forward = {.norm = &a.norm,
                                            .other = p->other == 2 ? &b.norm : NULL,
                                            .plain = p->other == 1 ? plain.gpu : NULL,
                                            .relu = p->relu,
                                            .y = y.gpu,
                                            .mask = masked ? mask : NULL};
    launched(gpu.stream, train_normalise(&gpu, &forward), "train_normalise");
    vector_get(&y);
    GPU(cudaMemcpy(mask_host, mask, count / 8, cudaMemcpyDeviceToHost));
    size_t flipped = 0;
    for (size_t i = 0; i < count; i++) {
        float value = normalised(&a, i);
        value += p->other == 1 ? plain.host[i] : p->other == 2 ? normalised(&b, i) : 0;
        const bool above = value > 0;
        const bool bit = masked ? mask_host[i / 8] >> i % 8 & 1 : above;
        flipped += bit != above;
        g[i] = !p->relu || bit ? dy.host[i] : 0;
        expected[i] = p->relu && !above ? 0 : (double)value;
    }
    check_close(say("normalise", type, shape, "y"), y.host, expected, count, 1e-5,
                type_epsilon(type));
    check_count++;
    if (flipped)
        check_fail("normalise, %s, %s: %zu bits of the mask are wrong", type_name(type), shape,
                   flipped);
    if (p->over) {
        vector_copy(&outs[0], &a.x);
        vector_copy(&outs[1], &b.x);
        vector_copy(&outs[2], &dy);
        a.norm.x = outs[0].gpu;
        b.norm.x = outs[1].gpu;
    }
    const struct train_norm_backward back = {.norm = &a.norm,
                                             .other = p->other == 2 ? &b.norm : NULL,
                                             .gate = !p->relu   ? NORM_GATE_NONE
                                                     : p->other ? NORM_GATE_MASK
                                                                : NORM_GATE_VALUE,
                                             .dy = p->over ? outs[2].gpu : dy.gpu,
                                             .mask = mask,
                                             .dx = outs[0].gpu,
                                             .dx_other = p->other == 2 ? outs[1].gpu : NULL,
                                             .dplain = p->other == 1 ? outs[2].gpu : NULL,
                                             .add = p->add,
                                             .add_other = p->add,
                                             .add_plain = p->add,
                                             .frozen = p->frozen};
    launched(gpu.stream, train_norm_reduce(&gpu, &back), "train_norm_reduce");
    launched(gpu.stream, train_norm_gradient(&gpu, &back), "train_norm_gradient");
    check_gradients(&a, g, &outs[0], before[0], p, shape);
    if (p->other == 2)
        check_gradients(&b, g, &outs[1], before[1], p, shape);
    if (p->other == 1) {
        vector_get(&outs[2]);
        for (size_t i = 0; i < count; i++)
            expected[i] = g[i] + (p->add ? before[2][i] : 0);
        check_close(say("norm backward", type, shape, "what was added"), outs[2].host, expected,
                    count, 1e-6, type_epsilon(type));
    }
    for (int k = 0; k < 3; k++) {
        vector_free(&outs[k]);
        free(before[k]);
    }
    vector_free(&plain);
    vector_free(&dy);
    vector_free(&y);
    bench_free(&a);
    bench_free(&b);
    free(expected);
    free(g);
    free(mask_host);
    GPU(cudaFree(mask));
}

static void check_norms(void)
{
    for (size_t t = 0; t < 3; t++)
        for (size_t c = 0; c < sizeof norm_cases / sizeof *norm_cases; c++)
            for (size_t p = 0; p < sizeof norm_passes / sizeof *norm_passes; p++)
                if (norm_cases[c].rows < 10000 || p % 3 == 1)
                    norm_pass_check(&norm_cases[c], types[t], &norm_passes[p]);
}

/* ---- Pooling ---- */

static const struct train_pool pool_cases[] = {{2, 7, 5, 4, 3, 8, 3, 3, 2, 1, 1, 0},
                                               {3, 6, 4, 3, 2, 16, 2, 2, 2, 0, 0, 0},
                                               {1, 56, 57, 28, 29, 64, 3, 3, 2, 1, 1, 0},
                                               {2, 7, 7, 1, 1, 2048, 7, 7, 1, 0, 0, 0},
                                               {2, 9, 8, 9, 8, 24, 5, 5, 1, 2, 2, 0},
                                               /* last windows reach over the end */
                                               {2, 8, 6, 4, 3, 16, 3, 3, 2, 0, 0, 0},
                                               {2, 112, 112, 56, 56, 64, 3, 3, 2, 0, 0, 0},
                                               {3, 9, 7, 3, 2, 8, 4, 4, 4, 1, 1, 0},
                                               /* rows begin within the image, columns do not */
                                               {2, 9, 5, 4, 3, 16, 3, 3, 2, 0, 1, 0},
                                               {2, 6, 7, 5, 5, 8, 3, 3, 1, 1, 0, 0}};

static size_t pool_in(const struct train_pool *p, size_t n, size_t i, size_t j)
{
    return ((n * p->height + i) * p->width + j) * p->padded;
}

/* Calls `visit` for every pixel under the window of output (n, i, j), channel c. */
static void pool_expect(const struct train_pool *p, bool max, const struct vector *x,
                        const struct vector *dy, double *y, double *dx, double *places)
{
    for (size_t out = 0; out < dy->count; out++) {
        const size_t c = out % p->padded, j = out / p->padded % p->out_width,
                     i = out / p->padded / p->out_width % p->out_height,
                     n = out / p->padded / p->out_width / p->out_height;
        size_t covered[256], count = 0, best = 0;
        for (unsigned r = 0; r < p->rows; r++)
            for (unsigned k = 0; k < p->columns; k++) {
                const size_t row = i * p->stride + r - p->pad_rows,
                             column = j * p->stride + k - p->pad_columns;
                if (row >= p->height || column >= p->width)
                    continue;
                covered[count] = pool_in(p, n, row, column) + c;
                if (count == 0 || x->host[covered[count]] > x->host[best]) {
                    best = covered[count];
                    places[out] = r * p->columns + k;
                }
                count++;
            }
        y[out] = max ? (double)x->host[best] : 0;
        for (size_t k = 0; k < count && !max; k++) {
            y[out] += x->host[covered[k]] / (double)count;
            dx[covered[k]] += dy->host[out] / (double)count;
        }
        if (max)
            dx[best] += dy->host[out];
    }
}

static void pool_check(struct train_pool p, int type, bool max, bool add)
{
    const size_t ins = p.batch * p.height * p.width * p.padded;
    const size_t outs = p.batch * p.out_height * p.out_width * p.padded;
    char shape[100];
    snprintf(shape, sizeof shape, "%s %zux%zux%u window %u stride %u pad %ux%u add %d",
             max ? "max" : "average", p.height, p.width, p.padded, p.rows, p.stride, p.pad_rows,
             p.pad_columns, add);
    p.type = type;
    struct vector x = vector_random(ins, type, &state, 0, 1);
    struct vector dy = vector_random(outs, type, &state, 0, 1);
    struct vector dx = vector_random(ins, type, &state, 0, 1), y = vector_poisoned(outs, type);
    double *y_expected = doubles(outs), *dx_expected = doubles(ins), *places = doubles(outs);
    uint8_t *index, *host = calloc(outs + 1, 1);
    GPU(cudaMalloc((void **)&index, outs + 1));
    for (size_t i = 0; i < ins && add; i++)
        dx_expected[i] = dx.host[i];
    pool_expect(&p, max, &x, &dy, y_expected, dx_expected, places);
    launched(gpu.stream, train_pool(&gpu, &p, y.gpu, max ? index : NULL, x.gpu), "pooling");
    launched(gpu.stream, train_pool_gradient(&gpu, &p, dx.gpu, dy.gpu, max ? index : NULL, add),
             "pooling backward");
    vector_get(&y);
    vector_get(&dx);
    check_close(say("pool", type, shape, "y"), y.host, y_expected, outs, 1e-6, type_epsilon(type));
    check_close(say("pool", type, shape, "dx"), dx.host, dx_expected, ins, 1e-5,
                type_epsilon(type));
    GPU(cudaMemcpy(host, index, outs, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < outs && max; i++)
        y.host[i] = host[i];
    if (max)
        check_close(say("pool", type, shape, "index"), y.host, places, outs, 0, 0);
    vector_free(&x);
    vector_free(&y);
    vector_free(&dx);
    vector_free(&dy);
    free(y_expected);
    free(dx_expected);
    free(places);
    free(host);
    GPU(cudaFree(index));
}

static void check_pools(void)
{
    for (size_t t = 0; t < 3; t++)
        for (size_t c = 0; c < sizeof pool_cases / sizeof *pool_cases; c++)
            for (int k = 0; k < 4; k++)
                pool_check(pool_cases[c], types[t], k & 1, k & 2);
}

/* ---- Batch norm and pooling in one ---- */

/* What a pass should leave: of each window its y, its winner's place and x; of each pixel its gated
 * gradient. */
struct windows {
    double *y, *places, *winners, *g;
};

static void windows_expect(const struct norm_bench *b, const struct train_pool *p,
                           const struct vector *dy, struct windows *out)
{
    for (size_t o = 0; o < dy->count; o++) {
        const size_t c = o % p->padded, j = o / p->padded % p->out_width,
                     i = o / p->padded / p->out_width % p->out_height,
                     n = o / p->padded / p->out_width / p->out_height;
        size_t best = SIZE_MAX;
        for (unsigned place = 0; place < 9; place++) {
            const size_t row = 2 * i + place / 3 - 1, column = 2 * j + place % 3 - 1;
            const size_t at = pool_in(p, n, row, column) + c;
            if (row >= p->height || column >= p->width ||
                (best != SIZE_MAX && !(normalised(b, at) > normalised(b, best))))
                continue;
            best = at;
            out->places[o] = place;
        }
        out->winners[o] = b->x.host[best];
        out->y[o] = fmaxf(normalised(b, best), 0);
        if (out->y[o] > 0)
            out->g[best] += dy->host[o];
        else
            out->places[o] = 255;
    }
}

static void check_bytes(const char *part, const uint8_t *gpu_bytes, const double *expected,
                        size_t count, int type, const char *shape)
{
    uint8_t *bytes = malloc(count + 1);
    float *got = malloc((count + 1) * sizeof *got);
    GPU(cudaMemcpy(bytes, gpu_bytes, count, cudaMemcpyDeviceToHost));
    for (size_t i = 0; i < count; i++)
        got[i] = bytes[i];
    check_close(say("norm and pool", type, shape, part), got, expected, count, 0, 0);
    free(bytes);
    free(got);
}

/* Half of the scales are negative, so that the largest x does not always win, and one is 0. */
static void scales_turn(struct norm_bench *b)
{
    for (unsigned c = 1; c < b->norm.channels; c += 2)
        b->scale.host[c] = -b->scale.host[c];
    b->scale.host[b->norm.channels / 2] = 0;
    vector_put(&b->scale);
}

static void norm_pool_check(const struct train_pool *p, unsigned channels, int type, bool add,
                            bool frozen)
{
    const struct norm_case c = {p->batch * p->height * p->width, channels};
    const size_t outs = p->batch * p->out_height * p->out_width * p->padded;
    struct norm_bench b = bench_make(&c, type, 1);
    char shape[100];
    snprintf(shape, sizeof shape, "%zux%zux%zux%u, add %d, frozen %d", p->batch, p->height,
             p->width, channels, add, frozen);
    scales_turn(&b);
    bench_measure(&b, shape);
    struct vector dy = vector_padded(&state, p->batch * p->out_height * p->out_width, channels,
                                     p->padded, type, 0.2);
    struct vector dx = vector_padded(&state, c.rows, channels, p->padded, type, 0);
    struct vector y = vector_poisoned(outs, type), winners = vector_poisoned(outs, type);
    uint8_t *index, *mask;
    GPU(cudaMalloc((void **)&index, outs));
    GPU(cudaMalloc((void **)&mask, outs / 8));
    struct windows expected = {doubles(outs), doubles(outs), doubles(outs), doubles(dx.count)};
    double *before = doubles(dx.count), *bits = doubles(outs / 8);
    for (size_t i = 0; i < dx.count; i++)
        before[i] = dx.host[i];
    windows_expect(&b, p, &dy, &expected);
    for (size_t o = 0; o < outs; o++)
        bits[o / 8] += expected.y[o] > 0 ? 1 << o % 8 : 0;
    const struct train_norm_pool pass = {.norm = &b.norm,
                                         .height = p->height,
                                         .width = p->width,
                                         .y = y.gpu,
                                         .winners = winners.gpu,
                                         .index = index,
                                         .mask = mask,
                                         .dy = dy.gpu,
                                         .dx = dx.gpu,
                                         .add = add};
    launched(gpu.stream, train_norm_pool(&gpu, &pass), "train_norm_pool");
    vector_get(&y);
    vector_get(&winners);
    check_close(say("norm and pool", type, shape, "y"), y.host, expected.y, outs, 1e-6,
                type_epsilon(type));
    check_close(say("norm and pool", type, shape, "winners"), winners.host, expected.winners, outs,
                0, 0);
    check_bytes("index", index, expected.places, outs, type, shape);
    check_bytes("mask", mask, bits, outs / 8, type, shape);
    struct train_norm sums = b.norm;
    sums.x = winners.gpu;
    sums.rows = outs / p->padded;
    sums.count = c.rows;
    const struct train_norm_backward back = {
        .norm = &sums, .gate = NORM_GATE_MASK, .dy = dy.gpu, .mask = mask, .frozen = frozen};
    launched(gpu.stream, train_norm_reduce(&gpu, &back), "train_norm_reduce");
    launched(gpu.stream, train_norm_pool_gradient(&gpu, &pass), "train_norm_pool_gradient");
    check_gradients(&b, expected.g, &dx, before,
                    &(const struct norm_pass){.relu = true, .add = add, .frozen = frozen}, shape);
    struct vector *const all[] = {&dy, &dx, &y, &winners};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        vector_free(all[i]);
    bench_free(&b);
    double *const arrays[] = {expected.y, expected.places, expected.winners,
                              expected.g, before,          bits};
    for (size_t i = 0; i < sizeof arrays / sizeof *arrays; i++)
        free(arrays[i]);
    GPU(cudaFree(index));
    GPU(cudaFree(mask));
}

static void check_norm_pools(void)
{
    static const struct train_pool cases[] = {
        {.batch = 2, .height = 7, .width = 5, .out_height = 4, .out_width = 3, .padded = 8},
        {.batch = 3, .height = 6, .width = 8, .out_height = 3, .out_width = 4, .padded = 24},
        {.batch = 1, .height = 1, .width = 1, .out_height = 1, .out_width = 1, .padded = 16},
        {.batch = 3, .height = 57, .width = 56, .out_height = 29, .out_width = 28, .padded = 64},
        {.batch = 2, .height = 14, .width = 9, .out_height = 7, .out_width = 5, .padded = 512}};
    for (size_t t = 0; t < 3; t++)
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
            for (int k = 0; k < 3; k++)
                norm_pool_check(&cases[c], cases[c].padded - (k == 1 ? 3 : 0), types[t], k == 1,
                                k == 2);
}

/* ---- A maximum with a NaN ---- */

/* Whether channel `at` % padded of pixel `at` / padded is in the window of output `out`. */
static bool is_covered(const struct train_pool *p, size_t out, size_t at)
{
    const size_t j = out / p->padded % p->out_width,
                 i = out / p->padded / p->out_width % p->out_height,
                 n = out / p->padded / p->out_width / p->out_height;
    const size_t row = at / p->padded / p->width % p->height + p->pad_rows - i * p->stride,
                 column = at / p->padded % p->width + p->pad_columns - j * p->stride;
    return at % p->padded == out % p->padded && at / p->padded / p->width / p->height == n &&
           row < p->rows && column < p->columns;
}

/* One NaN after the other, wherever it stands in its windows, is what comes out of them. */
static void nan_pool_check(struct train_pool p, int type, bool norm)
{
    const size_t pixels = p.batch * p.height * p.width;
    const size_t outs = p.batch * p.out_height * p.out_width * p.padded;
    const struct norm_case c = {pixels, p.padded};
    struct norm_bench b = bench_make(&c, type, 0);
    struct vector y = vector_poisoned(outs, type), winners = vector_poisoned(outs, type);
    uint8_t *index, *mask;
    const char *name = norm ? "norm and pool" : "pool";
    GPU(cudaMalloc((void **)&index, outs));
    GPU(cudaMalloc((void **)&mask, outs / 8));
    bench_measure(&b, name);
    const struct train_norm_pool pass = {.norm = &b.norm,
                                         .height = p.height,
                                         .width = p.width,
                                         .y = y.gpu,
                                         .winners = winners.gpu,
                                         .index = index,
                                         .mask = mask};
    p.type = type;
    for (size_t i = 0; i < pixels; i++) {
        const size_t at = i * p.padded + i % p.padded;
        const float before = b.x.host[at];
        b.x.host[at] = NAN;
        vector_put(&b.x);
        launched(gpu.stream,
                 norm ? train_norm_pool(&gpu, &pass) : train_pool(&gpu, &p, y.gpu, index, b.x.gpu),
                 name);
        vector_get(&y);
        for (size_t o = 0; o < outs; o++)
            if (isnan(y.host[o]) != is_covered(&p, o, at)) {
                fprintf(stderr, "%s, type %d: NaN at %zu, and output %zu is %g\n", name, type, at,
                        o, (double)y.host[o]);
                exit(1);
            }
        b.x.host[at] = before;
    }
    vector_free(&y);
    vector_free(&winners);
    bench_free(&b);
    GPU(cudaFree(index));
    GPU(cudaFree(mask));
}

static void check_nans(void)
{
    static const struct train_pool p = {2, 7, 5, 4, 3, 8, 3, 3, 2, 1, 1, 0};
    for (size_t t = 0; t < 3; t++)
        for (int norm = 0; norm < 2; norm++)
            nan_pool_check(p, types[t], norm);
}

/* ---- Folds ---- */

static void fold_check(struct train_fold f, int type, int gradient_type)
{
    const size_t plain = f.outer * f.height * f.width * f.channels;
    const size_t folded = f.out_outer * f.out_height * f.out_width * f.padded;
    char shape[100];
    snprintf(shape, sizeof shape, "%zux%zux%zux%u fold %u before %ux%u to %zux%zux%zux%u", f.outer,
             f.height, f.width, f.channels, f.fold, f.before_rows, f.before_columns, f.out_outer,
             f.out_height, f.out_width, f.padded);
    f.type = type;
    struct vector src = vector_random(plain, ALNICO_FLOAT32, &state, 0, 1);
    struct vector dst = vector_poisoned(folded, type), back = vector_poisoned(plain, gradient_type);
    double *expected = doubles(folded), *same = doubles(plain);
    for (size_t i = 0; i < plain; i++) {
        const size_t c = i % f.channels, column = i / f.channels % f.width + f.before_columns;
        const size_t row = i / f.channels / f.width % f.height + f.before_rows;
        const size_t n = i / f.channels / f.width / f.height;
        const size_t square = row % f.fold * f.fold + column % f.fold;
        const size_t pixel = (n * f.out_height + row / f.fold) * f.out_width + column / f.fold;
        if (row / f.fold < f.out_height && column / f.fold < f.out_width)
            expected[pixel * f.padded + square * f.channels + c] = src.host[i];
        same[i] = round_to(src.host[i], type);
    }
    launched(gpu.stream, train_fold(&gpu, &f, dst.gpu, src.gpu), "train_fold");
    vector_get(&dst);
    check_close(say("fold", type, shape, "folded"), dst.host, expected, folded, 0x1p-25,
                type_epsilon(type));
    launched(gpu.stream, train_unfold(&gpu, &f, back.gpu, gradient_type, dst.gpu), "train_unfold");
    vector_get(&back);
    check_close(say("fold", type, shape, "and back"), back.host, same, plain, 0x1p-25,
                type_epsilon(gradient_type));
    vector_free(&src);
    vector_free(&dst);
    vector_free(&back);
    free(expected);
    free(same);
}

/* Images of bytes, each of which stands for a number. */
static void fold_bytes_check(struct train_fold f, int type)
{
    enum { LEVELS = 256 };
    const size_t plain = f.outer * f.height * f.width * f.channels;
    const size_t folded = f.out_outer * f.out_height * f.out_width * f.padded;
    char shape[100];
    snprintf(shape, sizeof shape, "bytes, fold %u to %zux%zux%u", f.fold, f.out_height, f.out_width,
             f.padded);
    struct vector levels = vector_random(LEVELS, ALNICO_FLOAT32, &state, 0, 2);
    struct vector src = vector_make(plain, ALNICO_FLOAT32), dst = vector_poisoned(folded, type);
    struct vector same = vector_poisoned(folded, type), bytes = vector_make(plain, ALNICO_FLOAT32);
    for (size_t i = 0; i < plain; i++) {
        const uint8_t byte = (uint8_t)random_next(&state);
        ((uint8_t *)bytes.host)[i] = byte;
        src.host[i] = levels.host[byte];
    }
    vector_put(&src);
    GPU(cudaMemcpy(bytes.gpu, bytes.host, plain, cudaMemcpyHostToDevice));
    f.type = type;
    launched(gpu.stream, train_fold(&gpu, &f, same.gpu, src.gpu), "train_fold");
    f.levels = levels.gpu;
    launched(gpu.stream, train_fold(&gpu, &f, dst.gpu, bytes.gpu), "train_fold of bytes");
    vector_get(&same);
    vector_get(&dst);
    check_count++;
    if (memcmp(same.host, dst.host, folded * sizeof(float)) != 0)
        check_fail("%s: not the same bits as of the numbers", say("fold", type, shape, "folded"));
    vector_free(&levels);
    vector_free(&src);
    vector_free(&bytes);
    vector_free(&same);
    vector_free(&dst);
}

static void check_folds(void)
{
    static const struct train_fold cases[] = {
        {1, 0, 0, 3, 8, 5, 7, 9, 5, 7, 9, 0, NULL},          /* images, padded */
        {2, 4, 4, 3, 16, 2, 224, 224, 2, 115, 115, 0, NULL}, /* ResNet's stem: images */
        {2, 1, 1, 3, 16, 64, 7, 7, 64, 4, 4, 0, NULL},       /* and weights */
        {1, 0, 0, 5, 8, 7, 3, 3, 8, 3, 3, 0, NULL},          /* weights, filters padded too */
        {3, 2, 2, 1, 16, 5, 8, 11, 5, 4, 5, 0, NULL},
        {4, 0, 0, 3, 48, 3, 227, 227, 3, 57, 57, 0, NULL},  /* AlexNet's images */
        {4, 0, 0, 3, 48, 96, 11, 11, 96, 3, 3, 0, NULL},    /* and weights */
        {2, 0, 4, 3, 16, 2, 117, 224, 2, 59, 115, 0, NULL}, /* rows of the stem's images */
        {2, 0, 1, 3, 16, 64, 7, 7, 64, 4, 4, 0, NULL},
    };
    for (size_t t = 0; t < 3; t++)
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
            for (size_t g = 0; g < 2; g++)
                fold_check(cases[c], types[t], g ? types[t] : ALNICO_FLOAT32);
    for (size_t t = 0; t < 3; t++)
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
            fold_bytes_check(cases[c], types[t]);
}

/* ---- Rows of windows as channels ---- */

static void rows_check(struct train_im2col r, int type)
{
    const size_t each = r.columns * r.padded, count = r.rows * r.out_width * each;
    char shape[100];
    snprintf(shape, sizeof shape, "%zux%zux%u by %u columns to %zu", r.rows, r.width, r.padded,
             r.columns, r.out_width);
    r.type = type;
    struct vector src = vector_random(r.rows * r.width * r.padded, type, &state, 0, 1);
    struct vector dst = vector_poisoned(count, type);
    double *expected = doubles(count);
    for (size_t i = 0; i < count; i++) {
        const size_t c = i % r.padded, d = i / r.padded % r.columns;
        const size_t x = i / each % r.out_width, row = i / each / r.out_width;
        expected[i] = src.host[(row * r.width + x + d) * r.padded + c];
    }
    launched(gpu.stream, train_im2col(&gpu, &r, dst.gpu, src.gpu), "train_im2col");
    vector_get(&dst);
    check_close(say("rows", type, shape, "expanded"), dst.host, expected, count, 0, 0);
    vector_free(&src);
    vector_free(&dst);
    free(expected);
}

static void check_rows(void)
{
    static const struct train_im2col cases[] = {
        {2 * 115, 115, 112, 4, 16, 0}, /* ResNet's stem */
        {3, 5, 4, 2, 8, 0},
        {1, 3, 1, 3, 24, 0},
        {7, 40, 6, 35, 32, 0},
        {5000, 9, 7, 3, 16, 0},
    };
    for (size_t t = 0; t < 3; t++)
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
            rows_check(cases[c], types[t]);
}

/* ---- Pixels spread ---- */

static void spread_check(struct train_strided s, int type, bool add)
{
    const size_t count = s.batch * s.height * s.width * s.padded;
    char shape[100];
    snprintf(shape, sizeof shape, "%zux%zux%zux%u to %zux%zu, stride %u%s", s.batch, s.out_height,
             s.out_width, s.padded, s.height, s.width, s.stride, add ? ", added" : "");
    s.type = type;
    struct vector src =
        vector_random(s.batch * s.out_height * s.out_width * s.padded, type, &state, 0, 1);
    struct vector dst =
        add ? vector_random(count, type, &state, 0, 1) : vector_poisoned(count, type);
    double *expected = doubles(count);
    for (size_t i = 0; i < count; i++) {
        const size_t c = i % s.padded, x = i / s.padded % s.width;
        const size_t y = i / s.padded / s.width % s.height, n = i / s.padded / s.width / s.height;
        const size_t from = (n * s.out_height + y / s.stride) * s.out_width + x / s.stride;
        expected[i] = add ? dst.host[i] : 0;
        if (x % s.stride == 0 && y % s.stride == 0)
            expected[i] += src.host[from * s.padded + c];
    }
    launched(gpu.stream, train_strided(&gpu, &s, dst.gpu, src.gpu, add), "train_strided");
    vector_get(&dst);
    check_close(say("spread", type, shape, "dx"), dst.host, expected, count, 0,
                add ? type_epsilon(type) : 0);
    vector_free(&src);
    vector_free(&dst);
    free(expected);
}

static void check_spread(void)
{
    static const struct train_strided cases[] = {
        {2, 56, 56, 28, 28, 2, 256, 0}, /* ResNet-50's second stage */
        {3, 7, 5, 4, 3, 2, 8, 0},       /* odd sides */
        {2, 8, 10, 3, 4, 3, 24, 0},     {1, 1, 1, 1, 1, 2, 40, 0},
        {700, 4, 4, 1, 1, 5, 16, 0}, /* more rows than blocks */
    };
    for (size_t t = 0; t < 3; t++)
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            spread_check(cases[c], types[t], false);
            spread_check(cases[c], types[t], true);
        }
}

/* ---- Additions ---- */

static void pointwise_check(int type, size_t rows, unsigned channels)
{
    const unsigned padded = (channels + 7) / 8 * 8;
    const size_t count = rows * padded;
    char shape[40];
    snprintf(shape, sizeof shape, "%zu x %u", rows, channels);
    struct vector a = vector_padded(&state, rows, channels, padded, type, 0),
                  b = vector_padded(&state, rows, channels, padded, type, 0),
                  y = vector_poisoned(count, type);
    double *expected = doubles(count);
    launched(gpu.stream, train_add(&gpu, y.gpu, a.gpu, b.gpu, true, count, type), "train_add");
    for (size_t i = 0; i < count; i++)
        expected[i] = fmax((double)a.host[i] + b.host[i], 0);
    vector_get(&y);
    check_close(say("add", type, shape, "y"), y.host, expected, count, 0, type_epsilon(type));
    launched(gpu.stream, train_gate(&gpu, b.gpu, a.gpu, y.gpu, true, count, type), "train_gate");
    for (size_t i = 0; i < count; i++)
        expected[i] = (double)b.host[i] + (y.host[i] > 0 ? (double)a.host[i] : 0);
    vector_get(&b);
    check_close(say("gate", type, shape, "dx"), b.host, expected, count, 1e-6, type_epsilon(type));
    vector_free(&a);
    vector_free(&b);
    vector_free(&y);
    free(expected);
}

/* ---- Biases, ReLUs, dropout ---- */

struct epilogue_case {
    size_t images;
    unsigned pixels, channels;
    bool bias, relu, drops, add;
    unsigned before, behind; /* channels of a tensor that the output stands in */
};
static const struct epilogue_case epilogue_cases[] = {
    {1, 1, 8, true, false, false, false, 0, 0},    {3, 7, 5, true, true, false, false, 0, 0},
    {40, 169, 72, true, true, true, false, 0, 0},  {300, 1, 4096, true, true, true, false, 0, 0},
    {2, 3025, 96, true, true, false, false, 0, 0}, {7, 5, 19, false, false, true, true, 0, 0},
    {64, 49, 512, false, true, false, true, 0, 0}, {5, 3, 1001, true, false, true, false, 0, 0},
    {4001, 1, 64, true, true, false, true, 0, 0},  {13, 49, 96, true, true, false, false, 64, 32},
    {5, 7, 16, false, true, true, true, 0, 8},     {300, 3, 24, true, true, false, false, 128, 0}};

/* What an element is multiplied with by the masks of layers/dropout.h. */
static double factor_of(const struct train_epilogue *pass, const struct draw *draw, size_t row,
                        unsigned c)
{
    struct dropout dropout = pass->dropout;
    dropout.draw = *draw;
    const uint64_t hash =
        dropout_hash(dropout_image(&dropout, row / pass->pixels), row % pass->pixels,
                     dropout_groups(pass->channels), c / DROPOUT_CHANNELS);
    return (double)dropout_factor(&dropout, hash, c);
}

/* The place of element i of a tensor of `padded` channels in one of more. */
static size_t place_in(const struct epilogue_case *c, unsigned padded, size_t i)
{
    return i / padded * (c->before + padded + c->behind) + c->before + i % padded;
}

/* The output, and backward its gradient, stand in other tensors, whose rest stays as it was. */
static void epilogue_check(const struct epilogue_case *c, int type)
{
    const unsigned padded = (c->channels + 7) / 8 * 8, pitch = c->before + padded + c->behind;
    const size_t rows = c->images * c->pixels, count = rows * padded;
    const size_t first = c->before * (type == ALNICO_FLOAT32 ? sizeof(float) : sizeof(uint16_t));
    const struct draw draw = {.step = 11, .image = 5};
    char shape[120];
    snprintf(shape, sizeof shape, "%zu x %u x %u, bias %d, relu %d, drops %d, add %d, pitch %u",
             c->images, c->pixels, c->channels, c->bias, c->relu, c->drops, c->add, pitch);
    struct vector x = vector_padded(&state, rows, c->channels, padded, type, 0.3),
                  y = vector_random(rows * pitch, type, &state, 0, 1),
                  dy = vector_random(rows * pitch, type, &state, 0.1, 1),
                  dx = vector_poisoned(count, type),
                  bias = vector_random(c->channels, ALNICO_FLOAT32, &state, 0, 1),
                  sums = vector_poisoned(c->channels, ALNICO_FLOAT32);
    double *expected = doubles(y.count), *columns = doubles(c->channels);
    struct draw *draw_gpu;
    GPU(cudaMalloc((void **)&draw_gpu, sizeof draw));
    GPU(cudaMemcpy(draw_gpu, &draw, sizeof draw, cudaMemcpyHostToDevice));
    const struct train_epilogue pass = {.x = x.gpu,
                                        .y = (char *)y.gpu + first,
                                        .pitch = pitch,
                                        .bias = c->bias ? bias.gpu : NULL,
                                        .relu = c->relu,
                                        .add = c->add,
                                        .draw = c->drops ? draw_gpu : NULL,
                                        .dropout = dropout_make(3, 2, 0.25f),
                                        .pixels = c->pixels,
                                        .rows = rows,
                                        .channels = c->channels,
                                        .padded = padded,
                                        .type = type};
    for (size_t i = 0; i < y.count; i++)
        expected[i] = (double)y.host[i];
    for (size_t i = 0; i < count; i++) {
        const unsigned k = (unsigned)(i % padded);
        double value = (double)x.host[i] + (c->bias && k < c->channels ? (double)bias.host[k] : 0);
        value = c->relu ? fmax(value, 0) : value;
        value *= c->drops ? factor_of(&pass, &draw, i / padded, k) : 1;
        expected[place_in(c, padded, i)] =
            value + (c->add ? (double)y.host[place_in(c, padded, i)] : 0);
    }
    launched(gpu.stream, train_epilogue(&gpu, &pass), "train_epilogue");
    vector_get(&y);
    check_close(say("epilogue", type, shape, "y"), y.host, expected, y.count, 1e-6,
                type_epsilon(type));
    const bool over = pitch == padded;
    const struct train_epilogue_backward back = {.dx = over ? dy.gpu : dx.gpu,
                                                 .dy = (char *)dy.gpu + first,
                                                 .y = c->relu ? pass.y : NULL,
                                                 .pitch = pitch,
                                                 .scale = 1.25f,
                                                 .bias_diff = c->bias ? sums.gpu : NULL,
                                                 .rows = rows,
                                                 .channels = c->channels,
                                                 .padded = padded,
                                                 .type = type,
                                                 .gradient_type = ALNICO_FLOAT32};
    for (size_t i = 0; i < count; i++) {
        const size_t at = place_in(c, padded, i);
        expected[i] = (double)dy.host[at];
        if (c->relu)
            expected[i] = y.host[at] > 0 ? 1.25 * (double)dy.host[at] : 0;
        if (i % padded < c->channels)
            columns[i % padded] += expected[i];
    }
    launched(gpu.stream, train_epilogue_backward(&gpu, &back), "train_epilogue_backward");
    vector_get(over ? &dy : &dx);
    check_close(say("epilogue", type, shape, "dx"), over ? dy.host : dx.host, expected, count, 1e-6,
                type_epsilon(type));
    vector_get(&sums);
    if (c->bias)
        check_close(say("epilogue", type, shape, "bias gradient"), sums.host, columns, c->channels,
                    1e-6 * sqrt((double)rows) + 1e-5, 1e-5);
    struct vector *const all[] = {&x, &y, &dy, &dx, &bias, &sums};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        vector_free(all[i]);
    free(expected);
    free(columns);
    GPU(cudaFree(draw_gpu));
}

static void check_epilogues(void)
{
    for (size_t t = 0; t < 3; t++)
        for (size_t c = 0; c < sizeof epilogue_cases / sizeof *epilogue_cases; c++)
            epilogue_check(&epilogue_cases[c], types[t]);
}

/* ---- Local response norm ---- */

/* The sum of `of` around channel c of a pixel. */
static double around(const struct train_local_norm *n, const double *of, unsigned c)
{
    const unsigned half = n->window / 2;
    double sum = 0;
    for (unsigned k = c > half ? c - half : 0; k <= c + half && k < n->padded; k++)
        sum += of[k];
    return sum;
}

static void local_norm_expect(const struct train_local_norm *n, const float *x, const float *dy,
                              double *y, double *dx)
{
    const double alpha = (double)n->alpha, beta = (double)n->beta;
    double *squares = doubles(n->padded), *bases = doubles(n->padded),
           *products = doubles(n->padded);
    for (unsigned c = 0; c < n->padded; c++)
        squares[c] = (double)x[c] * (double)x[c];
    for (unsigned c = 0; c < n->padded; c++) {
        bases[c] = (double)n->k + alpha * around(n, squares, c);
        y[c] = (double)x[c] * pow(bases[c], -beta);
        products[c] = (double)dy[c] * (double)x[c] * pow(bases[c], -beta - 1);
    }
    for (unsigned c = 0; c < n->padded; c++)
        dx[c] += (double)dy[c] * pow(bases[c], -beta) -
                 2 * alpha * beta * (double)x[c] * around(n, products, c);
    free(squares);
    free(bases);
    free(products);
}

static void local_norm_check(struct train_local_norm n, unsigned channels, int type, bool add)
{
    const size_t count = n.rows * n.padded;
    char shape[100];
    snprintf(shape, sizeof shape, "%zu x %u, window %u, beta %g, add %d", n.rows, channels,
             n.window, (double)n.beta, add);
    n.type = type;
    struct vector x = vector_padded(&state, n.rows, channels, n.padded, type, 0),
                  dy = vector_padded(&state, n.rows, channels, n.padded, type, 0),
                  dx = vector_padded(&state, n.rows, channels, n.padded, type, 0),
                  y = vector_poisoned(count, type);
    double *y_expected = doubles(count), *dx_expected = doubles(count);
    for (size_t i = 0; i < count && add; i++)
        dx_expected[i] = (double)dx.host[i];
    for (size_t i = 0; i < count; i += n.padded)
        local_norm_expect(&n, x.host + i, dy.host + i, y_expected + i, dx_expected + i);
    launched(gpu.stream, train_local_norm(&gpu, &n, y.gpu, x.gpu), "train_local_norm");
    launched(gpu.stream, train_local_norm_gradient(&gpu, &n, dx.gpu, dy.gpu, x.gpu, add),
             "train_local_norm_gradient");
    vector_get(&y);
    vector_get(&dx);
    check_close(say("local norm", type, shape, "y"), y.host, y_expected, count, 1e-6,
                type_epsilon(type) + 2e-6);
    check_close(say("local norm", type, shape, "dx"), dx.host, dx_expected, count, 5e-6,
                type_epsilon(type) + 5e-6);
    struct vector *const all[] = {&x, &y, &dy, &dx};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        vector_free(all[i]);
    free(y_expected);
    free(dx_expected);
}

static void check_local_norms(void)
{
    static const struct train_local_norm cases[] = {
        {1, 8, 1, 0.5f, 0.75f, 1, 0},      {37, 8, 3, 0.3f, 0.75f, 2, 0},
        {5000, 96, 5, 0.2f, 0.75f, 2, 0},  {777, 64, 5, 2e-5f, 0.75f, 1, 0},
        {311, 24, 7, 0.1f, 0.5f, 0.1f, 0}, {129, 192, 9, 0.4f, 1.5f, 1, 0}};
    for (size_t t = 0; t < 3; t++)
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++)
            local_norm_check(cases[c], cases[c].padded - (c % 2 ? 3 : 0), types[t], c % 3 == 1);
}

/* ---- Concatenation ---- */

/* Channels of up to TRAIN_PARTS parts; the third is not wanted backward, the second added to. */
static void concat_check(size_t rows, const unsigned *channels, unsigned parts, int type)
{
    struct vector part[TRAIN_PARTS], diff[TRAIN_PARTS];
    struct train_concat pass = {.parts = parts, .aligned = true, .rows = rows, .type = type};
    struct train_concat back;
    char shape[60];
    for (unsigned p = 0; p < parts; p++) {
        const unsigned padded = (channels[p] + 7) / 8 * 8;
        part[p] = vector_padded(&state, rows, channels[p], padded, type, 0);
        diff[p] = vector_padded(&state, rows, channels[p], padded, type, 0);
        pass.part[p] = (struct train_part){
            .at = part[p].gpu, .first = pass.channels, .channels = channels[p], .padded = padded};
        pass.channels += channels[p];
        pass.aligned &= channels[p] % 8 == 0;
    }
    pass.padded = (pass.channels + 7) / 8 * 8;
    back = pass;
    snprintf(shape, sizeof shape, "%zu rows, %u parts, %u channels", rows, parts, pass.channels);
    struct vector y = vector_poisoned(rows * pass.padded, type),
                  dy = vector_padded(&state, rows, pass.channels, pass.padded, type, 0);
    double *expected = doubles(y.count);
    for (unsigned p = 0; p < parts; p++)
        for (size_t i = 0; i < rows * channels[p]; i++) {
            const size_t row = i / channels[p], c = i % channels[p];
            expected[row * pass.padded + pass.part[p].first + c] =
                (double)part[p].host[row * pass.part[p].padded + c];
        }
    launched(gpu.stream, train_concat(&gpu, &pass, y.gpu), "train_concat");
    vector_get(&y);
    check_close(say("concat", type, shape, "y"), y.host, expected, y.count, 0, 0);
    for (unsigned p = 0; p < parts; p++) {
        back.part[p].at = p == 2 ? NULL : diff[p].gpu;
        back.part[p].add = p == 1;
    }
    launched(gpu.stream, train_split(&gpu, &back, dy.gpu), "train_split");
    for (unsigned p = 0; p < parts; p++) {
        double *slopes = doubles(diff[p].count);
        for (size_t i = 0; i < diff[p].count; i++) {
            const size_t row = i / back.part[p].padded, c = i % back.part[p].padded;
            slopes[i] = p == 1 || p == 2 ? (double)diff[p].host[i] : 0;
            if (c < channels[p] && p != 2)
                slopes[i] += (double)dy.host[row * pass.padded + back.part[p].first + c];
        }
        vector_get(&diff[p]);
        check_close(say("concat", type, shape, "dx"), diff[p].host, slopes, diff[p].count, 1e-7,
                    type_epsilon(type));
        vector_free(&part[p]);
        vector_free(&diff[p]);
        free(slopes);
    }
    vector_free(&y);
    vector_free(&dy);
    free(expected);
}

static void check_concats(void)
{
    static const unsigned cases[][TRAIN_PARTS] = {
        {64, 128, 32, 32}, {3, 16, 5}, {8}, {1, 1, 1, 1, 1, 1, 1, 1}, {24, 7}};
    for (size_t t = 0; t < 3; t++)
        for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
            unsigned parts = 0;
            while (parts < TRAIN_PARTS && cases[c][parts])
                parts++;
            concat_check(c == 0 ? 3 * 784 : 77, cases[c], parts, types[t]);
        }
}

static void check_small(void)
{
    for (size_t t = 0; t < 3; t++) {
        pointwise_check(types[t], 3, 5);
        pointwise_check(types[t], 4001, 72);
    }
}

int main(void)
{
    gpu_require(1);
    gpu = check_gpu();
    state = 2026;
    int (*const loads[])(void) = {
        train_norm_load,       train_norm_backward_load, train_norm_pool_load, train_pointwise_load,
        train_pool_load,       train_loss_load,          train_update_load,    train_epilogue_load,
        train_local_norm_load, train_concat_load};
    for (size_t i = 0; i < sizeof loads / sizeof *loads; i++)
        launched(gpu.stream, loads[i](), "loading kernels");
    check_small();
    check_epilogues();
    check_local_norms();
    check_concats();
    check_folds();
    check_pools();
    check_norm_pools();
    check_nans();
    check_norms();
    check_rows();
    check_spread();
    return check_result("train kernels");
}
