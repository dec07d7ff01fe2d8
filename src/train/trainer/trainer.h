/*
 * Training: the loop over batches, its clock, and the test. The program alnico-train and the tests
 * call it; everything runs on the caller's thread and on the stream that it is given, apart from
 * what prepares data and what communicates.
 */
#ifndef ALNICO_TRAIN_TRAINER_TRAINER_H
#define ALNICO_TRAIN_TRAINER_TRAINER_H

#include "train/replica/phase_timer.h"
#include "train/strategies/strategy.h"
#include "train/trainer/step_profile.h"

#include <stdatomic.h>

/* "input", ... */
const char *phase_name(enum phase phase);

/* Loss and accuracy over some images, or where each pixel has a label over their pixels. */
struct score {
    double loss;     /* mean over labels */
    double accuracy; /* 0 to 1 */
    size_t images;
};

/* How far training is. Only rank 0 is told, after each step and each test; where the stream runs
 * behind the host, some steps together and late. */
struct trainer_progress {
    size_t step, epoch; /* steps done; the epoch that the last one belongs to, from 1 */
    double done;        /* share of the run, 0 to 1 */
    double seconds;     /* of training so far */
    size_t images;      /* this rank's, so far */
    double rate;        /* learning rate of the last step */
    struct score score; /* this epoch so far on this rank; over all ranks with a test */
    struct outcome
        latest; /* the steps since the last call, on this rank; of a split network, on all */
    double latest_phases[PHASES]; /* seconds, of the same */
    size_t latest_steps;          /* how many these are; 0 with a test */
    const double *latest_seconds; /* of each of them; until the call returns */
    struct score test;            /* over all ranks and test images, if `tested` */
    bool tested;
};

/* The rule by which gradients are cut into buckets. */
enum bucket_rule { BUCKETS_OF_SIZE, BUCKETS_OF_COUNT, BUCKETS_PLANNED };

struct trainer_options {
    const char *model, *data, *kernels, *strategy; /* names; data as in data.h */
    /* How the network is split over the ranks, as split_parse takes it (NULL: by images), and over
     * which of them batch norms are. */
    const char *split;
    enum norm_group norm;
    size_t batch; /* images per rank and pass, > 0; of a split network, per part of the images */
    size_t
        accumulate; /* batches a step, whose gradients are averaged before the ranks meet; 0: 1 */
    size_t steps;   /* length of the run; of steps, epochs, seconds exactly one is not 0 */
    size_t epochs;
    double seconds;        /* about: the ranks agree on the time every few steps */
    size_t classes;        /* of the labels; 0: as the data say */
    size_t skip_bad;       /* images that each rank may find unreadable, and leave out */
    size_t shuffle_block;  /* training images that stay near each other, as in shuffle.h; 0: all */
    unsigned augment;      /* of training images, AUGMENT_ bits as in source.h */
    size_t tests;          /* test images over all ranks, rounded up to whole batches; 0: no test */
    size_t validate_every; /* steps between two tests besides those after each epoch; 0: none */
    uint64_t seed;         /* of parameters, shuffle and augmentation; equal on all ranks */
    struct kernels_options compute;
    struct optimizer_options optimizer;

    alnico_datatype_t wire; /* what gradients travel as: ALNICO_FLOAT32, FLOAT16 or BFLOAT16 */
    /* Encodes gradients of FLOAT32 for the wire; ops NULL or none: they travel as `wire`. */
    struct codec codec;
    enum bucket_rule rule;
    size_t buckets; /* OF_SIZE: bytes on the wire, at least an element's; OF_COUNT: how many, > 0 */
    /* Of strategies that average parameters: steps between two averages, > 0; whether those are of
     * the optimizer's states and the running statistics, too; and whether a rank's first parameters
     * are of the seed plus its rank. */
    size_t every;
    bool average_state, own_seeds;
    /* Gradients meet after the backward pass, not during it, and nothing is computed beside moves. */
    bool late;
    /* Strategy async: */
    bool bounded; /* workers are at most `staleness` steps apart */
    size_t staleness;
    const char *record, *replay; /* files for, and of, interleavings; NULL: none */
    size_t loaders;              /* threads that prepare batches; 0: the one that trains does */
    size_t prefetch;             /* batches that they prepare ahead, with loaders > 0 */
    bool pageable; /* batches are copied to a GPU from memory that is not pinned, one at a time */
    bool no_graph; /* launch by launch, where a step could be one graph of the device */
    size_t memory_limit; /* bytes of the device; 0: what is there */

    const char *save;  /* file for a checkpoint at the end; NULL: none */
    size_t save_every; /* steps between two more of them; 0: none */
    /* Checkpoint to go on from; NULL: none. Steps and epochs include those done. */
    const char *load;

    /* When a rank is lost the others go on by alnico_comm_shrink, from the last step that one of them
     * has done, or on a stream, or if the ranks' parameters differ between averages, the last that it
     * kept, with the images of all: steps are fewer images then, and as many more. Of place->host, on the
     * CPU, with strategy allreduce or weights. Otherwise the run ends. */
    bool shrinks;

    void (*progress)(void *context, const struct trainer_progress *progress); /* NULL: none */
    void *context;
    /* Once this is true on any rank, the run ends on all after the same step, with its checkpoint
     * but without a test that is not due. The ranks agree on it every eight steps or, where those
     * take longer, every second; on a stream the steps that it was given already end, too. On all
     * ranks or on none; NULL: none. */
    const atomic_bool *stop;
};

/* The communicators and the stream of a run. The kernels decide on the device. */
struct trainer_place {
    alnico_comm_t host;   /* on the CPU's inline stream, one rank each; NULL trains alone */
    alnico_comm_t device; /* of the same ranks, on the kernels' device and `stream`; NULL: host */
    void *stream;         /* where all computing is enqueued; NULL: the CPU's inline stream */
    /* The part of a split network that runs by itself, of so many: its moves and sums bring zeros. With
     * parts 0 it is the rank's. */
    int part, parts;
};

/* The result, equal on all ranks but where it says otherwise. */
struct trainer_report {
    int ranks;
    int lost;   /* ranks that it began with besides */
    bool first; /* this is the lowest rank that ended it; differs between ranks */
    size_t parameters, steps;
    size_t own_steps; /* without those before the checkpoint that it went on from */
    double epochs;
    double seconds;        /* of training, tests excluded; the slowest rank's */
    double step_seconds;   /* the median of the steps after the first tenth, at most 20 of them; the
                             * slowest rank's */
    double phases[PHASES]; /* seconds, mean over the ranks; with a server rank 0's */
    double communication;  /* the same, if nothing of it were hidden: what one step's takes by
                             * itself, times the steps; 0: not measured */
    double library_seconds; /* inside the kernels' foreign library, the same; 0 if it has none */
    double test_seconds;
    double images_per_second; /* over all ranks */
    struct score train;       /* the last (part of an) epoch */
    struct score test;
    struct strategy_staleness staleness; /* of all ranks' pushes; strategies without: zeros */
    uint64_t hash;                       /* of the parameters */
    bool graph;                          /* steps were replays of one graph */
    bool stopped;                        /* before its end, as options->stop said */
    struct replica_memory memory;
    size_t skipped;    /* images that could not be read: the most of a rank */
    size_t buckets;    /* in which the gradients travelled */
    size_t wire_bytes; /* that a rank sends in a step, mean over the ranks, if all algorithms send
                        * the least; 0: not counted */
    size_t move_bytes; /* that a rank sends besides in the moves of a step, mean over the ranks */
};

/* Trains from the seed or the checkpoint on. From a checkpoint the parameters become what they
 * would have become without stopping; to the bit if deterministic, on a GPU with the same plan
 * file. Errors: ARGUMENT (an option, named with its value; bad data; a checkpoint that is damaged
 * or of another run); MISMATCH if at the end the ranks' parameters differ; MEMORY, naming the
 * largest batch that fits; SYSTEM if the loss or a parameter is not a number any more, or a
 * checkpoint cannot be read or written; whatever communication and kernels report. On an error the
 * place's communicators are aborted, so that no other rank waits for this one. */
alnico_status_t trainer_run(const struct trainer_options *options,
                            const struct trainer_place *place, struct trainer_report *report);

/* True if the options split the network over the ranks. */
bool trainer_splits(const struct trainer_options *options);

/* Parts of the images in a run on so many ranks: each takes a batch of its own. */
size_t trainer_image_parts(const struct trainer_options *options, int ranks);

/* The memory that a run would take of the rank's device that needs the most, without making it. */
struct trainer_needs {
    struct network *whole; /* of which `network` is a rank's part; NULL: it is all */
    struct network *network;
    struct plan *plan; /* of the activations */
    struct replica_memory memory;
    size_t available; /* the options' limit, or what the device has now; 0: unknown */
    size_t largest;   /* batch for that; 0: none, or unknown */
};

/* Opens the data to learn the images' shape. The caller ends *out by trainer_needs_free, on errors
 * too. Errors: as trainer_run's of its options. */
alnico_status_t trainer_measure(const struct trainer_options *options, int ranks,
                                struct trainer_needs *out);
void trainer_needs_free(struct trainer_needs *needs);

/* A run's network with every operation by itself, to count what they make and move. */
struct trainer_description {
    struct network *network;
    struct plan_rules rules; /* tensors have the bytes that the run's kernels hold them in */
    struct plan *plan;
};

/* options->data NULL: for images as the model is usually trained on. The caller ends *out by
 * trainer_description_free, on errors too. Errors: as trainer_run's of its options. */
alnico_status_t trainer_describe(const struct trainer_options *options,
                                 struct trainer_description *out);
void trainer_description_free(struct trainer_description *description);

/* Times of each step of a run's network on this rank alone, on the device that the calling thread
 * uses. */
struct trainer_times {
    struct network *network;
    struct replica *replica;
    struct profile profile;
};

/* With the first batch of the data. stream: of the kernels' device; NULL on the CPU. The caller
 * ends *out by trainer_times_free, on errors too. Errors: as trainer_run's of its options. */
alnico_status_t trainer_profile(const struct trainer_options *options, void *stream,
                                struct trainer_times *out);
void trainer_times_free(struct trainer_times *times);

/* A wait for other ranks in a pass of a split network, for boxes or sums. */
struct trainer_move {
    size_t bucket;          /* 1 + the one that backward fills next; 0: in the forward pass */
    size_t messages, bytes; /* of the rank with the most: sent or received, whichever are more */
    double beside; /* seconds of computing from where they leave to where they are needed */
};

enum { TRAINER_SIZES = 4 };

/* Costs of communicating a run's gradients, bucket by bucket in the order in which backward fills
 * them: means over the ranks of medians of some passes. */
struct trainer_communication {
    size_t buckets;
    size_t *bytes;    /* of a bucket on the wire */
    double *seconds;  /* of its allreduce alone; 0 on one rank */
    double *backward; /* seconds of the backward pass that fill it */
    /* At most 1: the share of communication that goes on beside computing; below 0 both together take
     * longer than one after the other. */
    double hidden;
    bool own;     /* of some gradients each rank has its own */
    size_t moves; /* of a step of a split network, in their order; 0: none */
    struct trainer_move *move;
    /* Messages from rank to rank, each sending one while it receives one. */
    size_t message_bytes[TRAINER_SIZES];
    double message_seconds[TRAINER_SIZES];
};

/* With place->parts, passes are those of the part by itself. Collective. The caller ends *out by
 * trainer_communication_free, on errors too. Errors: as trainer_run's; the place's communicators are
 * aborted then. */
alnico_status_t trainer_communication(const struct trainer_options *options,
                                      const struct trainer_place *place,
                                      struct trainer_communication *out);
void trainer_communication_free(struct trainer_communication *communication);

/* FNV-1a (Fowler, Noll, Vo) of `bytes` bytes, 64 bits. */
uint64_t trainer_hash(const void *data, size_t bytes);

/* Collective: MISMATCH unless `hash` is the same on all ranks. comm NULL: fine. */
alnico_status_t trainer_compare(uint64_t hash, alnico_comm_t comm);

#endif
