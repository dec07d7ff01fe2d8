/*
 * The inside of the room of cuDNN kernels: a network made into steps, each with what it launches
 * forward and backward, and the functions that the files of the room offer each other, file by
 * file. Everything is made on the thread that trains; steps enqueue on the replica's stream and
 * never wait.
 *
 * Values and gradients between steps are [image][row][column][channel] in the working type, their
 * channels padded to a multiple of 8 by zeros. What a loss alone reads of a dense layer is float32,
 * and the values of losses are plain.
 */
#ifndef ALNICO_TRAIN_KERNELS_CUDNN_STEPS_H
#define ALNICO_TRAIN_KERNELS_CUDNN_STEPS_H

#include "base/datatype.h"
#include "train/kernels/cuda/launch.h"
#include "train/kernels/cudnn/engine_cache.h"
#include "train/kernels/kernels.h"
#include "train/kernels/methods.h"

struct cudnn_net;
struct cudnn_step;

/* An operation's weights as they are computed with. */
struct cudnn_weights {
    const struct node *node;
    struct train_fold fold; /* between the arena and what is computed with */
    bool direct;            /* they need no fold: the arena's layout will do */
    void *working;          /* in the working type */
    size_t bytes;           /* of the working weights */
    void *gradient; /* where backward makes theirs: the arena, or scratch to be brought home */
    bool gradient_direct;
};

/* One direction of a convolution, and the engine for it. */
struct cudnn_pass {
    struct convolution convolution;
    struct convolution_memory memory;
    struct engine_choice choice;
    cudnnBackendDescriptor_t pack;
    bool im2col; /* its x is made of the images first: cudnn/im2col_rows.c */
};

/* A plan's step. Which members mean something depends on its first operation. */
struct cudnn_step {
    const struct step *step;
    const struct node *node; /* its first */
    alnico_status_t (*forward)(struct cudnn_net *self, struct cudnn_step *step, bool training);
    alnico_status_t (*backward)(struct cudnn_net *self, struct cudnn_step *step);
    /* The halves of backward (NULL: backward is the first, and the second nothing), and the sums of a
     * batch norm over several ranks. */
    alnico_status_t (*backward_inputs)(struct cudnn_net *self, struct cudnn_step *step);
    alnico_status_t (*backward_parameters)(struct cudnn_net *self, struct cudnn_step *step);
    /* The parts of forward of a step that runs in views. */
    alnico_status_t (*forward_interior)(struct cudnn_net *self, struct cudnn_step *step);
    alnico_status_t (*forward_border)(struct cudnn_net *self, struct cudnn_step *step);
    alnico_status_t (*sums_join)(struct cudnn_net *self, struct cudnn_step *step, bool backward);
    struct train_fold input;      /* of images that it reads: how they are packed */
    void *images;                 /* as they are packed; NULL: it reads none */
    struct train_im2col im2col;   /* of them, how im2col by rows would expand them */
    struct train_strided strided; /* how a gradient that is made without the stride is spread */
    struct cudnn_weights weights;
    struct cudnn_pass passes[3];    /* of a convolution, by direction */
    struct cudnn_pass views[VIEWS]; /* forward of one that runs in views, in place of its pass */
    bool has_data, adds; /* it makes a gradient of its input; and adds it in a pass of its own */
    float *sums; /* of a convolution: of what it makes, then of its squares; NULL: it makes none */
    struct train_norm norm, other;
    /* The convolutions before a step's batch norms; NULL: none. */
    const struct cudnn_step *makers[2];
    struct train_normalise normalise;
    struct train_norm_backward back;
    /* A batch norm with a pooling behind it: on the windows' winners. */
    struct train_norm winners;
    struct train_norm_pool norm_pool;
    struct train_epilogue epilogue;
    struct train_epilogue_backward epilogue_back;
    struct train_local_norm local_norm;
    struct train_concat concat, split; /* forward, backward */
    struct train_pool pool;
    struct train_loss loss;
};

/* A network on the GPU. */
struct cudnn_net {
    struct kernels_setup setup;
    struct cudnn_handle handle;
    struct engine_cache *engines;
    struct train_gpu gpu;
    alnico_datatype_t type; /* the working type */
    struct cudnn_step *steps;
    size_t with_statistics; /* convolutions that make sums */
    size_t im2cols;         /* passes by im2col */
    size_t gemms;           /* passes that are GEMMs */
    size_t strided;         /* gradients by the strided method */
    struct cudnn_bag packs;
    char *own; /* one allocation for all that is not in the arenas */
    size_t own_bytes, own_taken;
    void *working;   /* the arena of parameters in the working type; the arena itself in float32 */
    void *workspace; /* of cuDNN, and of cuBLAS */
    size_t workspace_bytes;
    void *blas_workspace;
    struct train_update update;
};

/* ---- cudnn/tensors.c ---- */

/* The rules of kernels_cudnn for the plan: see plan_rules. */
size_t cudnn_run_rule(const struct network *network, size_t at);
size_t cudnn_bytes_rule(const struct plan *plan, size_t tensor);
void cudnn_needs_rule(const struct plan *plan, const struct step *step, struct step_needs *out);
struct plan_part cudnn_within_rule(const struct plan *plan, size_t tensor);
bool cudnn_divides_rule(const struct plan *plan, const struct step *step);

/* Channels with padding. */
size_t padded_channels(const struct network *network, size_t tensor);
size_t padded_to_eight(size_t channels);

/* Whether a tensor holds logits: float32, made by a dense operation for a loss alone. */
bool is_logits(const struct network *network, size_t tensor);

/* Images times rows times columns of a tensor. */
size_t tensor_rows(const struct plan *plan, size_t tensor);

/* Whether a step reads the images, how they are packed for it, and the bytes of that. */
bool reads_images(const struct step *step);
struct train_fold input_fold(const struct plan *plan, const struct step *step);
size_t fold_bytes(const struct train_fold *fold);

/* How an operation's weights are laid out for computing; whether just as in the arena. */
struct train_fold weights_fold(const struct plan *plan, const struct node *node, bool *direct);

/* The value of input i of a step, packed if it is the images, and its gradient (NULL:
 * not wanted). */
void *step_value(const struct cudnn_net *self, const struct cudnn_step *step, size_t i);
void *step_diff(const struct cudnn_net *self, const struct cudnn_step *step, size_t i);

/* Backward scratch of a step for weights, behind that for a gradient of input 0. */
void *step_scratch_weights(const struct cudnn_net *self, const struct cudnn_step *step);

/* Elements from one row of a tensor to the next: its channels with padding, or those of the tensor
 * that it stands in. */
size_t row_pitch(const struct plan *plan, size_t tensor);

/* Where a convolution leaves its output, and backward finds its gradient: in the tensor's place, or,
 * where that stands in another, in scratch. */
void *step_made(const struct cudnn_net *self, const struct cudnn_step *step, int backward);

/* For the images by `rows`, where that may be taken. */
void *step_scratch_im2col(const struct cudnn_net *self, const struct cudnn_step *step);

/* The layout of what a step of a batch norm, a ReLU and a maximum pooling saves: the x of the
 * windows' winners, then their places, then a mask. */
struct pool_saves {
    size_t index, mask, bytes; /* offsets; bytes of all */
};
struct pool_saves pool_saves(const struct plan *plan, const struct step *step);

/* Whether a convolution should make the sums that a batch norm begins with; and their bytes. */
bool statistics_wanted(const struct plan *plan, const struct step *step);
size_t statistics_bytes(const struct plan *plan, const struct step *step);

/* ---- cudnn/im2col_rows.c ---- */

/* How a step's images may be expanded; zeros: not at all. And the bytes of that. */
struct train_im2col im2col_of(const struct plan *plan, const struct step *step);
size_t im2col_bytes(const struct train_im2col *rows);

/* Makes a pass one of expanded images, if there may be one; expands them before it runs. */
bool im2col_pass(const struct cudnn_net *self, const struct cudnn_step *step,
                 struct cudnn_pass *pass);
alnico_status_t im2col_run(const struct cudnn_net *self, const struct cudnn_step *step,
                           const struct cudnn_pass *pass);

/* About how long it takes to expand them. */
double im2col_us(const struct train_im2col *rows);

/* ---- cudnn/strided_gradient.c ---- */

/* How the gradient of a step's input may be spread (zeros: not at all); the bytes of what is. */
struct train_strided strided_of(const struct plan *plan, const struct step *step);
size_t strided_bytes(const struct train_strided *spread);

/* Makes the pass for the data one without stride into scratch, if it may be; about how long it
 * takes to spread that. */
bool strided_pass(const struct cudnn_net *self, const struct cudnn_step *step,
                  struct cudnn_pass *pass);
double strided_us(const struct train_strided *spread, bool add);

/* ---- cudnn/kernels.c: memory of its own ---- */

/* A piece of the own allocation; NULL never: it was counted before. */
void *own_take(struct cudnn_net *self, size_t bytes);

/* From the host, which may use `from` again, in the stream's order: it does not wait for what the
 * default stream does. */
alnico_status_t copy_in(struct cudnn_net *self, void *to, const void *from, size_t bytes);

/* ---- cudnn/moves.c: see kernels.h ---- */

/* Where a tensor stands in what the one move that reads it makes, if it does so in one piece; zeros: it
 * does not. */
struct plan_part move_within(const struct plan *plan, size_t tensor);

void *cudnn_direct(void *self, const struct box_end *end, const size_t count[AXES]);
alnico_status_t cudnn_copy(void *self, const struct box_copy *copies, size_t count);

/* ---- cudnn/convolution.c, norm.c, dense.c, layers.c, pieces.c: the steps ---- */

/* Fills a step in. Errors: UNSUPPORTED, MEMORY. */
typedef alnico_status_t make_function(struct cudnn_net *self, struct cudnn_step *step);
make_function cudnn_convolution_make, cudnn_norm_make, cudnn_dense_make, cudnn_add_make,
    cudnn_sigmoid_make, cudnn_pool_make, cudnn_local_norm_make, cudnn_dropout_make,
    cudnn_concat_make, cudnn_upsample_make, cudnn_loss_make;

/* About how long a kernel takes that only reads and writes so many bytes. */
double pass_us(size_t bytes);

/* Finds the engines of a convolution, running it; then makes its packs, once there is a
 * workspace. */
alnico_status_t cudnn_convolution_search(struct cudnn_net *self, struct cudnn_step *step);
alnico_status_t cudnn_convolution_finish(struct cudnn_net *self, struct cudnn_step *step);

/* ---- cudnn/weights.c ---- */

size_t weights_own_bytes(const struct plan *plan);
size_t update_own_bytes(const struct network *network);

alnico_status_t weights_make(struct cudnn_net *self, struct cudnn_step *step);

/* Brings a gradient that was made in scratch home to the arena. */
alnico_status_t weights_home(struct cudnn_net *self, const struct cudnn_step *step);

/* ---- cudnn/epilogue.c ---- */

/* What follows a convolution or dense layer in its step: a bias, a ReLU, dropout. Backward dy
 * becomes the gradient of what the layer itself makes. */
void epilogue_make(struct cudnn_net *self, struct cudnn_step *step);
alnico_status_t epilogue_forward(struct cudnn_net *self, const struct cudnn_step *step,
                                 bool training);
alnico_status_t epilogue_backward(struct cudnn_net *self, const struct cudnn_step *step);

/* ---- cudnn/weights.c ---- */

/* A parameter's gradient in the arena. */
void *gradient_at(const struct cudnn_net *self, size_t offset);

/* The tables of the update, copied to the GPU. */
alnico_status_t update_make(struct cudnn_net *self);

/* Copies the parameters into the working weights: all, or after an update, which writes the direct
 * ones itself, the others. */
alnico_status_t weights_refresh(struct cudnn_net *self);
alnico_status_t weights_fold_all(struct cudnn_net *self);

#endif
