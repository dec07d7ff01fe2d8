/* Step model: the time of a data-parallel training step on any number of ranks, from the times of
 * its parts on one of them (S-SGD's directed acyclic graph: Shi, Wang, Chu 2018, "Performance
 * modeling and evaluation of distributed deep learning frameworks on GPUs"; Chu's two formulas are
 * its cases in which communication is hidden from the first bucket on, or from none). Pure. */
#ifndef ALNICO_TOOLS_COMMON_STEP_MODEL_H
#define ALNICO_TOOLS_COMMON_STEP_MODEL_H

#include <cjson/cJSON.h>
#include <stdbool.h>
#include <stddef.h>

/* Gradients that travel together, in the order in which backward fills them. */
struct step_bucket {
    double backward; /* seconds of the backward pass that fill it */
    size_t bytes;    /* on the wire */
};

/* A wait for other ranks in a pass of a split network, for boxes or sums. */
struct step_move {
    size_t bucket;          /* 1 + that which backward fills next; 0: in the forward pass */
    size_t messages, bytes; /* sent or received, whichever are more */
    double beside;          /* seconds of computing while they travel */
};

enum { STEP_HIDDEN_LEAST = -2 /* what is less is the noise of short messages */ };

/* Seconds of one rank's step without the others. */
struct step_parts {
    double input; /* until the batch is on the device */
    double forward, update;
    double lag; /* what the slowest of some ranks takes more, which is another in each step */
    /* STEP_HIDDEN_LEAST to 1: the share of communication beside which computing goes on; below 0 both
     * together take longer than one after the other. */
    double hidden;
    double images; /* of one rank's batch; of a split network its share of them */
    size_t count;
    struct step_bucket *buckets;
    double alpha, beta; /* seconds of a move's message, and of a byte of it */
    size_t move_count;
    struct step_move *moves; /* in their order */
};

/* Seconds of a step whose buckets take so many seconds each to communicate: overlapped with the
 * backward pass, or behind it. A bucket waits for those before it; what is not hidden of it
 * prolongs the backward pass. A move prolongs its pass by what of it is not hidden, or goes on when the
 * computing beside it has ended; not overlapped, by all of it. Ranks that communicate lag. */
double step_seconds(const struct step_parts *parts, const double *communication, bool overlapped);

/* Seconds by which all moves prolong the passes. */
double step_moves_exposed(const struct step_parts *parts, bool overlapped);

/* Seconds of an allreduce: alpha + beta * bytes on some ranks. */
struct step_costs {
    double alpha, beta;
    int ranks;
};

/* The line through measured times of at least one size, by least squares of the relative error;
 * neither number is below 0. */
struct step_costs step_costs_fit(const size_t *bytes, const double *seconds, size_t count,
                                 int ranks);

/* On other ranks: alpha grows with log2(ranks), as recursive doubling's, beta as (ranks - 1) /
 * ranks, as a ring's or Rabenseifner's. No ranks but one cost nothing. */
double step_costs_at(struct step_costs costs, int ranks, size_t bytes);

/* JSON of a step's parts, which the caller deletes, and the parts of such JSON. `error` names what is
 * wrong; after success the caller calls step_parts_free. */
cJSON *step_parts_json(const struct step_parts *parts);
bool step_parts_read(const cJSON *object, struct step_parts *out, char *error, size_t room);
void step_parts_free(struct step_parts *parts);

#endif
