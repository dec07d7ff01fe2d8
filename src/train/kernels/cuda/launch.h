/*
 * Launchers of the trainer's own GPU kernels. Each enqueues on a stream of the current device,
 * waits for nothing, and returns a cudaError_t. All give the same bits in every run. Called by the
 * cuDNN kernels.
 *
 * Activations are [image][row][column][channel] with the channels padded to a multiple of 8 by
 * zeros: `rows` are images times rows times columns, `padded` the channels with padding. Pointers
 * to activations and to weights are aligned to 16 bytes. `type` is an alnico_datatype_t: FLOAT32,
 * BFLOAT16 or FLOAT16; sums are float32 or better.
 */
#ifndef ALNICO_TRAIN_KERNELS_CUDA_LAUNCH_H
#define ALNICO_TRAIN_KERNELS_CUDA_LAUNCH_H

#include "train/layers/dropout.h"
#include "train/optimizers/rules.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The stream that kernels run on, and the memory that they reduce in. Zero the memory once;
 * launches on one stream share it. */
struct train_gpu {
    int multiprocessors;
    bool programmatic; /* programmatic launch: see train_norm_programmatic */
    void *stream;      /* cudaStream_t */
    void *scratch;     /* TRAIN_SCRATCH_BYTES of the GPU's memory */
    float *control;    /* the words of kernels.h */
};

enum { TRAIN_SCRATCH_BYTES = 8 << 20 };

/* ---- Batch norm: cuda/norm.cu, cuda/norm_backward.cu ---- */

/* Numbers that a batch norm computes once a batch; each `padded` floats. y = factor * x + offset;
 * dx = a * dy + b * x + c. */
enum norm_number {
    NORM_MEAN,
    NORM_INVERSE, /* 1 / sqrt(variance + epsilon) */
    NORM_FACTOR,
    NORM_OFFSET,
    NORM_A,
    NORM_B,
    NORM_C,
    NORM_NUMBERS
};

struct train_norm {
    const void *x; /* rows x padded */
    size_t rows,
        count;     /* count: rows that the statistics were of, if others than these; 0: these */
    double *joint; /* two sums of each channel, of all ranks that have such rows; NULL: none has */
    unsigned channels, padded;
    const float *scale, *shift;    /* channels */
    float *running;                /* channels means, channels variances */
    float *numbers;                /* NORM_NUMBERS x padded */
    void *scale_diff, *shift_diff; /* of gradient_type */
    int type, gradient_type;
};

/* Mean, variance, factor and offset of the batch; moves the running statistics. */
int train_norm_statistics(const struct train_gpu *gpu, const struct train_norm *norm);

/* The same in two halves, where other ranks have rows, too: this rank's sums to `joint`; and from those
 * of all ranks there. */
int train_norm_sums(const struct train_gpu *gpu, const struct train_norm *norm);
int train_norm_joined(const struct train_gpu *gpu, const struct train_norm *norm);

/* train_norm_statistics from the sums of x and of its squares, `padded` of each. */
int train_norm_measure(const struct train_gpu *gpu, const struct train_norm *norm,
                       const float *sums, const float *squares);

/* train_norm_statistics from the running statistics, which stay. */
int train_norm_running(const struct train_gpu *gpu, const struct train_norm *norm);

/* y = relu?(norm(x) + other?), other being nothing, a tensor (`plain`), or another batch norm of
 * the same shape. */
struct train_normalise {
    const struct train_norm *norm, *other;
    const void *plain;
    bool relu;
    void *y;
    /* NULL, or a bit for each element of y that is above 0: bit i % 8 of byte i / 8. */
    uint8_t *mask;
};
int train_normalise(const struct train_gpu *gpu, const struct train_normalise *pass);

/* How dy is gated: not; by a mask; or by whether norm(x) is above 0, as the forward pass computed
 * it. */
enum norm_gate { NORM_GATE_NONE, NORM_GATE_MASK, NORM_GATE_VALUE };

/* Backward of train_normalise. */
struct train_norm_backward {
    const struct train_norm *norm, *other; /* other may be NULL; not with NORM_GATE_VALUE */
    enum norm_gate gate;
    const void *dy;
    const uint8_t *mask;
    void *dx, *dx_other;            /* of x and of the other's x; NULL: not wanted */
    void *dplain;                   /* the gated dy, for what was added; NULL: not wanted */
    bool add, add_other, add_plain; /* add to what is there */
    bool frozen;                    /* the statistics were constants */
};

/* Gradients of scale and shift, and a, b, c; where the norm is joint, this rank's sums to it instead of
 * a, b, c, which train_norm_join makes of those of all ranks. Then dx, which may be over x, dx_other over the
 * other's x, and dplain over dy, unless they are added to: each thread has read its rows there
 * before it writes them. */
int train_norm_reduce(const struct train_gpu *gpu, const struct train_norm_backward *pass);
int train_norm_join(const struct train_gpu *gpu, const struct train_norm_backward *pass);
int train_norm_gradient(const struct train_gpu *gpu, const struct train_norm_backward *pass);

/* ---- Batch norm, ReLU and maximum pooling by 3 x 3, stride 2, pad 1: cuda/norm_pool.cu ---- */

/* Between them the tensors of images, (height + 1) / 2 rows and (width + 1) / 2 columns: */
struct train_norm_pool {
    const struct train_norm *norm; /* of images x height x width rows */
    size_t height, width;
    /* The largest of relu(norm(x)); of those that are equal before they are rounded the first. */
    void *y;
    void *winners;  /* its x */
    uint8_t *index; /* its place in the window, a byte for each element of y; 255 where y is 0 */
    uint8_t *mask;  /* a bit for each element of y that is above 0 */
    const void *dy;
    void *dx;
    bool add; /* add to what is there */
};

/* After the statistics: y, winners, index, mask. */
int train_norm_pool(const struct train_gpu *gpu, const struct train_norm_pool *pass);

/* dx, after train_norm_reduce of a norm on the winners, gated by the mask, with the `count` of the
 * pixels. */
int train_norm_pool_gradient(const struct train_gpu *gpu, const struct train_norm_pool *pass);

/* ---- Element by element: cuda/pointwise.cu ---- */

/* y = relu?(a + b?) over rows x padded elements; b may be NULL. */
int train_add(const struct train_gpu *gpu, void *y, const void *a, const void *b, bool relu,
              size_t count, int type);

/* dx = y > 0 ? dy : 0, or dy where y is NULL; `add`: dx += that. */
int train_gate(const struct train_gpu *gpu, void *dx, const void *dy, const void *y, bool add,
               size_t count, int type);

/* y = 1 / (1 + exp(-x)) over rows x padded elements, 0 in padding. */
int train_sigmoid(const struct train_gpu *gpu, void *y, const void *x, size_t rows,
                  unsigned channels, unsigned padded, int type);

/* dx = dy * y * (1 - y), or added to. */
int train_sigmoid_gradient(const struct train_gpu *gpu, void *dx, const void *dy, const void *y,
                           bool add, size_t count, int type);

/* How float32 tensors, and images of bytes, become what is computed with. By `fold` f > 1 squares
 * of f x f pixels become channels, so that a convolution of stride f on few channels becomes one of
 * stride 1 on f * f times as many; f = 1 only pads channels. Images: dst[n][y][x][(b * f + d) *
 * channels + c] = src[n][f * y + b - before_rows][f * x + d - before_columns][c], 0 outside. */
struct train_fold {
    unsigned fold, before_rows, before_columns;
    unsigned channels, padded;               /* of src; of dst */
    size_t outer, height, width;             /* of src */
    size_t out_outer, out_height, out_width; /* of dst; rows of zeros where out_outer > outer */
    int type;                                /* of dst */
    const float *levels; /* on the GPU: src are bytes, and 256 values are theirs; NULL: float32 */
};
int train_fold(const struct train_gpu *gpu, const struct train_fold *fold, void *dst,
               const void *src);

/* Back, of `type` to `gradient_type`: src has dst's and dst src's shape of above; nothing is
 * added. */
int train_unfold(const struct train_gpu *gpu, const struct train_fold *fold, void *dst,
                 int gradient_type, const void *src);

/* Windows of one row of pixels, whose columns become channels: dst[row][x][d * padded + c] =
 * src[row][x + d][c] for d below `columns`. */
struct train_im2col {
    size_t rows;              /* of all images */
    size_t width, out_width;  /* of src; of dst, columns - 1 less */
    unsigned columns, padded; /* padded: of src, a multiple of 8 */
    int type;
};
int train_im2col(const struct train_gpu *gpu, const struct train_im2col *rows, void *dst,
                 const void *src);

/* Pixels of a smaller tensor at every stride-th row and column of a larger one: dst[n][stride *
 * y][stride * x][c] = src[n][y][x][c], or added; what is between becomes 0, or stays if added. */
struct train_strided {
    size_t batch, height, width, out_height, out_width; /* out: of src */
    unsigned stride, padded;                            /* stride 0: nothing is spread */
    int type;
};
int train_strided(const struct train_gpu *gpu, const struct train_strided *spread, void *dst,
                  const void *src, bool add);

/* Fills with numbers from -1 to 1. */
int train_noise(const struct train_gpu *gpu, void *dst, size_t count, int type);

/* ---- Bias, ReLU, dropout: cuda/epilogue.cu ---- */

/* y = dropped(relu(x + bias)), or added; x may be y. */
struct train_epilogue {
    const void *x; /* rows x padded */
    void *y;       /* rows of as many, `pitch` elements apart */
    unsigned pitch;
    const float *bias; /* channels; NULL: none */
    bool relu, add;
    const struct draw *draw; /* on the GPU; NULL: nothing is dropped */
    struct dropout dropout;
    unsigned pixels; /* rows of an image */
    size_t rows;
    unsigned channels, padded;
    int type;
};
int train_epilogue(const struct train_gpu *gpu, const struct train_epilogue *pass);

/* dx = y > 0 ? scale * dy : 0, which may be over dy where that has no other pitch; with y NULL dx is
 * dy, and not written. bias_diff[channel], unless NULL, becomes dx's sum over the rows. `scale`: of dropout behind the ReLU, in whose y what was dropped is 0, too. */
struct train_epilogue_backward {
    void *dx;           /* rows x padded */
    const void *dy, *y; /* rows of as many, `pitch` elements apart */
    unsigned pitch;
    float scale;
    void *bias_diff; /* channels, of gradient_type */
    size_t rows;
    unsigned channels, padded;
    int type, gradient_type;
};
int train_epilogue_backward(const struct train_gpu *gpu,
                            const struct train_epilogue_backward *pass);

/* ---- Local response norm: cuda/local_norm.cu ---- */

enum { TRAIN_LOCAL_NORM_MOST = 9 }; /* channels of a window */

struct train_local_norm {
    size_t rows;
    unsigned padded, window;
    float alpha, beta, k; /* alpha: divided by the window */
    int type;
};
int train_local_norm(const struct train_gpu *gpu, const struct train_local_norm *norm, void *y,
                     const void *x);
int train_local_norm_gradient(const struct train_gpu *gpu, const struct train_local_norm *norm,
                              void *dx, const void *dy, const void *x, bool add);

/* ---- Concatenation: cuda/concat.cu ---- */

enum { TRAIN_PARTS = 8 };

struct train_part {
    void *at;                         /* rows x padded; backward NULL: not wanted */
    unsigned first, channels, padded; /* first: of the whole's channels */
    bool add;                         /* backward adds to what is there */
};

struct train_concat {
    struct train_part part[TRAIN_PARTS];
    unsigned parts;
    bool aligned; /* all parts have multiples of eight channels */
    size_t rows;
    unsigned channels, padded; /* of the whole */
    int type;
};
int train_concat(const struct train_gpu *gpu, const struct train_concat *pass, void *whole);
int train_split(const struct train_gpu *gpu, const struct train_concat *pass, const void *whole);

/* ---- Boxes of tensors and messages: cuda/boxes.cu ---- */

enum { TRAIN_BOXES = 16 };

/* Where a box begins, and elements from one image, row and pixel to the next. */
struct train_place {
    void *at;
    size_t image, row, pixel;
};

/* to = from, or added to it; or zeros. */
struct train_box {
    struct train_place from, to;
    unsigned images, rows, columns, channels;
    unsigned first[4]; /* where it begins in what `to` is of: image, row, column, channel */
    unsigned pads;     /* channels behind the box's in `to` that become 0 */
    bool add, zero;
    bool aligned; /* channels, distances and places are multiples of eight elements */
};

/* At most TRAIN_BOXES, of one type. Those that add may meet, and are added in their order. */
int train_boxes(const struct train_gpu *gpu, const struct train_box *boxes, unsigned count,
                int type);

/* ---- Pooling: cuda/pool.cu ---- */

struct train_pool {
    size_t batch, height, width, out_height, out_width;
    unsigned padded; /* channels */
    unsigned rows, columns, stride, pad_rows, pad_columns;
    int type;
};

/* The maximum, where the first of equals wins. `index`: the winner's place in its window, for each
 * element of y; rows * columns <= 256. NULL: the average, padding not counted. */
int train_pool(const struct train_gpu *gpu, const struct train_pool *pool, void *y, uint8_t *index,
               const void *x);
int train_pool_gradient(const struct train_gpu *gpu, const struct train_pool *pool, void *dx,
                        const void *dy, const uint8_t *index, bool add);

/* ---- Nearest upsampling: cuda/upsample.cu ---- */

/* Output pixel (i, j) is input pixel (i / factor, j / factor). */
struct train_upsample {
    size_t batch, height, width, out_height, out_width;
    unsigned factor, padded;
    int type;
};
int train_upsample(const struct train_gpu *gpu, const struct train_upsample *pass, void *y,
                   const void *x);
int train_upsample_gradient(const struct train_gpu *gpu, const struct train_upsample *pass,
                            void *dx, const void *dy, bool add);

/* ---- Loss: cuda/loss.cu ---- */

enum train_loss_kind { LOSS_CROSS_ENTROPY, LOSS_SQUARED_ERROR };

/* A loss of `rows` labels, of images or of their pixels; what the terms are: layers/loss.c. */
struct train_loss {
    enum train_loss_kind kind;
    const int32_t *labels; /* rows; -1: none */
    float *value;          /* rows x channels: log probabilities, or what is read as it is */
    size_t rows;
    unsigned channels, padded; /* padded: between rows of what is read */
    float smoothing;
    float weight;  /* of the gradient */
    float terms;   /* that it is the mean of */
    double *score; /* SCORES, added to; NULL: not wanted */
};

/* x: rows x padded. */
int train_loss_forward(const struct train_gpu *gpu, const struct train_loss *loss, const void *x,
                       int type);

/* dx = the slope of the mean over the terms, times the weight and control's loss scale; or added
 * to. */
int train_loss_backward(const struct train_gpu *gpu, const struct train_loss *loss, void *dx,
                        int type, bool add);

/* ---- Update: cuda/update.cu ---- */

/* A piece of one parameter tensor: elements begin to begin + count - 1 of the arenas. */
struct train_chunk {
    uint64_t begin;
    uint32_t count : 31, decays : 1; /* decays: as the segment's */
    uint32_t segment;
};
enum { TRAIN_CHUNK = 4096 };

/* A parameter tensor. */
struct train_segment {
    uint32_t first, chunks; /* its chunks */
    uint32_t decays;        /* 1: a weight, with weight decay and LARS; 0: a bias, scale or shift */
    uint32_t unused;
};

/* Numbers that an update computes before it changes parameters: the factor of clipped gradients,
 * and those of Adam's corrections. */
enum update_number { UPDATE_CLIP, UPDATE_RATE, UPDATE_ROOT, UPDATE_NUMBERS };

struct train_update {
    const struct train_chunk *chunks; /* on the GPU, as all pointers here */
    const struct train_segment *segments;
    unsigned chunk_count, segment_count;
    float *parameters, *states[2]; /* the arenas are aligned to 16 bytes */
    const void *gradients;
    void *working; /* the parameters in working_type, written; NULL: none */
    size_t count;  /* elements of the arenas */
    int gradient_type, working_type;
    int optimizer;       /* enum optimizer_kind */
    struct rule rule;    /* of the options; `decay` as it is for weights */
    double beta1, beta2; /* for the corrections, if the updates are counted */
    float trust, clip;   /* 0: no LARS; no clipping */
    bool counts;         /* the rule depends on the number of updates */
    float *sums;         /* 2 x chunk_count + segment_count, for LARS and clipping */
    float *numbers;      /* UPDATE_NUMBERS */
    unsigned *bad;       /* one word, 0 between updates */
    bool find_scale;     /* the loss scale is searched: no update with infinite gradients */
};
int train_update(const struct train_gpu *gpu, const struct train_update *update);

/* Only working = parameters. */
int train_refresh(const struct train_gpu *gpu, const struct train_update *update);

/* ---- Arithmetic of averages: cuda/average.cu ---- */

/* mine = (mine + the first block + the second + ...) / (1 + blocks); aligned to 16 bytes, as each
 * block is. */
struct train_average {
    void *mine;
    const void *others;
    size_t stride, count; /* elements between two blocks, and of each */
    int blocks, type;
};
int train_average(const struct train_gpu *gpu, const struct train_average *pass);

/* x /= by, of a type, correctly rounded in float32; fastest where it is aligned to 16 bytes. */
int train_divide(const struct train_gpu *gpu, void *x, int type, size_t count, int by);

/* ---- Several batches a step: cuda/accumulate.cu ---- */

/* A part of kernels.h's, from the arenas' begin, which is aligned to 32 bytes. */
struct train_accumulate {
    void *gradients;
    float *sums;
    size_t begin, count;
    float share;
    int type; /* of the gradients */
    int pass; /* enum gradient_pass */
};
int train_accumulate(const struct train_gpu *gpu, const struct train_accumulate *pass);

/* Whether kernels may be launched early (train_gpu): they were compiled for capability 9.0, or
 * later, which runs on no earlier GPU. */
bool train_norm_programmatic(void);

/* Loads all kernels onto the current device: loading one later may wait for kernels that spin. */
int train_norm_load(void);
int train_norm_backward_load(void);
int train_norm_pool_load(void);
int train_pointwise_load(void);
int train_epilogue_load(void);
int train_local_norm_load(void);
int train_concat_load(void);
int train_boxes_load(void);
int train_pool_load(void);
int train_upsample_load(void);
int train_loss_load(void);
int train_update_load(void);
int train_average_load(void);
int train_accumulate_load(void);

#ifdef __cplusplus
}
#endif

#endif
