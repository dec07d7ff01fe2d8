/*
 * From a network to steps and memory: which operations run together, and where everything that one
 * batch needs stands in one allocation. Made once, read-only afterwards. The kernels and the
 * trainer read it.
 *
 * Time counts steps: step s of n runs forward at s and backward at 2n - 1 - s. A value lives from
 * the step that makes it to the last one that reads it, backward too where the kernels say so; the
 * gradient of an activation from its first contribution until its producer has run backward; what a
 * step saves from forward to backward; scratch while its step runs. Buffers that live at no common
 * time share memory: the largest, or those that live the longest, are placed first, each at the
 * lowest place that is free for its time. Where a step allows it, the gradient that it makes begins
 * in the place of something that ends there. The interior of a step runs with the move before it.
 */
#ifndef ALNICO_TRAIN_GRAPH_MEMORY_PLAN_H
#define ALNICO_TRAIN_GRAPH_MEMORY_PLAN_H

#include "train/graph/views.h"

#define PLAN_NONE ((size_t)-1)

/* Every buffer of memory begins on a multiple of so many bytes; and bytes rounded up to it. */
enum { PLAN_LINE = 256 };

static inline size_t plan_line(size_t bytes)
{
    return (bytes + PLAN_LINE - 1) / PLAN_LINE * PLAN_LINE;
}

/* The type of activations and their gradients. Parameters, statistics and the optimizer's
 * state are float32 always. */
enum precision { PRECISION_FP32, PRECISION_BF16, PRECISION_FP16, PRECISIONS };

/* Operations that run as one. The tensors between them do not exist. */
struct step {
    size_t first, count;               /* nodes first .. first + count - 1 */
    size_t in[NETWORK_INPUTS], inputs; /* tensors that come from outside */
    size_t out;                        /* the tensor that the last one makes */
    bool accumulate
        [NETWORK_INPUTS]; /* backward adds to the gradient of in[i]; otherwise it overwrites it */
    size_t filled;        /* gradients that all ranks have, final once this step has run backward */
    size_t saved;         /* offset of what it asked for (struct step_needs); PLAN_NONE: nothing */
    size_t scratch[2];    /* forward, backward */
    struct view views[VIEWS]; /* forward, the interior while the move before it travels */
    size_t view_count;        /* 0: it runs as one */
};

struct plan {
    const struct network *network;
    size_t batch; /* images; of a network that is split over ranks, those of all of them together */
    enum precision precision;
    struct step *steps; /* in forward order */
    size_t count;
    /* By tensor: offset of its batch in bytes; PLAN_NONE: no memory of the plan's. */
    size_t *values;
    size_t *diffs; /* the same for its gradient; PLAN_NONE: nobody needs it */
    size_t bytes;  /* of the allocation */
    size_t least;  /* the most that lives at one time: no placement needs less */
    size_t apart;  /* if nothing shared memory */
};

/* The needs of a step besides room for the values and gradients that it makes, in bytes. */
struct step_needs {
    bool in[NETWORK_INPUTS], out; /* backward reads the values of in[i], of out */

    /* Backward may write the gradient of in[i] over the value of in[i], or over the gradient of
     * out: it reads what it wants of that place before, and other places are not affected. */
    bool over_value[NETWORK_INPUTS], over_gradient[NETWORK_INPUTS];
    size_t saved;      /* written forward, read backward */
    size_t scratch[2]; /* while it runs forward, backward */
};

/* How many operations from node `at` on run as one step, at least 1; the tensors between them may
 * have no other readers, and at most NETWORK_INPUTS come from outside. */
typedef size_t plan_run_function(const struct network *network, size_t at);

/* The place of a tensor within another one's memory. */
struct plan_part {
    size_t whole;  /* the other; 0: it stands in none */
    size_t offset; /* bytes from where that begins */
};

/* The place of a tensor between the margins of what the one move that reads it makes, where pixels of so
 * many bytes stand side by side: it is whole rows of one image. What is joined of parts stands by itself. */
struct plan_part plan_between(const struct plan *plan, size_t tensor, size_t pixel);

/* The rules of a kernels resident for its plans. */
struct plan_rules {
    plan_run_function *run; /* Optional: each operation by itself. */

    /* Bytes of a tensor's batch, and of its gradient. Optional: float32. */
    size_t (*bytes)(const struct plan *plan, size_t tensor);

    /* A tensor whose value stands within another one's, and its gradient within that one's gradient:
     * both live while either does. What stands in another holds none itself. Optional: none does. */
    struct plan_part (*within)(const struct plan *plan, size_t tensor);

    /* Views of a step are filled in: whether it runs forward in them. Optional: no step does. */
    bool (*divides)(const struct plan *plan, const struct step *step);

    /* Asked once, when steps and what they accumulate are known; *out is zeros before. Optional:
     * backward reads all values, and nothing else is needed. */
    void (*needs)(const struct plan *plan, const struct step *step, struct step_needs *out);
};

/* Plans a finished network, which must outlive the plan. Errors: ARGUMENT (batch 0, or a batch
 * whose activations overflow), MEMORY. */
alnico_status_t plan_create(const struct network *network, const struct plan_rules *rules,
                            size_t batch, enum precision precision, struct plan **out);

/* NULL is fine. */
void plan_destroy(struct plan *plan);

/* Whether the nodes from `at` on are of these kinds, each reading the one before as its first
 * input, and nothing else reads what stands between them. */
bool plan_chained(const struct network *network, size_t at, const enum operation_kind *kinds,
                  size_t count);

/* Whether operation i of a step, counted from its end if below 0, is of a kind. */
bool step_is(const struct network *network, const struct step *step, int i,
             enum operation_kind kind);

/* Images that a tensor has; it and a step's output may have none, of a network that is split over more
 * ranks than it has images or pixels. */
size_t plan_images(const struct plan *plan, size_t tensor);
bool step_empty(const struct plan *plan, const struct step *step);

/* Bytes of a tensor's batch in float32. */
size_t plan_float_bytes(const struct plan *plan, size_t tensor);

/* "fp32", ...; its type of numbers. */
const char *precision_name(enum precision precision);
alnico_datatype_t precision_type(enum precision precision);

#endif
