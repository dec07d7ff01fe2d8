/*
 * [SEAM kernels] What computes: a resident turns a network's steps into forward and backward passes
 * over the arenas of one replica.
 *
 * A resident fills one struct kernels_ops. Its functions are called by the replica, one at a time, on
 * the thread that trains. Steps run forward in the plan's order and backward in the reverse order; every
 * slot is mandatory unless it says otherwise.
 *
 * Values and gradients of activations between steps are in a layout of the resident's choice, within
 * plan_elements; images, parameters, parameter gradients, statistics, and the network's output (log
 * probabilities, batch x classes) are in the layouts of network.h.
 */
#ifndef ALNICO_SRC_TRAIN_KERNELS_H
#define ALNICO_SRC_TRAIN_KERNELS_H

#include "plan.h"

/* The memory of one replica. It stays where it is. */
struct arenas {
    float *parameters, *gradients; /* network->parameters */
    float *statistics;             /* network->statistics */
    float *values, *diffs;         /* plan->value_elements, plan->diff_elements */
    float *images;                 /* batch x height x width x channels */
    int32_t *labels;               /* batch; -1: no image here, it has no part in the gradient */
};

struct kernels_setup {
    const struct network *network;
    const struct plan *plan;
    const struct arenas *arenas; /* all three outlive the kernels */
    int threads;                 /* to compute with; 0: the resident's own default */
};

struct kernels_ops {
    const char *name, *about; /* "onednn"; one line of help */

    plan_run_function *run; /* which operations it takes as one */

    /* Prepares every step. Errors: MEMORY, UNSUPPORTED with what the foreign library cannot do. */
    alnico_status_t (*create)(const struct kernels_setup *setup, void **out);
    void (*destroy)(void *self); /* NULL is fine */

    /* Makes the value of the step's output from those of its inputs. In training a batch norm uses the
     * batch's mean and (biased) variance, and moves the running ones towards the batch's mean and
     * unbiased variance; otherwise it uses the running ones. The cross-entropy's value is the logarithm
     * of the softmax. */
    alnico_status_t (*forward)(void *self, size_t step, bool training);

    /* After a forward pass in training: writes the gradients of the step's parameters, and writes or
     * adds (step->accumulate) those of its inputs. The loss is the mean over the batch of minus the
     * label's log probability. */
    alnico_status_t (*backward)(void *self, size_t step);

    /* Seconds spent inside the foreign library so far. Optional: NULL if there is none. */
    double (*library_seconds)(const void *self);
};

extern const struct kernels_ops kernels_naive, kernels_onednn;

/* The residents, and one by name (NULL if there is none). */
extern const struct kernels_ops *const kernels_all[];
enum { KERNELS = 2 };
const struct kernels_ops *kernels_find(const char *name);

/* Where a tensor's batch stands: its values (for tensor 0 the images) and its gradient (NULL if nobody
 * needs it). */
float *setup_value(const struct kernels_setup *setup, size_t tensor);
float *setup_diff(const struct kernels_setup *setup, size_t tensor);

#endif
