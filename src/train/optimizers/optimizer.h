/* [SEAM optimizer] How gradients change the parameters, and the learning rate over the run. An
 * optimizer is a struct optimizer_ops; to add one: its enumerator, its file, its line in
 * optimizer.c. The replica and the kernels call it; nothing is kept here. */
#ifndef ALNICO_TRAIN_OPTIMIZERS_OPTIMIZER_H
#define ALNICO_TRAIN_OPTIMIZERS_OPTIMIZER_H

#include "train/graph/network.h"

#include <stdbool.h>

enum { OPTIMIZER_DROPS = 3, OPTIMIZER_STATES = 2 };

enum optimizer_kind { OPTIMIZER_SGD, OPTIMIZERS };

/* How the rate goes on after the warm-up. */
enum schedule {
    SCHEDULE_DROPS,      /* a tenth after each of the drops */
    SCHEDULE_COSINE,     /* half a cosine down to 0 */
    SCHEDULE_POLYNOMIAL, /* the square of the share that is left */
    SCHEDULES
};

/* "drops", ... */
const char *schedule_name(enum schedule schedule);

struct optimizer_options {
    enum optimizer_kind kind;
    double rate;     /* the highest learning rate, >= 0 */
    double momentum; /* 0 <= momentum < 1 */
    double decay;    /* of weights, >= 0; never of biases and batch norms */
    double warmup;   /* share of the run in which the rate rises linearly, 0 to 1 */
    enum schedule schedule;
    double drops[OPTIMIZER_DROPS]; /* shares of the run after which it is a tenth; >= 1: never */
    /* > 0: LARS. The slope of each operation's weights is multiplied by trust * |weights| /
     * (|gradients| + decay * |weights|), where neither length is 0. */
    double trust;
};

/* The values that reach 92 % on Fashion-MNIST with ResNet-20 in ten epochs, for `images` per step
 * over all ranks: rate 0.1 for 128 of them and proportional to it, momentum 0.9, decay 5e-4. */
struct optimizer_options optimizer_defaults(size_t images);

/* Errors: ARGUMENT (an option out of range, named with its value). */
alnico_status_t optimizer_check(const struct optimizer_options *options);

/* The learning rate when a share `done` of the run (0 to 1) is over. */
double optimizer_rate(const struct optimizer_options *options, double done);

struct optimizer_ops {
    const char *name; /* "sgd" */
    size_t states; /* arenas as large as the parameters, zeros at first; at most OPTIMIZER_STATES */

    /* On the CPU: changes parameters and states by the gradients, all in host memory. Returns
     * whether all parameters are finite. Kernels of a GPU have a table by kind for it. */
    bool (*step)(const struct network *network, const struct optimizer_options *options, float rate,
                 float *parameters, float *const states[], const float *gradients);
};

extern const struct optimizer_ops optimizer_sgd;

/* By kind. */
extern const struct optimizer_ops *const optimizers_all[OPTIMIZERS];

#endif
