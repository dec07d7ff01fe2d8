/* Options, learning rates and the table of optimizers. See optimizer.h. */
#include "train/optimizers/optimizer.h"

#include "base/status.h"

#include <math.h>
#include <string.h>

extern const struct optimizer_ops optimizer_sgd, optimizer_nag, optimizer_adagrad,
    optimizer_adadelta, optimizer_rmsprop, optimizer_adam;

const struct optimizer_ops *const optimizers_all[OPTIMIZERS] = {
    [OPTIMIZER_SGD] = &optimizer_sgd,         [OPTIMIZER_NAG] = &optimizer_nag,
    [OPTIMIZER_ADAGRAD] = &optimizer_adagrad, [OPTIMIZER_ADADELTA] = &optimizer_adadelta,
    [OPTIMIZER_RMSPROP] = &optimizer_rmsprop, [OPTIMIZER_ADAM] = &optimizer_adam,
};

const char *schedule_name(enum schedule schedule)
{
    static const char *const names[SCHEDULES] = {"drops", "cosine", "polynomial"};
    return names[schedule];
}

struct optimizer_options optimizer_defaults(enum optimizer_kind kind, size_t images)
{
    const struct optimizer_ops *ops = optimizers_all[kind];
    struct optimizer_options options = ops->defaults;
    options.kind = kind;
    options.rate *= ops->images ? (double)images / (double)ops->images : 1;
    options.warmup = 0.05;
    memcpy(options.drops, (double[OPTIMIZER_DROPS]){0.6, 0.85, 1}, sizeof options.drops);
    return options;
}

static alnico_status_t option_check(const char *name, double value, double most)
{
    if (value >= 0 && value <= most)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT, "optimizer: %s %g, expected 0 to %g", name, value,
                     most);
}

/* Options that not every optimizer has: within their range, or 0. */
static alnico_status_t own_options_check(const struct optimizer_options *options)
{
    const struct optimizer_ops *ops = optimizers_all[options->kind];
    const struct {
        enum optimizer_option bit;
        const char *name;
        double value, most;
    } rows[] = {{OPTIMIZER_HAS_MOMENTUM, "momentum", options->momentum, 0.999999},
                {OPTIMIZER_HAS_BETA1, "beta1", options->beta1, 0.999999},
                {OPTIMIZER_HAS_BETA2, "beta2", options->beta2, 0.999999},
                {OPTIMIZER_HAS_EPSILON, "epsilon", options->epsilon, 1},
                {OPTIMIZER_HAS_TRUST, "LARS trust", options->trust, 1e6}};
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        TRY(option_check(rows[i].name, rows[i].value, rows[i].most));
        if (rows[i].value > 0 && !(ops->has & rows[i].bit))
            return error_set(ALNICO_ERROR_ARGUMENT, "optimizer: %s %g, which %s does not have",
                             rows[i].name, rows[i].value, ops->name);
    }
    if (ops->has & OPTIMIZER_HAS_EPSILON && options->epsilon <= 0)
        return error_set(ALNICO_ERROR_ARGUMENT, "optimizer: epsilon 0, which %s divides by",
                         ops->name);
    return ALNICO_SUCCESS;
}

alnico_status_t optimizer_check(const struct optimizer_options *options)
{
    if ((unsigned)options->kind >= OPTIMIZERS)
        return error_set(ALNICO_ERROR_ARGUMENT, "optimizer: kind %d, expected 0 to %d",
                         (int)options->kind, OPTIMIZERS - 1);
    TRY(own_options_check(options));
    TRY(option_check("learning rate", options->rate, 1e6));
    TRY(option_check("weight decay", options->decay, 1e6));
    TRY(option_check("clip norm", options->clip, 1e30));
    TRY(option_check("warm-up", options->warmup, 1));
    if ((unsigned)options->schedule >= SCHEDULES)
        return error_set(ALNICO_ERROR_ARGUMENT, "optimizer: schedule %d, expected 0 to %d",
                         (int)options->schedule, SCHEDULES - 1);
    for (size_t i = 0; i < OPTIMIZER_DROPS; i++)
        if (!(options->drops[i] >= 0))
            return error_set(ALNICO_ERROR_ARGUMENT, "optimizer: drop at %g, expected at least 0",
                             options->drops[i]);
    return ALNICO_SUCCESS;
}

struct rule optimizer_rule(const struct optimizer_options *options)
{
    return (struct rule){.scale = 1,
                         .trust = 1,
                         .momentum = (float)options->momentum,
                         .beta1 = (float)options->beta1,
                         .beta2 = (float)options->beta2,
                         .epsilon = (float)options->epsilon,
                         .rest1 = (float)(1 - options->beta1),
                         .rest2 = (float)(1 - options->beta2),
                         .root = 1};
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
