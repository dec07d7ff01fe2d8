/* Stochastic gradient descent with momentum, and its learning rate over the run. The trainer calls it, on
 * one thread. */
#ifndef ALNICO_SRC_TRAIN_OPTIMIZER_H
#define ALNICO_SRC_TRAIN_OPTIMIZER_H

#include "network.h"

enum { OPTIMIZER_DROPS = 3 };

struct optimizer_options {
    double rate;                   /* the highest learning rate, >= 0 */
    double momentum;               /* 0 <= momentum < 1 */
    double decay;                  /* of weights, >= 0; never of biases and batch norms */
    double warmup;                 /* share of the run in which the rate rises linearly, 0 to 1 */
    double drops[OPTIMIZER_DROPS]; /* shares of the run after which it is a tenth; >= 1: never */
};

struct optimizer {
    const struct network *network;
    struct optimizer_options options;
    float *velocity; /* as the parameters */
};

/* The values that reach 92 % on Fashion-MNIST with ResNet-20 in ten epochs, for `images` per step over
 * all ranks: rate 0.1 for 128 of them and proportional to it, momentum 0.9, decay 5e-4. */
struct optimizer_options optimizer_defaults(size_t images);

/* The network must outlive the optimizer. Errors: ARGUMENT (an option out of range, named with its
 * value), MEMORY. */
alnico_status_t optimizer_create(const struct network *network,
                                 const struct optimizer_options *options, struct optimizer **out);

/* NULL is fine. */
void optimizer_destroy(struct optimizer *optimizer);

/* The learning rate when a share `done` of the run (0 to 1) is over. */
double optimizer_rate(const struct optimizer_options *options, double done);

/* velocity = momentum * velocity + gradient + decay * parameter; parameter -= rate * velocity. */
void optimizer_step(struct optimizer *optimizer, double rate, float *parameters,
                    const float *gradients);

#endif
