/*
 * [SEAM kernels] What computes: a resident turns a network's steps into forward and backward passes
 * over the arenas of one replica.
 *
 * A resident fills one struct kernels_ops. Its functions are called by the replica, one at a time.
 * CPU kernels compute before they return, on whatever thread runs the replica's stream; GPU kernels
 * enqueue on the replica's stream and never wait, so that a pass can be captured into a graph. Steps run forward in the plan's order and backward in the reverse order; every slot is
 * mandatory unless it says otherwise.
 *
 * Values and gradients of activations between steps are in a type and layout of the resident's
 * choice, within the bytes that it asked of the plan; images, parameters, parameter gradients,
 * statistics, and the network's output (of its last loss, float32) are in the layouts of network.h.
 */
#ifndef ALNICO_TRAIN_KERNELS_KERNELS_H
#define ALNICO_TRAIN_KERNELS_KERNELS_H

#include "train/graph/memory_plan.h"
#include "train/graph/part.h"
#include "train/optimizers/optimizer.h"

#include "device/device.h"

/* Control words: they change from step to step and are read from memory, since graphs are replayed.
 * The loss scale and the updates since it last changed are the resident's, and all are part of a
 * checkpoint. An optimizer's updates are counted, if it asks, without those that are left out; at
 * 2^24, where nothing depends on it any more, the count stays. */
enum control_word {
    CONTROL_RATE,
    CONTROL_LOSS_SCALE,
    CONTROL_GOOD_STEPS,
    CONTROL_UPDATES,
    CONTROLS
};

/* The memory of one replica, on the resident's device. It stays where it is. */
struct arenas {
    float *parameters; /* network->parameters */
    void *gradients;   /* network->parameters of the setup's gradient_type */
    /* With several batches a step: the sums of the passes before the last, network->parameters;
     * NULL: not used. */
    float *sums;
    float *states[OPTIMIZER_STATES]; /* the optimizer's: network->parameters each; NULL: not used */
    float *statistics;               /* network->statistics */
    void *activations; /* plan->bytes: values, their gradients, what steps save, scratch */
    float *images;     /* batch x height x width x channels; NULL: the kernels load */
    /* Batch x network->labels; -1: no image, or a pixel without a label. It has no part in loss and
     * gradient. */
    int32_t *labels;
    double *score; /* SCORES, over all batches so far */
    double *joint; /* of a batch norm over several ranks: two sums of each channel */
    double
        *squares;   /* of an update: optimizer_squares; NULL: no parameters are this rank's alone */
    float *control; /* CONTROLS */
    struct draw *draw; /* one: what dropout draws by in the pass at hand, and its backward one */
};

/* How to compute. */
struct kernels_options {
    enum precision precision;
    int threads; /* of the CPU; 0: the resident's own default */
    /* Label smoothing of cross-entropies, 0 to below 1: so much of each label's weight is spread over
     * all classes. */
    float smoothing;
    bool frozen;        /* batch norms use the running statistics in training too, and leave them */
    bool deterministic; /* the same bits in every run that has the same `cache` */
    bool full_float;    /* in fp32, not even TF32 */
    float loss_scale;   /* of fp16; 0: found while training */
    const char *cache;  /* file of measured choices, read and written; NULL: none */
    uint64_t seed;      /* of dropout, the same on all ranks */
};

struct kernels_setup {
    const struct network *network;
    const struct plan *plan;
    const struct arenas *arenas; /* all three outlive the kernels */
    struct kernels_options options;
    alnico_datatype_t gradient_type; /* ALNICO_FLOAT32, or what wire_gradients allows */
    void *stream;                    /* of the device */
};

/* The gradients of other ranks in a row, each block as the arena has them. */
struct gradient_blocks {
    const void *first; /* aligned to 64 bytes */
    size_t stride;     /* elements from one block to the next, a multiple of 64 bytes */
    int count;         /* > 0 */
};

/* The backward passes of a step of several batches. */
enum gradient_pass { PASS_FIRST, PASS_NEXT, PASS_LAST };

/* After a pass: a range of the gradients goes to sums (first), is added to them (next), or becomes
 * (sum + gradient) * share (last). */
struct gradient_part {
    enum gradient_pass pass;
    size_t begin, count;
    float share;
};

/* Numbers on the device that become a sum's mean. */
struct division {
    void *numbers;          /* fastest aligned to 16 bytes */
    alnico_datatype_t type; /* float32; of GPU kernels also what wire_gradients allows */
    size_t count;
    int by; /* > 0 */
};

/* Where a box begins: in a tensor's batch, or in a message, which is the box alone, in the order of
 * images, rows, columns and channels, in the type of the precision. */
struct box_end {
    void *message; /* of the device; NULL: in the tensor */
    size_t tensor;
    bool diff; /* in its gradient */
    size_t from[AXES];
};

/* A box that is copied, or added there; or it becomes zeros. */
struct box_copy {
    struct box_end from, to;
    size_t count[AXES];
    bool add, zero;
};

struct kernels_ops {
    const char *name, *about; /* "onednn"; one line of help */
    alnico_device_t device;   /* where its arenas are, and its stream */
    unsigned precisions;      /* 1 << each enum precision that it has */
    bool wire_gradients;      /* it writes parameter gradients in float16 or bfloat16 as well */

    struct plan_rules rules; /* which operations it takes as one, and what memory it needs */

    /* Bytes that it allocates itself for a network and batch, beyond the arenas: about. Optional:
     * few. */
    size_t (*own_bytes)(const struct plan *plan);

    /* Bytes that it has allocated, once the kernels are made. Optional: own_bytes. */
    size_t (*held_bytes)(const void *self);

    /* Prepares every step. Errors: MEMORY, UNSUPPORTED with what the foreign library or the device
     * cannot do. */
    alnico_status_t (*create)(const struct kernels_setup *setup, void **out);
    void (*destroy)(void *self); /* NULL is fine */

    /* Enqueues taking over a batch of images, batch x height x width x channels on the device:
     * float32 or, with levels (on the device, too), bytes, each of which stands for one of 256
     * values. What was enqueued before it is done with the batch before, and behind it `images` is
     * free. Optional: forward reads arenas->images, and there are no levels. */
    alnico_status_t (*load)(void *self, const void *images, const float *levels);

    /* Makes the value of the step's output from those of its inputs. In training a batch norm that
     * is not frozen uses the batch's mean and (biased) variance, and moves the running ones towards
     * the batch's mean and unbiased variance; otherwise it uses the running ones. A GPU's last
     * loss also adds the batch to arenas->score: the terms as below but summed over the labels, in
     * training smoothed. */
    alnico_status_t (*forward)(void *self, size_t step, bool training);

    /* After a forward pass in training: writes the gradients of the step's parameters, and writes
     * or adds (step->accumulate) those of its inputs. A loss is the mean over all labels of its
     * terms (layers/loss.c), times its weight. With a loss scale, all gradients are multiplied by
     * it. */
    alnico_status_t (*backward)(void *self, size_t step);

    /* Changes arenas->parameters and arenas->states as the optimizer does, by the gradients
     * divided by the loss scale and the rate in arenas->control, and makes what forward reads of
     * them; or, if the gradients are not finite and the loss scale is to be found, lowers that.
     * Optional on the CPU: optimizer_update does it. */
    alnico_status_t (*update)(void *self, const struct optimizer_options *options);

    /* arenas->gradients = (these + the first block + the second + ...) / (1 + blocks), summed in
     * float32 in this order. Optional on the CPU: elementwise_average does it. */
    alnico_status_t (*average)(void *self, const struct gradient_blocks *others);

    /* The two halves of backward: first the gradients of the inputs, then those of the parameters, which
     * are made while the first travel to other ranks. Optional, both. */
    alnico_status_t (*backward_inputs)(void *self, size_t step);
    alnico_status_t (*backward_parameters)(void *self, size_t step);

    /* The two parts of forward of a step that runs in views: its interior, while the halo of its input
     * travels, and its border. Either is the same in training. Optional, both: no step runs so. */
    alnico_status_t (*forward_interior)(void *self, size_t step);
    alnico_status_t (*forward_border)(void *self, size_t step);

    /* Of a batch norm over several ranks (network_joint), before its pass forward in training or
     * backward: this rank's sums to arenas->joint. The pass finds there what all ranks' are, and the
     * gradients of scale and shift are this rank's. Optional, as copy. */
    alnico_status_t (*sums)(void *self, size_t step, bool backward);

    /* Copies boxes for a move between ranks. Only those that are added may meet in what they change.
     * Optional: kernels without it take no network that is split over ranks. */
    alnico_status_t (*copy)(void *self, const struct box_copy *copies, size_t count);

    /* Where a box of a tensor begins that stands in memory as a message does: it travels from and to
     * there. NULL: it does not. Optional: none does. */
    void *(*direct)(void *self, const struct box_end *end, const size_t count[AXES]);

    /* Does that to arenas->gradients and arenas->sums, in float32. Optional on the CPU: the loops of
     * elementwise.h do it. */
    alnico_status_t (*accumulate)(void *self, const struct gradient_part *part);

    /* Divides, correctly rounded: a product with 1 / by would drift. Optional on the CPU:
     * elementwise_divide does it. */
    alnico_status_t (*divide)(void *self, const struct division *division);

    /* After the parameters, statistics or control words were written from outside, on the stream.
     * Optional: forward reads them where they are. */
    alnico_status_t (*loaded)(void *self);

    /* Seconds spent inside the foreign library so far. Optional: NULL if there is none. */
    double (*library_seconds)(const void *self);
};

extern const struct kernels_ops kernels_naive, kernels_onednn;
#ifdef ALNICO_HAVE_CUDNN
extern const struct kernels_ops kernels_cudnn;
#endif

/* The residents, ended by NULL, the first of a device its default; and one by name (NULL if there
 * is none). */
extern const struct kernels_ops *const kernels_all[];
const struct kernels_ops *kernels_find(const char *name);
const struct kernels_ops *kernels_default(alnico_device_t device);

/* Whether GPUs of a compute capability have a precision. Errors: UNSUPPORTED, naming both and what
 * it needs. */
alnico_status_t kernels_capability(enum precision precision, int major, int minor);

/* A tensor's batch: its values (for tensor 0 the images) and its gradient (NULL if
 * nobody needs it); and what a step saves, and its scratch forward (0) or backward (1) (NULL if it
 * has none). */
void *setup_value(const struct kernels_setup *setup, size_t tensor);
void *setup_diff(const struct kernels_setup *setup, size_t tensor);
void *setup_saved(const struct kernels_setup *setup, const struct step *step);
void *setup_scratch(const struct kernels_setup *setup, const struct step *step, int backward);

/* The masks of a dropout, of the rank's box of images, and in the pass at hand, on the CPU: `draw` is
 * counted from the pass's without that. */
struct dropout setup_masks(const struct kernels_setup *setup, size_t node);
struct dropout setup_dropout(const struct kernels_setup *setup, size_t node);

#endif
