/*
 * From a network to steps and memory: which operations run together, and where every activation and
 * every gradient of an activation stands for one batch. Made once, read-only afterwards. The kernels
 * and the trainer read it.
 *
 * Values keep their place from forward to backward, since nearly all are read again there. Gradients of
 * activations live from their first contribution until their producer has run backward, and share
 * memory otherwise: first fit, in the order in which backward runs.
 */
#ifndef ALNICO_SRC_TRAIN_PLAN_H
#define ALNICO_SRC_TRAIN_PLAN_H

#include "network.h"

#define PLAN_NONE ((size_t)-1)

/* Operations that run as one. The tensors between them do not exist. */
struct step {
    size_t first, count;  /* nodes first .. first + count - 1 */
    size_t in[2], inputs; /* tensors that come from outside */
    size_t out;           /* the tensor that the last one makes */
    bool accumulate[2];   /* backward adds to the gradient of in[i]; otherwise it overwrites it */
    size_t filled;        /* gradient elements that are final once this step has run backward */
};

struct plan {
    const struct network *network;
    size_t batch;
    struct step *steps; /* in forward order */
    size_t count;
    size_t
        *values;   /* by tensor: offset of its batch in the arena of values; PLAN_NONE: no memory */
    size_t *diffs; /* the same for its gradient; PLAN_NONE: nobody needs it */
    size_t value_elements, diff_elements; /* of the arenas */
};

/* How many operations from node `at` on run as one step, at least 1; plan_chained must hold for them. */
typedef size_t plan_run_function(const struct network *network, size_t at);

/* Plans a finished network, which must outlive the plan. Errors: ARGUMENT (batch 0, or a batch whose
 * activations overflow), MEMORY. */
alnico_status_t plan_create(const struct network *network, plan_run_function *run, size_t batch,
                            struct plan **out);

/* NULL is fine. */
void plan_destroy(struct plan *plan);

/* Whether the nodes from `at` on are of these kinds, each reading the one before as its first input, and
 * nothing else reads what stands between them. */
bool plan_chained(const struct network *network, size_t at, const enum operation_kind *kinds,
                  size_t count);

#endif
