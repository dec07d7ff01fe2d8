/* Buckets: parts of the gradient arena that travel one by one. Used by the trainer. */
#ifndef ALNICO_TRAIN_STRATEGIES_BUCKETS_H
#define ALNICO_TRAIN_STRATEGIES_BUCKETS_H

#include "train/graph/memory_plan.h"

struct buckets {
    size_t *ends; /* in elements, rising; the last is the arena's size */
    size_t count;
};

/* Each but the last has `each` elements (> 0). Errors: MEMORY. */
alnico_status_t buckets_of_size(size_t elements, size_t each, struct buckets *out);

/* `count` (> 0) of about the same size, fewer if there are fewer elements. Errors: MEMORY. */
alnico_status_t buckets_of_count(size_t elements, size_t count, struct buckets *out);

/* The cost of a message: alpha + beta * bytes, in seconds. */
struct bucket_costs {
    double alpha, beta;
};

/* By the model of MG-WFBP (Shi, Chu, Li 2019, "MG-WFBP: Efficient data communication for
 * distributed synchronous SGD algorithms"): a bucket starts once all its gradients are final and
 * those before it have been sent. Of all ways to cut between steps that which ends first, where
 * each bucket costs who computes a start-up, too. seconds: what each step of the plan took
 * backward; width: bytes of an element on the wire. Errors: MEMORY. */
alnico_status_t buckets_planned(const struct plan *plan, const double *seconds, size_t width,
                                struct bucket_costs costs, struct buckets *out);

/* Twice is fine. */
void buckets_free(struct buckets *buckets);

#endif
