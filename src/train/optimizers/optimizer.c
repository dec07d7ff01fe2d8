/* See optimizer.h. */
#include "train/optimizers/optimizer.h"

#include "base/status.h"
#include "train/base/vectorised.h"

#include <math.h>

const char *schedule_name(enum schedule schedule)
{
    static const char *const names[SCHEDULES] = {"drops", "cosine", "polynomial"};
    return names[schedule];
}

struct optimizer_options optimizer_defaults(size_t images)
{
    return (struct optimizer_options){.rate = 0.1 * (double)images / 128,
                                      .momentum = 0.9,
                                      .decay = 5e-4,
                                      .warmup = 0.05,
                                      .drops = {0.6, 0.85, 1}};
}

static alnico_status_t option_check(const char *name, double value, double most)
{
    if (value >= 0 && value <= most)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT, "optimizer: %s %g, expected 0 to %g", name, value,
                     most);
}

alnico_status_t optimizer_check(const struct optimizer_options *options)
{
    TRY(option_check("learning rate", options->rate, 1e6));
    TRY(option_check("momentum", options->momentum, 0.999999));
    TRY(option_check("weight decay", options->decay, 1e6));
    TRY(option_check("warm-up", options->warmup, 1));
    TRY(option_check("LARS trust", options->trust, 1e6));
    if ((unsigned)options->schedule >= SCHEDULES)
        return error_set(ALNICO_ERROR_ARGUMENT, "optimizer: schedule %d, expected 0 to %d",
                         (int)options->schedule, SCHEDULES - 1);
    for (size_t i = 0; i < OPTIMIZER_DROPS; i++)
        if (!(options->drops[i] >= 0))
            return error_set(ALNICO_ERROR_ARGUMENT, "optimizer: drop at %g, expected at least 0",
                             options->drops[i]);
    return ALNICO_SUCCESS;
}

/* The part of the rate that a schedule leaves when a share `done` of the run is over. */
static double schedule_share(const struct optimizer_options *options, double done)
{
    const double left = options->warmup < 1 ? 1 - options->warmup : 1;
    const double over = fmax(done - options->warmup, 0) / left;
    double share = 1;
    switch (options->schedule) {
    case SCHEDULE_COSINE:
        return 0.5 + 0.5 * cos(acos(-1) * over);
    case SCHEDULE_POLYNOMIAL:
        return (1 - over) * (1 - over);
    default:
        for (size_t i = 0; i < OPTIMIZER_DROPS; i++)
            if (done > options->drops[i])
                share /= 10;
        return share;
    }
}

double optimizer_rate(const struct optimizer_options *options, double done)
{
    const double rise = done < options->warmup ? done / options->warmup : 1;
    return options->rate * rise * schedule_share(options, done);
}

struct update {
    float rate, momentum, decay, trust;
};

/* Returns whether the new parameters are finite. */
VECTORISED static bool update_run(struct update update, float *parameters, float *velocity,
                                  const float *gradients, size_t count)
{
    float sum = 0; /* of zeros, or of numbers that are none */
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < count; i++) {
        const float slope = update.trust * (gradients[i] + update.decay * parameters[i]);
        velocity[i] = update.momentum * velocity[i] + slope;
        parameters[i] -= update.rate * velocity[i];
        sum += 0 * parameters[i];
    }
    return sum == 0;
}

/* The square of a vector's length. */
static double square(const float *x, size_t count)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)x[i] * x[i];
    return sum;
}

/* The factor of LARS (You, Gitman, Ginsburg 2017) for one operation's weights. */
static float trust_of(const struct optimizer_options *options, const float *weights,
                      const float *gradients, size_t count)
{
    const double w = sqrt(square(weights, count)), g = sqrt(square(gradients, count));
    if (options->trust <= 0 || w <= 0 || g <= 0)
        return 1;
    return (float)(options->trust * w / (g + options->decay * w));
}

bool optimizer_step(const struct network *network, const struct optimizer_options *options,
                    float rate, float *parameters, float *velocity, const float *gradients)
{
    bool finite = true;
    const struct update plain = {.rate = rate, .momentum = (float)options->momentum, .trust = 1};
    for (size_t i = 0; i < network->count; i++) {
        const struct node *node = &network->nodes[i];
        const size_t weight = node->weight.offset, bias = node->bias.offset;
        struct update weights = plain;
        if (layers_all[node->operation.kind]->decays) {
            weights.decay = (float)options->decay;
            weights.trust =
                trust_of(options, parameters + weight, gradients + weight, node->weight.count);
        }
        finite &= update_run(weights, parameters + weight, velocity + weight, gradients + weight,
                             node->weight.count);
        finite &= update_run(plain, parameters + bias, velocity + bias, gradients + bias,
                             node->bias.count);
    }
    return finite;
}
