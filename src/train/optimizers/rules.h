/*
 * The rules by which the optimizers change one parameter, for the CPU's loops and the GPU's kernels
 * alike: float32, in registers. Every rule begins with slope = scale * gradient + decay *
 * parameter. Sources, formulas and where epsilon stands: optimizer.h.
 */
#ifndef ALNICO_TRAIN_OPTIMIZERS_RULES_H
#define ALNICO_TRAIN_OPTIMIZERS_RULES_H

#include <math.h>

#ifdef __CUDACC__
#define RULE_FUNCTION __host__ __device__ static inline
#else
#define RULE_FUNCTION static inline
#endif

/* The numbers of a rule: of an update, or of one tensor in it. */
struct rule {
    float rate;
    float scale;        /* of gradients: 1 / loss scale, and what clipping leaves */
    float trust, decay; /* of LARS (1: none); of weights */
    float momentum, beta1, beta2, epsilon;
    float rest1, rest2; /* 1 - beta1, 1 - beta2, rounded once */
    float root;         /* Adam: what the root of the mean of squares is multiplied by */
};

/* `first` and `second`: the optimizer's states of this parameter; with one state second is not
 * read. */
typedef void rule_function(const struct rule *rule, float gradient, float *parameter, float *first,
                           float *second);

RULE_FUNCTION float rule_slope(const struct rule *rule, float gradient, float parameter)
{
    return rule->trust * (gradient * rule->scale + rule->decay * parameter);
}

RULE_FUNCTION void rule_sgd(const struct rule *rule, float gradient, float *parameter,
                            float *velocity, float *unused)
{
    (void)unused;
    *velocity = rule->momentum * *velocity + rule_slope(rule, gradient, *parameter);
    *parameter -= rule->rate * *velocity;
}

RULE_FUNCTION void rule_nag(const struct rule *rule, float gradient, float *parameter,
                            float *velocity, float *unused)
{
    (void)unused;
    const float slope = rule_slope(rule, gradient, *parameter);
    *velocity = rule->momentum * *velocity + slope;
    *parameter -= rule->rate * (slope + rule->momentum * *velocity);
}

RULE_FUNCTION void rule_adagrad(const struct rule *rule, float gradient, float *parameter,
                                float *squares, float *unused)
{
    (void)unused;
    const float slope = rule_slope(rule, gradient, *parameter);
    *squares += slope * slope;
    *parameter -= rule->rate * slope / (sqrtf(*squares) + rule->epsilon);
}

RULE_FUNCTION void rule_adadelta(const struct rule *rule, float gradient, float *parameter,
                                 float *squares, float *changes)
{
    const float slope = rule_slope(rule, gradient, *parameter);
    *squares = rule->beta2 * *squares + rule->rest2 * slope * slope;
    const float change = sqrtf(*changes + rule->epsilon) / sqrtf(*squares + rule->epsilon) * slope;
    *changes = rule->beta2 * *changes + rule->rest2 * change * change;
    *parameter -= rule->rate * change;
}

RULE_FUNCTION void rule_rmsprop(const struct rule *rule, float gradient, float *parameter,
                                float *squares, float *unused)
{
    (void)unused;
    const float slope = rule_slope(rule, gradient, *parameter);
    *squares = rule->beta2 * *squares + rule->rest2 * slope * slope;
    *parameter -= rule->rate * slope / (sqrtf(*squares) + rule->epsilon);
}

RULE_FUNCTION void rule_adam(const struct rule *rule, float gradient, float *parameter, float *mean,
                             float *squares)
{
    const float slope = rule_slope(rule, gradient, *parameter);
    *mean = rule->beta1 * *mean + rule->rest1 * slope;
    *squares = rule->beta2 * *squares + rule->rest2 * slope * slope;
    *parameter -= rule->rate * *mean / (sqrtf(*squares) * rule->root + rule->epsilon);
}

/* Adam's corrections in the `updates`-th update, from 1 on, as its means begin at 0: what the rate
 * is multiplied by, and a rule's root. */
RULE_FUNCTION void rule_correct(double beta1, double beta2, double updates, float *rate,
                                float *root)
{
    *rate = (float)(1 / (1 - pow(beta1, updates)));
    *root = (float)(1 / sqrt(1 - pow(beta2, updates)));
}

/* The factor of gradients whose length is `norm`. */
RULE_FUNCTION float rule_clip(double most, double norm)
{
    const double share = most / (norm + 1e-6);
    return share < 1 ? (float)share : 1;
}

#endif
