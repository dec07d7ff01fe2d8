/* [SEAM optimizer] How gradients change the parameters, and the learning rate over the run. An
 * optimizer is a struct optimizer_ops; to add one: its enumerator, its rule in rules.h, its pass
 * and line in optimizer.c, its line in kernels/cuda/update.cu. The replica and the kernels call it;
 * nothing is kept here. */
#ifndef ALNICO_TRAIN_OPTIMIZERS_OPTIMIZER_H
#define ALNICO_TRAIN_OPTIMIZERS_OPTIMIZER_H

#include "train/graph/network.h"
#include "train/optimizers/rules.h"

#include <stdbool.h>

enum { OPTIMIZER_DROPS = 3, OPTIMIZER_STATES = 2 };

/* With slope = gradient + decay * parameter, as PyTorch's optimizers of these names compute, and
 * epsilon where they add it:
 *
 * sgd: velocity = momentum * velocity + slope; parameter -= rate * velocity. With trust > 0 the
 *   slope is scaled layer by layer (LARS: You, Gitman, Ginsburg 2017).
 * nag (Nesterov 1983 as in Sutskever et al. 2013): velocity as sgd's; parameter -= rate * (slope +
 *   momentum * velocity).
 * adagrad (Duchi, Hazan, Singer 2011): squares += slope^2; parameter -= rate * slope /
 *   (sqrt(squares) + epsilon): outside the root, as in torch.optim.Adagrad.
 * adadelta (Zeiler 2012): squares = beta2 * squares + (1 - beta2) * slope^2; change =
 *   sqrt(changes + epsilon) / sqrt(squares + epsilon) * slope; changes = beta2 * changes + (1 -
 *   beta2) * change^2; parameter -= rate * change: inside both roots, as in the paper and in
 *   torch.optim.Adadelta, whose rho is beta2.
 * rmsprop (Tieleman, Hinton 2012): squares as adadelta's; parameter -= rate * slope /
 *   (sqrt(squares) + epsilon): outside the root, as in torch.optim.RMSprop, whose alpha is beta2.
 * adam (Kingma, Ba 2015): mean = beta1 * mean + (1 - beta1) * slope; squares as adadelta's; in
 *   update t parameter -= rate * mean / (1 - beta1^t) / (sqrt(squares / (1 - beta2^t)) + epsilon):
 *   outside the root, behind the corrections, as in the paper's algorithm 1 and torch.optim.Adam.
 */
enum optimizer_kind {
    OPTIMIZER_SGD,
    OPTIMIZER_NAG,
    OPTIMIZER_ADAGRAD,
    OPTIMIZER_ADADELTA,
    OPTIMIZER_RMSPROP,
    OPTIMIZER_ADAM,
    OPTIMIZERS
};

/* Options that some optimizers have and the others refuse: bits of optimizer_ops.has. */
enum optimizer_option {
    OPTIMIZER_HAS_MOMENTUM = 1,
    OPTIMIZER_HAS_TRUST = 2,
    OPTIMIZER_HAS_BETA1 = 4,
    OPTIMIZER_HAS_BETA2 = 8,
    OPTIMIZER_HAS_EPSILON = 16
};

/* How the rate goes on after the warm-up. */
enum schedule {
    SCHEDULE_DROPS,      /* a tenth after each of the drops */
    SCHEDULE_COSINE,     /* half a cosine down to 0 */
    SCHEDULE_POLYNOMIAL, /* the square of the share that is left */
    SCHEDULES
};

/* "drops", ... */
const char *schedule_name(enum schedule schedule);

/* What an optimizer does not have is 0. */
struct optimizer_options {
    enum optimizer_kind kind;
    double rate;         /* the highest learning rate, >= 0 */
    double momentum;     /* 0 <= momentum < 1 */
    double beta1, beta2; /* decay rates of the means of slopes and of their squares, as momentum */
    double epsilon;      /* > 0 */
    double decay;        /* of weights, >= 0; never of biases and batch norms */
    double clip;         /* > 0: the most that the length of all gradients together may be (Pascanu,
                    * Mikolov, Bengio 2013); longer ones are multiplied by clip / (length + 1e-6) */
    double warmup;       /* share of the run in which the rate rises linearly, 0 to 1 */
    enum schedule schedule;
    double drops[OPTIMIZER_DROPS]; /* shares of the run after which it is a tenth; >= 1: never */
    /* > 0: LARS. The slope of each operation's weights is multiplied by trust * |weights| /
     * (|gradients| + decay * |weights|), where neither length is 0. */
    double trust;
};

/* For `images` per step over all ranks. Of sgd and nag the values that reach 92 % on Fashion-MNIST
 * with ResNet-20 in ten epochs: rate 0.1 for 128 images and proportional to them, momentum 0.9,
 * decay 5e-4. Of the others PyTorch's, but a rate of 0.001 for rmsprop. */
struct optimizer_options optimizer_defaults(enum optimizer_kind kind, size_t images);

/* Errors: ARGUMENT (an option out of range, or that the optimizer does not have; named with its
 * value). */
alnico_status_t optimizer_check(const struct optimizer_options *options);

/* The learning rate when a share `done` of the run (0 to 1) is over. */
double optimizer_rate(const struct optimizer_options *options, double done);

/* A part of the arenas. */
struct optimizer_part {
    float *parameters, *states[OPTIMIZER_STATES];
    const float *gradients;
    size_t count;
};

struct optimizer_ops {
    const char *name; /* "sgd" */
    size_t states; /* arenas as large as the parameters, zeros at first; at most OPTIMIZER_STATES */
    unsigned has;  /* OPTIMIZER_HAS_... */
    bool counts;   /* its rule depends on the number of updates, CONTROL_UPDATES of kernels.h */
    struct optimizer_options defaults; /* rate, momentum, betas, epsilon, decay */
    size_t images; /* in a step, for which the default rate is; 0: for any number */

    /* On the CPU: changes a part by its rule. Returns whether the new parameters are finite. */
    bool (*pass)(struct rule rule, const struct optimizer_part *part);
};

/* By kind. */
extern const struct optimizer_ops *const optimizers_all[OPTIMIZERS];

/* The rule of an update without what changes from step to step and from tensor to tensor: a rate of
 * 0, no scale, no weight decay. */
struct rule optimizer_rule(const struct optimizer_options *options);

/* An update on the CPU; all arenas are in host memory. */
struct optimizer_update {
    const struct network *network;
    const struct optimizer_options *options;
    float rate;
    double updates; /* this one counted, if the optimizer counts them */
    int threads;    /* 0: as many as OpenMP has */
    float *parameters, *const *states;
    const float *gradients;
    /* The arenas hold only these of the network's parameters, and only they are changed; without
     * clipping and trust, which need all. NULL: all. */
    const struct parameter *only;
    /* Of a part with parameters of its own (graph/part.h), what optimizer_squares makes, over all ranks;
     * NULL: there are none. */
    const double *squares;
};

/* Numbers of optimizer_squares. */
size_t optimizer_squares_count(const struct network *network);

/* Squared lengths of this rank's own parameters, which ranks add up: of each node's weights and of their
 * gradients, then of all its own gradients. What all ranks have is 0. */
void optimizer_squares(const struct optimizer_update *update, double *out);

/* Changes parameters and states by the gradients; the same bits with any number of threads. Returns
 * whether all parameters are finite. */
bool optimizer_update(const struct optimizer_update *update);

#endif
