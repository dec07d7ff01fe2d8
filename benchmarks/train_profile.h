/* What each step of a plan costs: the bytes that its kernels must move and the products that they must make, beside the
 * time that they took. Printed by train_step --profile. */
#ifndef ALNICO_BENCHMARKS_TRAIN_PROFILE_H
#define ALNICO_BENCHMARKS_TRAIN_PROFILE_H

#include "train/replica.h"

/* Of one pass of one step. Kernels run one after the other, so that their least times add up. */
struct step_cost {
    double bytes; /* read and written, nothing being in a cache */
    double flops; /* 2 for each product of a convolution or dense layer */
    double
        least_us; /* on a GPU that moves 4.3 TB/s and makes 790 TFLOP/s: a copy and a bf16 product on an H200 */
};
struct step_cost step_cost(const struct replica *replica, size_t step, bool backward);

/* A line for a step that took so long, and one of column names. */
void profile_header(void);
void profile_line(const struct replica *replica, size_t step, double forward_us,
                  double backward_us);

/* What took so long, its cost added up. */
void profile_sum(const char *what, struct step_cost cost, double us);

#endif
