/*
 * [SEAM layer] Kinds of operations: the shape that each makes, its parameters, their first values,
 * its cost, and plain loops forward and backward, the oracle of all kernels. A kind is a struct
 * layer_ops; to add one: its enumerator, its file, its line in layers/table.c. Networks, kernels
 * and the profile read the table; any thread.
 *
 * Layouts. Activations: [image][height][width][channel]. Convolution weights: [filter][row][column]
 * [channel]. Dense weights: [output][input], the input in the order of its activation. Everything
 * is float32.
 */
#ifndef ALNICO_TRAIN_LAYERS_LAYER_H
#define ALNICO_TRAIN_LAYERS_LAYER_H

#include "train/layers/box.h"
#include "train/layers/dropout.h"

#include <alnico/alnico.h>

#include <stdbool.h>
#include <stdint.h>

enum { NETWORK_NAME_BYTES = 32, NETWORK_MAX_SIDE = 1 << 16, NETWORK_INPUTS = 8 };

/* The most numbers in one image of a tensor, or in a weight: products of sizes stay far below
 * 2^64. */
#define NETWORK_MAX_ELEMENTS ((size_t)1 << 31)

/* Batch norm adds this to the variance, and moves its running statistics by this share per
 * batch. */
#define NETWORK_NORM_EPSILON 1e-5f
#define NETWORK_NORM_MOMENTUM 0.1f

enum operation_kind {
    OPERATION_CONVOLUTION,  /* filters, window, stride, pad, bias */
    OPERATION_BATCH_NORM,   /* over images, rows and columns, for each channel */
    OPERATION_RELU,         /* max(x, 0) */
    OPERATION_SIGMOID,      /* 1 / (1 + exp(-x)) */
    OPERATION_ADD,          /* of two tensors of one shape */
    OPERATION_MAX_POOL,     /* window, stride, pad, ceil; padding never wins */
    OPERATION_AVERAGE_POOL, /* the same (window 0: the whole image); padding is not counted */
    OPERATION_DENSE,        /* filters; always with a bias */
    OPERATION_LOCAL_NORM,   /* local response norm: window, in channels; alpha, beta, k */
    OPERATION_DROPOUT,      /* rate; nothing but a copy outside training */
    OPERATION_CONCAT,       /* the channels of up to NETWORK_INPUTS tensors, in their order */
    OPERATION_UPSAMPLE,     /* each pixel becomes stride x stride; pad: left out at far ends */
    /* Losses of one label a pixel. The last operation is one; nothing reads what one makes. */
    OPERATION_CROSS_ENTROPY, /* of the softmax over the channels */
    OPERATION_SQUARED_ERROR, /* mean over the channels; target: 1 in the label's, 0 in the others; of
                              * one channel the label as a number */
    /* Of a network that is split over ranks (graph/split.h): another box of a tensor than this rank
     * holds. The replica carries it out. */
    OPERATION_MOVE,
    OPERATION_KINDS
};

/* Sums over batches: of losses, of labels that the output is right about, of labels. */
enum score_sum { SCORE_LOSS, SCORE_CORRECT, SCORE_TERMS, SCORES };

/* One operation. It makes one tensor, which has the operation's name. */
struct operation {
    enum operation_kind kind;
    char name[NETWORK_NAME_BYTES];
    char in[NETWORK_INPUTS][NETWORK_NAME_BYTES]; /* tensors read: "input" or earlier names */
    size_t filters;                              /* output channels */
    size_t window, stride, pad; /* of a square window, in pixels; pad on all four sides */
    bool bias;                  /* convolution: add one number per filter */
    bool zero;                  /* batch norm: scales begin as 0, not 1 */
    bool ceil;                  /* pooling: a last window may reach over the end of the image */
    float alpha, beta, k; /* local norm: y = x / (k + alpha / window * sum of squares) ^ beta */
    float rate; /* dropout: of elements that become 0, a multiple of 2^-16; others / (1 - rate) */
    double loss_weight; /* of a loss among several, for its gradient; 0: 1 */
};

/* A tensor: one image's part of it. */
struct tensor {
    size_t height, width, channels;
    size_t readers; /* operations that read it */
};

/* A part of the parameter and gradient arenas, or of that of statistics. */
struct parameter {
    size_t offset, count; /* elements; count 0: there is none */
};

struct node {
    struct operation operation;
    size_t in[NETWORK_INPUTS], inputs; /* tensors read; the node at index i makes tensor i + 1 */
    size_t pad_rows, pad_columns;      /* of a window: before the first row and column */
    struct parameter weight, bias;     /* a batch norm's scale and shift */
    struct parameter statistics;       /* running: `channels` means, then `channels` variances */
};

/* Arguments of the plain loops of one operation. */
struct layer_pass {
    const struct node *node;
    const struct tensor *in, *out;   /* of input 0 */
    size_t channels[NETWORK_INPUTS]; /* of the inputs */
    size_t batch, rows, columns;     /* images; rows, columns: of the window */
    const struct box *only; /* of windows, forward: what is made of the output; NULL: all */
    const float *x[NETWORK_INPUTS];
    float *y;
    float *dx[NETWORK_INPUTS], *dy; /* backward adds to dx; NULL: not wanted */
    const float *weight, *bias;
    float *dweight, *dbias;
    float *running;
    double *moments; /* as statistics: the batch's own, from forward to backward */
    double *joint;   /* sums over ranks; NULL: a batch norm is of this rank's batch alone */
    double pixels;   /* of a channel on those ranks */
    const int32_t *labels;
    double smoothing;
    double terms;          /* of a loss: its gradients are divided by them */
    bool training, frozen; /* see kernels.h */
    struct dropout dropout;
};

/* Rates of a device. */
struct profile_rates {
    double bytes_us; /* moved by a copy: read and written */
    double flops_us; /* 2 for each product of two matrices, in the precision */
};

/* The cost of one pass of one step. Kernels run one after the other, so that their least times add
 * up. */
struct step_cost {
    const struct profile_rates *rates;
    double bytes; /* read and written, nothing being in a cache */
    double flops; /* 2 for each product of a convolution or dense layer */
    double least_us;
};

/* A step of a plan, which begins with an operation of the kind. */
struct layer_work {
    const struct operation *operation;
    size_t inputs;
    double in[NETWORK_INPUTS], out, mask; /* bytes of values; of a bit for each element of out */
    double added[NETWORK_INPUTS];         /* bytes of gradients of inputs that are added to */
    double weights, flops;                /* bytes; forward */
    bool images;                          /* input 0 has no gradient */
    bool two, relu, pool;                 /* begins with two batch norms; what it ends with */
};

/* How the channels of a layer's output can be split over ranks: not at all; each is made of the same
 * channel of the inputs; each is a filter with weights and a bias of its own. */
enum layer_channels { CHANNELS_TOGETHER, CHANNELS_EACH, CHANNELS_FILTERS };

struct layer_ops {
    const char *name; /* "convolution" */
    size_t inputs;    /* 1 to NETWORK_INPUTS; 0: as many as the operation names */
    bool decays;      /* weight decay and LARS are for its weights */
    bool draws;       /* random numbers, in training */

    /* Checks the operation, fills in *out, which is input 0's shape before, and the sizes of the
     * node's parameters and statistics. Errors: ARGUMENT, naming the operation. Optional. */
    alnico_status_t (*shape)(struct node *node, const struct tensor *const in[],
                             struct tensor *out);

    /* The pixels of an input that a box of the output's are made of; *box is that before. It may
     * reach over the ends of the image. Optional: the same pixels. */
    void (*reads)(const struct node *node, const struct tensor *in, struct box *box);
    bool margins;      /* zeros stand there; otherwise it looks where the image ends */
    bool reads_images; /* with window 0: all pixels */
    enum layer_channels channels;

    /* First values of weights and statistics; biases are 0. `channels`: of the output; `state`: of
     * random numbers. Optional if there are none. */
    void (*initialize)(const struct node *node, size_t channels, uint64_t state, float *weights,
                       float *statistics);

    /* Adds the kernels of a step, by cost_add. */
    void (*cost)(const struct layer_work *work, bool backward, struct step_cost *cost);

    /* As kernels.h says of forward and backward. Backward reads the values of inputs, or of the
     * output, again if so told. */
    void (*forward)(const struct layer_pass *pass);
    void (*backward)(const struct layer_pass *pass);
    bool reads_inputs, reads_output;

    /* Writes this rank's two sums of each channel to pass->joint, before the forward or the backward
     * pass that reads those of all ranks there. Of batch norms only. */
    void (*sums)(const struct layer_pass *pass, bool backward);

    /* Of losses only: labels are below this; and adds a batch, by the output, to the SCORES. */
    size_t (*classes)(const struct tensor *in);
    void (*score)(const struct layer_pass *pass, double *score);
};

extern const struct layer_ops layer_convolution, layer_batch_norm, layer_relu, layer_sigmoid,
    layer_add, layer_max_pool, layer_average_pool, layer_dense, layer_local_norm, layer_dropout,
    layer_concat, layer_upsample, layer_cross_entropy, layer_squared_error, layer_move;

/* By kind. */
extern const struct layer_ops *const layers_all[OPERATION_KINDS];

/* "convolution", "batch norm", ... */
const char *operation_kind_name(enum operation_kind kind);

/* A loss's weight. */
double loss_weight(const struct operation *operation);

static inline bool is_loss(const struct operation *operation)
{
    return layers_all[operation->kind]->score != NULL;
}

/* Numbers in one image of a tensor. */
static inline size_t tensor_elements(const struct tensor *tensor)
{
    return tensor->height * tensor->width * tensor->channels;
}

/* Adds a kernel that moves so many bytes and makes so many products. */
void cost_add(struct step_cost *cost, double bytes, double flops);

#endif
