/*
 * Training: the loop over batches, its clock, and the test. The program alnico-train and the tests call
 * it; everything runs on the caller's thread, apart from what prepares data and what communicates.
 */
#ifndef ALNICO_SRC_TRAIN_TRAINER_H
#define ALNICO_SRC_TRAIN_TRAINER_H

#include "optimizer.h"

/* What the training thread's time goes to. Communication is what remains visible of it: the time spent
 * starting, testing and waiting for it. */
enum phase {
    PHASE_INPUT,
    PHASE_FORWARD,
    PHASE_BACKWARD,
    PHASE_COMMUNICATION,
    PHASE_UPDATE,
    PHASES
};

/* "input", ... */
const char *phase_name(enum phase phase);

/* Loss and accuracy over some images. */
struct score {
    double loss;     /* mean over images of minus the label's log probability */
    double accuracy; /* 0 to 1 */
    size_t images;
};

/* How far training is. Only rank 0 is told, after each step and each test. */
struct trainer_progress {
    size_t step, epoch; /* steps done; the epoch that the last one belongs to, from 1 */
    double done;        /* share of the run, 0 to 1 */
    double seconds;     /* of training so far */
    size_t images;      /* this rank's, so far */
    double rate;        /* learning rate of the last step */
    struct score score; /* this epoch so far on this rank; over all ranks with a test */
    struct score test;  /* over all ranks and test images, if `tested` */
    bool tested;
};

struct trainer_options {
    const char *model, *data, *kernels, *strategy; /* names; data as in data.h */
    size_t batch;                                  /* images per rank and step, > 0 */
    size_t steps; /* length of the run; of steps, epochs, seconds exactly one is not 0 */
    size_t epochs;
    double seconds; /* about: the ranks agree on the time every few steps */
    uint64_t seed;  /* of parameters, shuffle and augmentation; equal on all ranks */
    size_t bucket;  /* gradients that travel together, in bytes */
    int threads;    /* to compute with; 0: the kernels' default */
    struct optimizer_options optimizer;
    void (*progress)(void *context, const struct trainer_progress *progress); /* NULL: none */
    void *context;
};

/* The result, equal on all ranks. */
struct trainer_report {
    int ranks;
    size_t parameters, steps;
    double epochs;
    double seconds;         /* of training, tests excluded; the slowest rank's */
    double phases[PHASES];  /* seconds, mean over the ranks */
    double library_seconds; /* inside the kernels' foreign library, the same; 0 if it has none */
    double test_seconds;
    double images_per_second; /* over all ranks */
    struct score train;       /* the last (part of an) epoch */
    struct score test;
    uint64_t hash; /* of the parameters */
};

/* Trains from the seed on. comm: on the CPU's inline stream, one rank each; NULL trains alone. Errors:
 * ARGUMENT (an option, named with its value; bad data); MISMATCH if at the end the ranks' parameters
 * differ; SYSTEM if the loss is not a number any more; whatever communication and kernels report. On an
 * error the other ranks may wait for this one until their deadline: abort the communicator. */
alnico_status_t trainer_run(const struct trainer_options *options, alnico_comm_t comm,
                            struct trainer_report *report);

/* FNV-1a (Fowler, Noll, Vo) of `bytes` bytes, 64 bits. */
uint64_t trainer_hash(const void *data, size_t bytes);

/* Collective: MISMATCH unless `hash` is the same on all ranks. comm NULL: fine. */
alnico_status_t trainer_compare(uint64_t hash, alnico_comm_t comm);

#endif
