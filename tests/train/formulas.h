/* What PyTorch's optimizers do, in float64, as its documentation has it: the reference of the tests
 * on the CPU and on GPUs. */
#ifndef ALNICO_TESTS_TRAIN_FORMULAS_H
#define ALNICO_TESTS_TRAIN_FORMULAS_H

#include "train/optimizers/optimizer.h"

#include <math.h>

/* Changes one parameter, with the states a and b, in update t, from 1 on. */
static inline void optimizer_formula(const struct optimizer_options *o, double rate, int t,
                                     double g, double decay, double *p, double *a, double *b)
{
    g += decay * *p;
    switch (o->kind) {
    case OPTIMIZER_SGD:
        *a = o->momentum * *a + g;
        *p -= rate * *a;
        break;
    case OPTIMIZER_NAG:
        *a = o->momentum * *a + g;
        *p -= rate * (g + o->momentum * *a);
        break;
    case OPTIMIZER_ADAGRAD:
        *a += g * g;
        *p -= rate * g / (sqrt(*a) + o->epsilon);
        break;
    case OPTIMIZER_ADADELTA:
        *a = o->beta2 * *a + (1 - o->beta2) * g * g;
        g *= sqrt(*b + o->epsilon) / sqrt(*a + o->epsilon);
        *b = o->beta2 * *b + (1 - o->beta2) * g * g;
        *p -= rate * g;
        break;
    case OPTIMIZER_RMSPROP:
        *a = o->beta2 * *a + (1 - o->beta2) * g * g;
        *p -= rate * g / (sqrt(*a) + o->epsilon);
        break;
    default:
        *a = o->beta1 * *a + (1 - o->beta1) * g;
        *b = o->beta2 * *b + (1 - o->beta2) * g * g;
        *p -=
            rate * (*a / (1 - pow(o->beta1, t))) / (sqrt(*b / (1 - pow(o->beta2, t))) + o->epsilon);
    }
}

#endif
