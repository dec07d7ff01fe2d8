/* Stochastic gradient descent with momentum, plain and Nesterov's, on the CPU. See optimizer.h. */
#include "train/optimizers/pass.h"

VECTORISED static bool sgd_pass(struct rule rule, const struct optimizer_part *part)
{
    return pass_run(rule_sgd, rule, part, part->states[0]);
}

VECTORISED static bool nag_pass(struct rule rule, const struct optimizer_part *part)
{
    return pass_run(rule_nag, rule, part, part->states[0]);
}

const struct optimizer_ops optimizer_sgd = {
    .name = "sgd",
    .states = 1,
    .has = OPTIMIZER_HAS_MOMENTUM | OPTIMIZER_HAS_TRUST,
    .defaults = {.rate = 0.1, .momentum = 0.9, .decay = 5e-4},
    .images = 128,
    .pass = sgd_pass,
};

const struct optimizer_ops optimizer_nag = {
    .name = "nag",
    .states = 1,
    .has = OPTIMIZER_HAS_MOMENTUM,
    .defaults = {.rate = 0.1, .momentum = 0.9, .decay = 5e-4},
    .images = 128,
    .pass = nag_pass,
};
