/*
 * The inside of the room of oneDNN kernels. Every step of the plan becomes three short sequences
 * (forward in training, forward in inference, backward) of library calls and own passes; a build_
 * function per kind of step makes them, once. All on the thread that trains.
 */
#ifndef ALNICO_TRAIN_KERNELS_ONEDNN_STEPS_H
#define ALNICO_TRAIN_KERNELS_ONEDNN_STEPS_H

#include "train/kernels/boxes.h"
#include "train/kernels/elementwise.h"
#include "train/kernels/kernels.h"
#include "train/kernels/onednn/onednn.h"

struct compiled;

enum { CHANNEL_BLOCK = 16 };

/* A library call, or an own pass over arrays. */
struct action {
    struct call call; /* if there is no pass */
    elementwise_function *pass;
    void (*own)(const struct compiled *, const struct action *); /* that reads more than arrays */
    float *y;
    const float *a, *b;
    size_t count;
    const struct step *step; /* of an own pass */
    bool add;                /* it adds to y */
    bool foreign;            /* an own pass that calls another library: its time is library time */
};

/* Actions one after the other. */
struct sequence {
    struct action *actions;
    size_t count, capacity;
};

struct sequences {
    struct sequence forward, inference, backward; /* inference empty: the same as forward */
    struct sequence parameters; /* behind backward: gradients of weights and biases */
    struct sequence sums[2];    /* before forward, backward: of a batch norm over several ranks */
    struct sequence border;     /* behind forward, which is the interior */
};

/* A network made into sequences. */
struct compiled {
    struct kernels_setup setup;
    struct onednn library;
    struct sequences *steps;
    dnnl_memory_t *values, *diffs; /* by tensor, NULL where there is none */
    bool blocked;   /* activations of a multiple of 16 channels stand in blocks of 16 */
    bool reference; /* some convolution found only the library's slow reference code */
};

/* Makes a step. Errors: MEMORY, UNSUPPORTED. */
typedef alnico_status_t build_function(struct compiled *self, const struct step *step,
                                       struct sequences *sequences);
build_function build_linear, build_norm, build_activation, build_add, build_pool, build_local_norm,
    build_dropout, build_concat, build_upsample, build_loss;

alnico_status_t sequence_append(struct sequence *sequence, const struct action *action);
alnico_status_t sequence_pass(struct sequence *sequence, elementwise_function *pass, float *y,
                              const float *a, const float *b, size_t count);
alnico_status_t sequence_call(struct sequence *sequence, const struct call *call);
alnico_status_t sequence_run(struct compiled *self, const struct sequence *sequence);

/* Whether an image is a row of numbers, [row][column][channel]. */
bool activation_matrix(const struct compiled *self, size_t t);

/* The layout of a tensor's batch; of a plain one as a matrix, a row for each pixel; of `count`
 * numbers. */
alnico_status_t activation_layout(const struct compiled *self, size_t t, dnnl_memory_desc_t *out);
alnico_status_t matrix_layout(const struct compiled *self, size_t t, dnnl_memory_desc_t *out);
alnico_status_t vector_layout(size_t count, dnnl_memory_desc_t *out);

/* Memory objects over `at`. */
alnico_status_t matrix_memory(struct compiled *self, size_t t, float *at, dnnl_memory_t *out);
alnico_status_t vector_memory(struct compiled *self, float *at, size_t count, dnnl_memory_t *out);

/* Elements of a tensor's batch. */
size_t batch_elements(const struct compiled *self, size_t t);

/* Where the channels of a tensor's pixels stand. */
struct runs activation_runs(const struct compiled *self, size_t t);

/* Whether a tensor's channels stand side by side, in whichever layout the network is. */
bool activation_plain(const struct network *network, size_t t);

/* Whether a step is a convolution of whole rows, so that its views stand in memory as tensors do. */
bool linear_divides(const struct plan *plan, const struct step *step);

/* Makes what of a dense layer, whose input is a matrix, OpenBLAS makes faster than oneDNN: nothing, the
 * gradients, or all. */
enum { DENSE_NOTHING, DENSE_GRADIENTS, DENSE_ALL };
alnico_status_t dense_products(const struct compiled *self, const struct step *step,
                               struct sequences *sequences, int *made);

/* Appends a call that makes the gradient of the step's input 0, which becomes its argument: in its
 * place, or in scratch if nobody needs it or it is to be added there, by a pass behind the call, or by
 * the caller if `own`. */
alnico_status_t sequence_diff(struct compiled *self, const struct step *step, struct call *call,
                              bool own, struct sequence *sequence);

/* Room for one more gradient of the step's input, beyond that of sequence_diff. */
float *step_scratch(const struct compiled *self, const struct step *step);

/* Dimensions of weights in the library's order: outputs, inputs, of a convolution rows and columns. */
struct weight_shape {
    int count;
    dnnl_dims_t dims;
    dnnl_format_tag_t plain; /* how they are in the arenas */
};

/* A node's weights and biases: plain in the arenas, in the library's layout in its calls. */
struct weights {
    dnnl_memory_desc_t plain, any, bias;
    dnnl_memory_t memory, gradient, bias_memory, bias_gradient; /* in the arenas */
    bool biased;
};

alnico_status_t weights_describe(struct compiled *self, const struct node *node,
                                 const struct weight_shape *shape, struct weights *out);

/* The weights in the wanted layout, copied there by the sequence if it is another. */
alnico_status_t weights_load(struct compiled *self, const struct weights *weights,
                             const dnnl_memory_desc_t *wanted, struct sequence *sequence,
                             dnnl_memory_t *out);

/* Appends a gradient call whose weights come out in the layout `made`, and brings them home. */
alnico_status_t weights_store(struct compiled *self, const struct weights *weights,
                              const dnnl_memory_desc_t *made, struct call *call,
                              struct sequence *sequence);

#endif
