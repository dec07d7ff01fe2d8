/* Options, learning rates and the table of optimizers. See optimizer.h. */
#include "train/optimizers/optimizer.h"

#include "base/status.h"

#include <math.h>

const struct optimizer_ops *const optimizers_all[OPTIMIZERS] = {[OPTIMIZER_SGD] = &optimizer_sgd};

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
