/* The inside of a run of the trainer: its state, and the functions that the files of this room
 * offer each other, file by file. All on the thread that trains. */
#ifndef ALNICO_TRAIN_TRAINER_STATE_H
#define ALNICO_TRAIN_TRAINER_STATE_H

#include "train/input/data.h"
#include "train/strategies/buckets.h"
#include "train/strategies/strategy.h"
#include "train/trainer/trainer.h"

struct state;

struct trainer {
    const struct trainer_options *options;
    struct trainer_place place; /* without communicators: alone */
    int rank, size;
    int begun;                   /* ranks at the beginning of the run */
    alnico_comm_t shrunk;        /* of the ranks that go on, this run's own; NULL: none was lost */
    alnico_comm_t shrunk_device; /* the same on the stream, if there is one */
    struct state *kept;          /* the last state known to be right; NULL: that at hand is */
    struct network *whole;       /* of which `network` is this rank's part; NULL: it is all */
    int part, part_count;        /* of a split network */
    int image_part, image_parts; /* which images it takes; without a split those of its rank */
    alnico_comm_t moves, norms;  /* of a split network; NULL: none of their own */
    struct network *network;
    struct replica *replica;
    struct phase_timer *timer;
    const struct strategy_ops *strategy;
    struct buckets buckets;
    void *strategy_self;             /* the strategy's */
    struct data *train, *test;       /* test NULL: none */
    bool uploaded;                   /* the batch on the device is that of the next step, too */
    size_t passes, pass;             /* in a step; the one at hand */
    struct accumulation_part *parts; /* of the gradients; NULL: one pass a step */
    size_t combined;                 /* buckets that are means, in the last pass */
    struct device_graph **graphs;    /* two of each pass, see graph.c; NULL: none yet, or never */
    size_t eager;                    /* steps that ran launch by launch, up to a few */
    bool ungraphed;                  /* a step cannot be captured */
    size_t test_batches, epoch_batches;
    size_t steps, per_epoch; /* to do (SIZE_MAX with a time limit); in an epoch */
    size_t first, step;      /* at the beginning; enqueued so far */
    size_t tests;            /* tests so far */
    double phases[PHASES];
    double seconds;       /* of training */
    size_t read;          /* steps of this rank in this run whose times are known */
    double *step_seconds; /* seconds of each of them */
    size_t step_room;
    double agreed;        /* of training, as all ranks last agreed on it */
    size_t agreed_steps;  /* after so many of this run's steps */
    size_t agree_next;    /* after so many they do so again */
    bool stopped;         /* a rank was told to stop; all know */
    double other_library; /* seconds inside the kernels' library that are not training's */
    double test_seconds;
    double rehearsal_seconds; /* of a step's communication by itself; 0: not known */
    struct outcome epoch;     /* of this epoch's images so far */
    struct trainer_progress progress;
};

/* ---- trainer/check.c ---- */

/* Errors: ARGUMENT, for options that mean nothing. */
alnico_status_t trainer_check(const struct trainer_options *options);

/* Collective. All ranks must have been given the same, or they would wait for each other or drift
 * apart; and must find the same images. Errors: MISMATCH, naming an option or the data. */
alnico_status_t trainer_options_agree(struct trainer *trainer);
alnico_status_t trainer_data_agree(struct trainer *trainer);

/* ---- trainer/open.c ---- */

/* Checks the options and makes everything; what was made before an error is for trainer_close. */
alnico_status_t trainer_open(struct trainer *trainer);
void trainer_close(struct trainer *trainer);

/* Checks the options and opens their data for one rank, without a run. Errors: ARGUMENT, for
 * options that mean nothing. */
alnico_status_t trainer_data_alone(const struct trainer_options *options, size_t batch,
                                   struct data **out);

/* The network for images such as the training part's, and what its replica is for them on a rank of
 * so many, without its stream. */
alnico_status_t trainer_network(const struct trainer_options *options, const struct data_info *info,
                                struct network **out);
struct replica_setup trainer_setup(const struct trainer_options *options, const struct data *images,
                                   int rank, int ranks);

/* A device with memory of its own keeps its synthetic batch from one test to the next: the host
 * could not make them as fast. */
bool trainer_uploads_once(const struct trainer_options *options);

/* Opens the data, from where step and tests are on. */
alnico_status_t trainer_data(struct trainer *trainer);

/* Makes the strategy's part (collective). */
alnico_status_t trainer_strategy(struct trainer *trainer);

/* ---- trainer/split.c ---- */

/* A rank's part of the network. */
alnico_status_t trainer_part(const struct trainer_options *options, const struct network *whole,
                             int rank, int ranks, struct network **out);

/* Makes the network and this rank's part, for the data; and, collective, the communicators of the
 * replica's moves and batch norms. */
alnico_status_t trainer_split(struct trainer *trainer);

/* An arena of the parameters or of a state of the optimizer, as the whole network has it: reading is
 * collective if filters are split. */
alnico_status_t trainer_whole_read(struct trainer *trainer, const float *arena, float *out);
alnico_status_t trainer_whole_write(struct trainer *trainer, float *arena, const float *values);
alnico_status_t trainer_meet(struct trainer *trainer);

/* ---- trainer/trainer.c, trainer/graph.c ---- */

/* Waits for everything that was enqueued. */
alnico_status_t trainer_drain(struct trainer *trainer);

/* A run that is not open yet. Its address stays. */
struct trainer trainer_make(const struct trainer_options *options,
                            const struct trainer_place *place);

/* Ends a run after an error, whose status and detail stay. Where the device hangs, what it may
 * still use stays, too. */
alnico_status_t trainer_fail(struct trainer *trainer, alnico_status_t status);

/* The step after which the ranks next settle: for a test, a checkpoint, or the end. */
size_t trainer_until(const struct trainer *trainer);

/* Enqueues all of a pass but its input, and after the last what ends a step: the same calls with
 * the same memory in every step. */
alnico_status_t trainer_compute(struct trainer *trainer);

/* trainer_compute, by replaying a graph of it where that can be. */
alnico_status_t trainer_launch(struct trainer *trainer);

/* ---- trainer/shrink.c ---- */

/* Whether the run can go on after this status of its loop: a rank was lost, and options->shrinks. */
bool trainer_outlives(const struct trainer *trainer, alnico_status_t status);

/* Makes the run anew on the ranks that live, from the last step that one of them has done
 * (collective over them). trainer->shrunk_device and shrunk are to be destroyed at the end. */
alnico_status_t trainer_shrink(struct trainer *trainer);

/* Between steps: keeps a copy of the state now and then, where a step that fails could spoil it. */
alnico_status_t trainer_keep(struct trainer *trainer);
void trainer_forget(struct trainer *trainer);

/* ---- trainer/rehearsal.c ---- */

/* Measures rehearsal_seconds (collective), where the strategy can. */
alnico_status_t trainer_rehearse(struct trainer *trainer);

/* ---- trainer/accumulation.c ---- */

size_t trainer_passes(const struct trainer_options *options);

/* Once there are buckets: prepares for several passes, if there are. */
alnico_status_t trainer_accumulation(struct trainer *trainer);

/* After a backward pass that is not the last: adds it up. */
alnico_status_t trainer_accumulate(struct trainer *trainer);

/* In the last: makes means of the gradients up to *filled, which becomes how far they are. */
alnico_status_t trainer_combine(struct trainer *trainer, size_t *filled);

/* After it: makes means of the gradients of what is this rank's alone, if anything is. */
alnico_status_t trainer_combine_own(struct trainer *trainer);

/* ---- trainer/checkpoint.c, trainer/planned_buckets.c ---- */

/* The state to the file options->save, and from options->load (collective). The stream is idle. */
alnico_status_t trainer_save(struct trainer *trainer);
alnico_status_t trainer_load(struct trainer *trainer);

/* Cuts the gradient arena as the options say, by measuring if they say so (collective). */
alnico_status_t trainer_buckets(struct trainer *trainer);

/* ---- trainer/report.c ---- */

/* Combines `count` numbers of all ranks (collective). */
alnico_status_t trainer_allreduce(struct trainer *trainer, double *values, size_t count,
                                  alnico_op_t op);

/* The score of an outcome summed over the ranks (collective). */
alnico_status_t trainer_score(struct trainer *trainer, const struct outcome *outcome,
                              struct score *out);

/* Once the stream is idle; collective. */
alnico_status_t trainer_report(struct trainer *trainer, struct trainer_report *out);

/* Seconds so far inside the kernels' foreign library. Once the stream is idle. */
double trainer_library(const struct trainer *trainer);

#endif
