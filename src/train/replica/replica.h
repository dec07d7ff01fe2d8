/*
 * One rank's copy of a network at work: the arenas, the kernels on them, and a pass forward and
 * backward for one batch, on a stream of the kernels' device. The trainer and the tests drive it,
 * on one thread. On the CPU's inline stream (NULL) everything is done when a call returns; on any
 * other stream calls enqueue, and what fails there is reported by a later call.
 */
#ifndef ALNICO_TRAIN_REPLICA_REPLICA_H
#define ALNICO_TRAIN_REPLICA_REPLICA_H

#include "train/base/phase.h"
#include "train/graph/moves.h"
#include "train/kernels/kernels.h"
#include "train/replica/stream_wait.h"

/* Buffers for batches that are copied ahead; values of a byte. */
enum { REPLICA_BUFFERS = 2, REPLICA_LEVELS = 256 };

/* Memory of the device that the caller takes for the replica. */
struct replica_extras {
    size_t batches;   /* of images and labels */
    size_t gradients; /* bytes for each gradient */
};

struct replica_setup {
    const struct kernels_ops *kernels;
    size_t batch; /* images, > 0; of a network that is split over ranks, those of all of them */
    /* The ranks of a split network, on the device and stream of the kernels. NULL: the part runs by
     * itself, and what others would send is zeros. */
    alnico_comm_t comm,
        norms; /* norms: those of this rank's batch norms, if they are over several */
    bool late; /* nothing is computed while gradients travel in moves */
    uint64_t seed;
    bool sums; /* of the gradients of several passes */
    /* On a stream that is not inline batches are copied beside computing, from pinned memory.
     * False: each waits for all that was enqueued; its memory may be any. */
    bool ahead;
    /* Images come as bytes, with the value of each (REPLICA_LEVELS): kernels that load take them.
     * NULL: as float32. Read while the replica is made. */
    const float *levels;
    struct kernels_options options;
    /* ALNICO_FLOAT32, or what the kernels' wire_gradients allows. */
    alnico_datatype_t gradient_type;
    enum optimizer_kind optimizer;
    void *stream;        /* of the kernels' device; NULL: the CPU's inline stream */
    size_t memory_limit; /* bytes of the device that may be used; 0: what there is */
    struct replica_extras extras;
};

struct replica_input;
struct replica_moves;
struct replica_job;
struct replica_failure;

/* Is told before the stream waits for other ranks in a pass, which it was in, and behind the wait; and
 * where what it waits for begins to travel. NULL: nobody. */
struct replica_waiting {
    void *context;
    alnico_status_t (*mark)(void *context, enum phase ended);
    alnico_status_t (*start)(void *context, size_t step, bool backward);
};

/* Fields are read by the trainer, the strategies and the tests. */
struct replica {
    const struct network *network;
    const struct kernels_ops *ops;
    const struct device_ops *device;
    struct plan *plan;
    struct kernels_setup setup;
    struct replica_setup asked;
    struct arenas arenas;
    void *kernels;
    void *stream;
    struct stream_wait wait;      /* of the host for the stream */
    struct device_event *reached; /* what it waits for */
    struct replica_input *input;
    struct replica_moves *moves;
    struct replica_waiting waiting;
    struct replica_job *jobs;        /* some for each step, the update and the average */
    struct replica_failure *failure; /* the first of those that failed */
};

/* Sums over some batches. */
struct outcome {
    double loss;    /* sum over labels */
    size_t correct; /* labels that the output is right about */
    size_t count;   /* labels, of images or of pixels */
    size_t images;
};

/* Bytes of the device that a replica takes, with what stands beside it. */
struct replica_memory {
    size_t parameters, optimizer, statistics;
    size_t gradients;   /* and what stands beside them */
    size_t images;      /* and labels, of all batches */
    size_t activations; /* the plan's one allocation */
    size_t messages;    /* of moves between the ranks of a split network */
    size_t kernels;     /* the resident's own; about, before it is made */
    size_t total;
};

/* The memory of a replica that is made. */
struct replica_memory replica_memory(const struct replica *replica);

/* For a network and setup, without allocating. Errors: as plan_create. */
alnico_status_t replica_measure(const struct network *network, const struct replica_setup *setup,
                                struct replica_memory *out);

/* The largest batch whose replica takes at most `bytes`; 0: none. Errors: as plan_create. */
alnico_status_t replica_largest(const struct network *network, const struct replica_setup *setup,
                                size_t bytes, size_t *batch);

/* Errors: MEMORY if the replica takes more than the setup's limit or the device's available memory,
 * naming the largest batch that fits. */
alnico_status_t replica_fits(const struct network *network, const struct replica_setup *setup);

/* Allocates and plans for a finished network, which must outlive the replica; parameters and
 * statistics are initialised from the seed. Passes of a rank's part of a network are collective. Errors: as plan_create, replica_fits and the kernels'
 * create; UNSUPPORTED (a precision that the kernels lack). */
alnico_status_t replica_create(const struct network *network, const struct replica_setup *setup,
                               struct replica **out);

/* Waits for the stream first. NULL is fine. */
void replica_destroy(struct replica *replica);

/* Brings count images and their labels in, at most the batch, of a split network at most those that the
 * rank has boxes of; they and their labels come whole, and the rank takes its boxes of them; what is left of the batch is zero bytes and
 * counts as no image. Of several labels an image some may be -1, which have no part in the loss.
 * The caller's memory is free again when this returns. Errors: ARGUMENT (more than the batch, or a
 * label that is no class). */
alnico_status_t replica_load(struct replica *replica, const void *images, const int32_t *labels,
                             size_t count);

/* replica_load in two steps that wait for no copy of this batch. Send enqueues its copy to the
 * device, for which the replica's stream waits; the images stay until the next send has returned.
 * Take makes it what forward reads, on the replica's stream. */
alnico_status_t replica_send(struct replica *replica, const void *images, const int32_t *labels,
                             size_t count);
alnico_status_t replica_take(struct replica *replica);

/* Images of a batch that this rank counts: of those that several have boxes of, the first does. */
size_t replica_counted(const struct replica *replica);

/* Runs all steps on what was loaded. */
alnico_status_t replica_forward(struct replica *replica, bool training);

/* Runs all steps backward. After each, `filled` is called (unless NULL) with the number of elements
 * at the front of the gradient arena that are final, in the stream's order. */
alnico_status_t replica_backward(struct replica *replica,
                                 alnico_status_t (*filled)(void *context, size_t elements),
                                 void *context);

/* Changes the parameters by the gradients, at the rate in arenas.control. The options must outlive
 * what is enqueued. */
alnico_status_t replica_update(struct replica *replica, const struct optimizer_options *options);

/* Makes the gradients the mean of themselves and others, which stay where they are. */
alnico_status_t replica_average(struct replica *replica, const struct gradient_blocks *others);

/* Makes a sum a mean; the division stays where it is until the stream has run it. */
alnico_status_t replica_divide(struct replica *replica, const struct division *division);

/* The outcome of a forward pass for the loaded batch, without its images, on the CPU's inline
 * stream. */
struct outcome replica_outcome(const struct replica *replica);

/* Waits for the stream, as stream_wait_for does. Returns what failed on it, if anything did. */
alnico_status_t replica_synchronize(struct replica *replica);

/* Copies between an arena and host memory, and waits. After a write of parameters, statistics or
 * control words the kernels are told. */
alnico_status_t replica_read(struct replica *replica, const void *arena, void *out, size_t bytes);
alnico_status_t replica_write(struct replica *replica, void *arena, const void *data, size_t bytes);

/* ---- For replica.c and replica_memory.c: replica_moves.c ---- */

/* Whether a step is a move. Bytes of the messages of all. */
bool replica_moves_step(const struct plan *plan, size_t step);
alnico_status_t replica_moves_measure(const struct plan *plan, size_t *bytes);

/* Bytes that this rank sends in the moves of a forward and a backward pass. */
size_t replica_moves_sent(const struct replica *replica);

/* Whether a move does nothing: of gradients that nobody needs it is left out, on all ranks. */
bool replica_moves_nothing(const struct plan *plan, size_t step, bool backward);

/* Waits for other ranks in a forward and a backward pass, at most. What this rank sends or receives
 * before one of them, whichever are more; sums count as recursive doubling's. */
struct replica_messages {
    size_t count, bytes;
};
size_t replica_waits(const struct replica *replica);
struct replica_messages replica_messages(const struct replica *replica, size_t step);

/* What was made before an error is for destroy. */
alnico_status_t replica_moves_create(struct replica *replica);
void replica_moves_destroy(struct replica *replica);

/* A move's parts. Messages travel from start to wait; what stays on the rank is copied meanwhile. One
 * move at a time. */
alnico_status_t replica_moves_pack(struct replica *replica, size_t step, bool backward);
alnico_status_t replica_moves_start(struct replica *replica, size_t step, bool backward);
alnico_status_t replica_moves_keep(struct replica *replica, size_t step, bool backward);
alnico_status_t replica_moves_wait(struct replica *replica, bool backward);
alnico_status_t replica_moves_unpack(struct replica *replica, size_t step, bool backward);

/* Whether a step in training is a batch norm over several ranks; adds up their sums. */
bool replica_joint(const struct replica *replica, size_t step);
alnico_status_t replica_join(struct replica *replica, size_t step, bool backward);

/* ---- For replica.c: replica_update.c ---- */

/* On the CPU an update, or what comes before it: squared lengths of what is this rank's alone. Whether
 * that is needed; and adds them up over the ranks. */
alnico_status_t replica_update_run(struct replica *replica, const struct optimizer_options *options,
                                   bool squares);
bool replica_own_squares(const struct replica *replica, const struct optimizer_options *options);
alnico_status_t replica_squares_join(struct replica *replica);

/* After a step's backward pass: gradients of this rank's own parameters become means over the ranks. */
alnico_status_t replica_own_divide(struct replica *replica, size_t step);

/* ---- replica_input.c ---- */

/* What batches come in by. What was made before an error is for destroy. */
alnico_status_t replica_input_create(struct replica *replica);
void replica_input_destroy(struct replica *replica);

/* Labels of a batch; buffers for batches besides the arenas'; bytes of an image as it comes. */
size_t replica_labels(const struct replica *replica);
size_t replica_buffers(const struct replica_setup *setup);
size_t replica_image_bytes(const struct replica_setup *setup, const struct network *network);

#endif
