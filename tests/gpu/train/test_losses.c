/* Losses, sigmoids and upsampling on a GPU against plain loops in float64, in three types: many
 * channels and few, many pixels, labels that are missing. Prints every difference and goes on. */
#include "tests/gpu/train/check.h"

#include "train/base/random.h"
#include "train/kernels/kernels.h"

#include <math.h>

static const int types[] = {ALNICO_FLOAT32, ALNICO_BFLOAT16, ALNICO_FLOAT16};
static struct train_gpu gpu;
static uint64_t state;
static char what[200];

static const char *say(const char *kernel, int type, const char *shape, const char *part)
{
    snprintf(what, sizeof what, "%s, %s, %s: %s", kernel, type_name(type), shape, part);
    return what;
}

static unsigned padded_of(unsigned channels)
{
    return (channels + 7) / 8 * 8;
}

/* ---- Losses ---- */

struct loss_case {
    enum train_loss_kind kind;
    size_t rows;
    unsigned channels;
    float smoothing, weight;
    bool add, scored;
};
static const struct loss_case loss_cases[] = {
    {LOSS_CROSS_ENTROPY, 5, 7, 0, 1, false, true},
    {LOSS_CROSS_ENTROPY, 64, 1000, 0.1f, 1, false, true},
    {LOSS_CROSS_ENTROPY, 300, 10, 0, 0.3f, true, true},
    {LOSS_CROSS_ENTROPY, 70001, 33, 0.2f, 1, false, true}, /* more rows than blocks */
    {LOSS_CROSS_ENTROPY, 700001, 2, 0, 1, false, true},    /* than threads */
    {LOSS_CROSS_ENTROPY, 65, 32, 0.1f, 2, true, false},
    {LOSS_SQUARED_ERROR, 7, 1, 0, 1, false, true},
    {LOSS_SQUARED_ERROR, 4001, 1, 0, 3, true, true},
    {LOSS_SQUARED_ERROR, 90, 12, 0.4f, 1, false, true}, /* it has no smoothing */
    {LOSS_SQUARED_ERROR, 90, 200, 0, 0.5f, false, true},
};

/* What is expected of a loss. */
struct loss_reference {
    double *value, *slopes, score[SCORES];
};

static double log_sum(const float *row, unsigned channels)
{
    double most = row[0], sum = 0;
    for (unsigned k = 0; k < channels; k++)
        most = fmax(most, (double)row[k]);
    for (unsigned k = 0; k < channels; k++)
        sum += exp((double)row[k] - most);
    return most + log(sum);
}

/* A row of the reference. dx: what the slopes are added to. */
static void row_expect(const struct loss_case *c, const float *x, int32_t label, const float *dx,
                       size_t n, struct loss_reference *r)
{
    const bool entropy = c->kind == LOSS_CROSS_ENTROPY;
    const double shift = entropy ? log_sum(x, c->channels) : 0, all = c->channels,
                 scale = 128 * (double)c->weight / (double)c->rows,
                 smoothing = entropy ? (double)c->smoothing : 0;
    double term = 0;
    unsigned best = 0;
    for (unsigned k = 0; k < c->channels; k++) {
        const double value = (double)x[k] - shift, hot = (unsigned)label == k;
        const double number = c->kind == LOSS_SQUARED_ERROR && c->channels == 1 ? label : hot;
        const double target = (1 - smoothing) * number + smoothing / all;
        const double slope = entropy ? exp(value) - target : 2 * (value - target) / all;
        best = x[k] > x[best] ? k : best;
        r->value[n * c->channels + k] = value;
        r->slopes[n * padded_of(c->channels) + k] =
            (label < 0 ? 0 : slope * scale) + (c->add ? (double)dx[k] : 0);
        term += entropy ? -target * value : (value - target) * (value - target) / all;
    }
    if (label < 0)
        return;
    r->score[SCORE_LOSS] += term;
    r->score[SCORE_CORRECT] +=
        !entropy && c->channels == 1 ? fabs((double)x[0] - label) < 0.5 : best == (unsigned)label;
    r->score[SCORE_TERMS]++;
}

static void loss_compare(const struct loss_case *c, int type, const struct train_loss *pass,
                         struct vector *x, struct vector *dx, struct vector *value,
                         const struct loss_reference *r)
{
    const double *score = r->score;
    double got[SCORES];
    char shape[120];
    snprintf(shape, sizeof shape, "kind %d, %zu rows of %u, smoothing %g, weight %g, add %d",
             (int)c->kind, c->rows, c->channels, (double)c->smoothing, (double)c->weight, c->add);
    launched(gpu.stream, train_loss_forward(&gpu, pass, x->gpu, type), "train_loss_forward");
    launched(gpu.stream, train_loss_backward(&gpu, pass, dx->gpu, type, c->add),
             "train_loss_backward");
    vector_get(value);
    vector_get(dx);
    check_close(say("loss", type, shape, "value"), value->host, r->value, value->count, 1e-4, 1e-5);
    check_close(say("loss", type, shape, "gradient"), dx->host, r->slopes, dx->count, 1e-4,
                type_epsilon(type) + 1e-4);
    if (!pass->score)
        return;
    GPU(cudaMemcpy(got, pass->score, sizeof got, cudaMemcpyDeviceToHost));
    const float narrow[SCORES] = {(float)got[0], (float)got[1], (float)got[2]};
    check_close(say("loss", type, shape, "loss, correct, labels"), narrow, score, SCORES, 0, 1e-5);
}

static void loss_check(const struct loss_case *c, int type)
{
    const unsigned padded = padded_of(c->channels);
    struct vector x = vector_random(c->rows * padded, type, &state, 0, 5),
                  dx = vector_padded(&state, c->rows, c->channels, padded, type, 0),
                  value = vector_poisoned(c->rows * c->channels, ALNICO_FLOAT32);
    struct loss_reference r = {.value = doubles(c->rows * c->channels),
                               .slopes = doubles(c->rows * padded),
                               .score = {10, 20, 30}};
    int32_t *labels = calloc(c->rows, sizeof *labels), *labels_gpu;
    double *score_gpu;
    GPU(cudaMalloc((void **)&labels_gpu, c->rows * sizeof *labels));
    GPU(cudaMalloc((void **)&score_gpu, sizeof r.score));
    GPU(cudaMemcpy(score_gpu, r.score, sizeof r.score, cudaMemcpyHostToDevice));
    for (size_t n = 0; n < c->rows; n++) {
        const unsigned classes = c->channels > 1 ? c->channels : 3;
        labels[n] = n % 5 == 3 ? -1 : (int32_t)(random_next(&state) % classes);
        row_expect(c, x.host + n * padded, labels[n], dx.host + n * padded, n, &r);
    }
    GPU(cudaMemcpy(labels_gpu, labels, c->rows * sizeof *labels, cudaMemcpyHostToDevice));
    const struct train_loss pass = {.kind = c->kind,
                                    .labels = labels_gpu,
                                    .value = value.gpu,
                                    .rows = c->rows,
                                    .channels = c->channels,
                                    .padded = padded,
                                    .smoothing = c->smoothing,
                                    .weight = c->weight,
                                    .terms = (float)c->rows,
                                    .score = c->scored ? score_gpu : NULL};
    loss_compare(c, type, &pass, &x, &dx, &value, &r);
    vector_free(&x);
    vector_free(&dx);
    vector_free(&value);
    free(r.value);
    free(r.slopes);
    free(labels);
    GPU(cudaFree(labels_gpu));
    GPU(cudaFree(score_gpu));
}

/* ---- Sigmoids ---- */

static void sigmoid_check(size_t rows, unsigned channels, int type)
{
    const unsigned padded = padded_of(channels);
    const size_t count = rows * padded;
    struct vector x = vector_padded(&state, rows, channels, padded, type, 0),
                  dx = vector_padded(&state, rows, channels, padded, type, 0),
                  dy = vector_padded(&state, rows, channels, padded, type, 0),
                  y = vector_poisoned(count, type);
    double *expected = doubles(count);
    char shape[40];
    snprintf(shape, sizeof shape, "%zu x %u", rows, channels);
    for (size_t i = 0; i < count; i++)
        expected[i] = i % padded < channels ? 1 / (1 + exp(-(double)x.host[i])) : 0;
    launched(gpu.stream, train_sigmoid(&gpu, y.gpu, x.gpu, rows, channels, padded, type),
             "train_sigmoid");
    vector_get(&y);
    check_close(say("sigmoid", type, shape, "y"), y.host, expected, count, 1e-6,
                type_epsilon(type));
    for (int add = 1; add >= 0; add--) {
        for (size_t i = 0; i < count; i++)
            expected[i] = (add ? (double)dx.host[i] : 0) +
                          (double)dy.host[i] * (double)y.host[i] * (1 - (double)y.host[i]);
        launched(gpu.stream, train_sigmoid_gradient(&gpu, dx.gpu, dy.gpu, y.gpu, add, count, type),
                 "train_sigmoid_gradient");
        vector_get(&dx);
        check_close(say("sigmoid", type, shape, add ? "dx, added" : "dx"), dx.host, expected, count,
                    1e-6, type_epsilon(type));
    }
    vector_free(&x);
    vector_free(&dx);
    vector_free(&dy);
    vector_free(&y);
    free(expected);
}

/* ---- Upsampling ---- */

static const struct train_upsample upsample_cases[] = {
    {2, 3, 5, 6, 10, 2, 8, 0},
    {3, 4, 3, 10, 7, 3, 40, 0},        /* the last two rows and columns are left out */
    {1, 16, 16, 1000, 1000, 64, 8, 0}, /* a block for each pixel */
    {2, 5, 3, 50, 27, 10, 24, 0},
    {1, 90, 70, 180, 140, 2, 8, 0},
    {1, 1, 1, 300, 299, 300, 8, 0},
    {2, 7, 7, 7, 7, 1, 16, 0},
};

/* Element i of the output reads that element of the input. */
static size_t source_of(const struct train_upsample *p, size_t i)
{
    const size_t c = i % p->padded, x = i / p->padded % p->out_width,
                 y = i / p->padded / p->out_width % p->out_height,
                 n = i / p->padded / p->out_width / p->out_height;
    return ((n * p->height + y / p->factor) * p->width + x / p->factor) * p->padded + c;
}

static void upsample_check(struct train_upsample p, int type)
{
    const size_t ins = p.batch * p.height * p.width * p.padded,
                 outs = p.batch * p.out_height * p.out_width * p.padded;
    struct vector x = vector_random(ins, type, &state, 0, 1), y = vector_poisoned(outs, type),
                  dx = vector_random(ins, type, &state, 0, 1),
                  dy = vector_random(outs, type, &state, 0, 1);
    double *expected = doubles(outs), *sums = doubles(ins);
    const double sum_error = 1e-6 * (double)(p.factor * p.factor);
    char shape[80];
    p.type = type;
    snprintf(shape, sizeof shape, "%zux%zux%zux%u by %u to %zux%zu", p.batch, p.height, p.width,
             p.padded, p.factor, p.out_height, p.out_width);
    launched(gpu.stream, train_upsample(&gpu, &p, y.gpu, x.gpu), "train_upsample");
    for (size_t i = 0; i < outs; i++)
        expected[i] = x.host[source_of(&p, i)];
    vector_get(&y);
    check_close(say("upsample", type, shape, "y"), y.host, expected, outs, 0, 0);
    for (int add = 1; add >= 0; add--) {
        for (size_t i = 0; i < ins; i++)
            sums[i] = add ? (double)dx.host[i] : 0;
        for (size_t i = 0; i < outs; i++)
            sums[source_of(&p, i)] += dy.host[i];
        launched(gpu.stream, train_upsample_gradient(&gpu, &p, dx.gpu, dy.gpu, add),
                 "train_upsample_gradient");
        vector_get(&dx);
        check_close(say("upsample", type, shape, add ? "dx, added" : "dx"), dx.host, sums, ins,
                    sum_error, type_epsilon(type));
    }
    vector_free(&x);
    vector_free(&y);
    vector_free(&dx);
    vector_free(&dy);
    free(expected);
    free(sums);
}

int main(void)
{
    gpu_require(1);
    gpu = check_gpu();
    state = 2027;
    launched(gpu.stream, train_loss_load(), "loading kernels");
    launched(gpu.stream, train_upsample_load(), "loading kernels");
    launched(gpu.stream, train_pointwise_load(), "loading kernels");
    for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
        for (size_t c = 0; c < sizeof loss_cases / sizeof *loss_cases; c++)
            loss_check(&loss_cases[c], types[t]);
        sigmoid_check(3, 5, types[t]);
        sigmoid_check(4001, 72, types[t]);
        for (size_t c = 0; c < sizeof upsample_cases / sizeof *upsample_cases; c++)
            upsample_check(upsample_cases[c], types[t]);
    }
    return check_result("train losses");
}
