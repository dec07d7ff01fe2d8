/* Stochastic gradient descent with momentum, plain and Nesterov's, on the CPU. See optimizer.h. In
 * each pass `sum` is one of zeros, or of numbers that are none. */
#include "train/optimizers/optimizer.h"

#include "base/vectorised.h"

#include <stddef.h>

VECTORISED static bool sgd_pass(struct rule rule, const struct optimizer_part *part)
{
    float *p = part->parameters, *velocity = part->states[0];
    const float *g = part->gradients;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < part->count; i++) {
        rule_sgd(&rule, g[i], &p[i], &velocity[i], NULL);
        sum += 0 * p[i];
    }
    return sum == 0;
}

VECTORISED static bool nag_pass(struct rule rule, const struct optimizer_part *part)
{
    float *p = part->parameters, *velocity = part->states[0];
    const float *g = part->gradients;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < part->count; i++) {
        rule_nag(&rule, g[i], &p[i], &velocity[i], NULL);
        sum += 0 * p[i];
    }
    return sum == 0;
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
