/* The loop of every optimizer's pass on the CPU. Included by the files that define passes. */
#ifndef ALNICO_TRAIN_OPTIMIZERS_PASS_H
#define ALNICO_TRAIN_OPTIMIZERS_PASS_H

#include "train/optimizers/optimizer.h"

#include "base/vectorised.h"

/* `update` is a constant of the caller, and becomes a part of the loop. With one state `second` is
 * the first. Returns whether the new parameters are finite: `sum` is one of zeros, or of numbers
 * that are none. */
__attribute__((always_inline)) static inline bool
pass_run(rule_function *update, struct rule rule, const struct optimizer_part *part, float *second)
{
    float *p = part->parameters, *first = part->states[0];
    const float *g = part->gradients;
    float sum = 0;
#pragma omp simd reduction(+ : sum)
    for (size_t i = 0; i < part->count; i++) {
        update(&rule, g[i], &p[i], &first[i], &second[i]);
        sum += 0 * p[i];
    }
    return sum == 0;
}

#endif
