/*
 * Profile: the time of each step of a plan by itself, beside the least: the bytes that its kernels
 * have to move and the products that they have to make, at the rates of the device. On one rank, on
 * the thread that trains; what it runs spoils parameters and gradients.
 */
#ifndef ALNICO_TRAIN_TRAINER_STEP_PROFILE_H
#define ALNICO_TRAIN_TRAINER_STEP_PROFILE_H

#include "train/replica/replica.h"

/* An H200, in bf16 and fp16. */
extern const struct profile_rates profile_h200;

/* The cost of a step of a plan, made by these rules, and of the update: see layers/layer.h. */
struct step_cost step_cost(const struct plan *plan, const struct plan_rules *rules,
                           const struct profile_rates *rates, size_t step, bool backward);
struct step_cost update_cost(const struct replica *replica, const struct profile_rates *rates);

/* Times, in microseconds. */
struct profile {
    const struct replica *replica;
    struct profile_rates rates;
    double (*us)[2]; /* of each step of the plan: forward, backward */
    double update_us;
    double step_us; /* forward, backward and update together */
};

/* Measures a replica that has a batch. The caller ends *out by profile_free. Errors: MEMORY; what
 * the kernels report. */
alnico_status_t profile_create(struct replica *replica, const struct optimizer_options *optimizer,
                               const struct profile_rates *rates, struct profile *out);
void profile_free(struct profile *profile);

/* Measures the device of a setup by a copy and by a dense layer of the setup's kernels.
 * Errors: as replica_create. */
alnico_status_t profile_measure(const struct replica_setup *setup, struct profile_rates *out);

#endif
