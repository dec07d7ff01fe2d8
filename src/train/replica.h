/*
 * One rank's copy of a network at work: the arenas, the kernels on them, and a pass forward and
 * backward for one batch. The trainer and the tests drive it, on one thread.
 */
#ifndef ALNICO_SRC_TRAIN_REPLICA_H
#define ALNICO_SRC_TRAIN_REPLICA_H

#include "kernels.h"

struct replica {
    const struct network *network;
    const struct kernels_ops *ops;
    struct plan *plan;
    struct arenas arenas;
    void *kernels;
};

/* What one batch gave. */
struct outcome {
    double loss;    /* sum over images of minus the label's log probability */
    size_t correct; /* images whose most probable class is the label */
    size_t count;   /* images */
};

/* Allocates and plans for `batch` images of a finished network, which must outlive the replica;
 * parameters and statistics are initialised from the seed. threads as in kernels_setup. Errors: as
 * plan_create and the kernels' create. */
alnico_status_t replica_create(const struct network *network, const struct kernels_ops *kernels,
                               size_t batch, int threads, uint64_t seed, struct replica **out);

/* NULL is fine. */
void replica_destroy(struct replica *replica);

/* Copies count <= batch images and labels in; what is left of the batch counts as no image. Errors:
 * ARGUMENT (more than the batch, or a label that is no class). */
alnico_status_t replica_load(struct replica *replica, const float *images, const int32_t *labels,
                             size_t count);

/* Runs all steps on what was loaded. */
alnico_status_t replica_forward(struct replica *replica, bool training);

/* What the last forward pass gave for what is loaded. */
struct outcome replica_outcome(const struct replica *replica);

/* Runs all steps backward. After each, `filled` is called (unless NULL) with the number of elements at
 * the front of the gradient arena that are final. */
alnico_status_t replica_backward(struct replica *replica,
                                 alnico_status_t (*filled)(void *context, size_t elements),
                                 void *context);

#endif
