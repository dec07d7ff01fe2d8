/* Optimizers that divide each slope by what its parameter's slopes were like, on the CPU. See optimizer.h. */
#include "train/optimizers/pass.h"

VECTORISED static bool adagrad_pass(struct rule rule, const struct optimizer_part *part)
{
    return pass_run(rule_adagrad, rule, part, part->states[0]);
}

VECTORISED static bool adadelta_pass(struct rule rule, const struct optimizer_part *part)
{
    return pass_run(rule_adadelta, rule, part, part->states[1]);
}

VECTORISED static bool rmsprop_pass(struct rule rule, const struct optimizer_part *part)
{
    return pass_run(rule_rmsprop, rule, part, part->states[0]);
}

VECTORISED static bool adam_pass(struct rule rule, const struct optimizer_part *part)
{
    return pass_run(rule_adam, rule, part, part->states[1]);
}

const struct optimizer_ops optimizer_adagrad = {
    .name = "adagrad",
    .states = 1,
    .has = OPTIMIZER_HAS_EPSILON,
    .defaults = {.rate = 0.01, .epsilon = 1e-10},
    .pass = adagrad_pass,
};

const struct optimizer_ops optimizer_adadelta = {
    .name = "adadelta",
    .states = 2,
    .has = OPTIMIZER_HAS_BETA2 | OPTIMIZER_HAS_EPSILON,
    .defaults = {.rate = 1, .beta2 = 0.9, .epsilon = 1e-6},
    .pass = adadelta_pass,
};

const struct optimizer_ops optimizer_rmsprop = {
    .name = "rmsprop",
    .states = 1,
    .has = OPTIMIZER_HAS_BETA2 | OPTIMIZER_HAS_EPSILON,
    .defaults = {.rate = 1e-3, .beta2 = 0.99, .epsilon = 1e-8},
    .pass = rmsprop_pass,
};

const struct optimizer_ops optimizer_adam = {
    .name = "adam",
    .states = 2,
    .has = OPTIMIZER_HAS_BETA1 | OPTIMIZER_HAS_BETA2 | OPTIMIZER_HAS_EPSILON,
    .counts = true,
    .defaults = {.rate = 1e-3, .beta1 = 0.9, .beta2 = 0.999, .epsilon = 1e-8},
    .pass = adam_pass,
};
