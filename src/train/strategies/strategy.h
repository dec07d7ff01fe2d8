/*
 * [SEAM strategy] How the ranks train together: what happens from filled gradients to the next
 * step's parameters. A resident fills one struct strategy_ops. The trainer calls its functions on
 * the thread that trains, one at a time. On the CPU's inline stream they wait where they say so; on
 * any other stream they enqueue.
 */
#ifndef ALNICO_TRAIN_STRATEGIES_STRATEGY_H
#define ALNICO_TRAIN_STRATEGIES_STRATEGY_H

#include "train/base/phase.h"
#include "train/kernels/kernels.h"
#include "train/strategies/codecs/codec.h"

/* `count` of the network's parameters from `begin` on, in host memory. */
struct strategy_range {
    size_t begin, count;
    float rate;
    uint64_t updates; /* of this part so far, this one counted */
    float *parameters, *states[OPTIMIZER_STATES];
    const float *gradients;
};

/* How far the trainer is. */
struct strategy_pace {
    size_t step;  /* steps done */
    size_t until; /* after which the ranks next settle */
    bool stop;    /* this rank was told to end */
};

/* Calls of a strategy to the trainer. Each enqueues on the stream unless it says otherwise. */
struct strategy_calls {
    void *context;
    alnico_status_t (*update)(void *context); /* the optimizer changes parameters by gradients */
    /* The gradients become the mean of themselves and of blocks that stay where they are. */
    alnico_status_t (*average)(void *context, const struct gradient_blocks *others);
    /* A sum becomes a mean. The division stays where it is until the stream has run it. */
    alnico_status_t (*divide)(void *context, const struct division *division);
    /* The kernels take over parameters, states or statistics that the strategy has written. */
    alnico_status_t (*loaded)(void *context);
    alnico_status_t (*mark)(void *context, enum phase ended); /* a phase of the step ends here */
    /* The optimizer changes a part of parameters by gradients. At once; any thread. */
    alnico_status_t (*update_range)(void *context, const struct strategy_range *range);
    /* Not on the stream: during finish. */
    struct strategy_pace (*pace)(void *context);
};

/* Staleness of a push: updates of the shard since the pull of the weights that its gradients were
 * computed from. */
enum { STALENESS_BINS = 64 };
struct strategy_staleness {
    uint64_t counts[STALENESS_BINS]; /* of pushes, by updates; the last of all that are more, too */
    uint64_t sum, most;              /* of updates */
};

/* The state of a round, whose steps the ranks share, after a step of this rank. */
struct strategy_round {
    size_t step; /* steps that the ranks have done in the mean */
    bool over;   /* all of the round's, or as many as there will be */
};

struct strategy_setup {
    alnico_comm_t comm; /* on the device and stream; NULL: this rank is alone */
    alnico_comm_t host; /* of the same ranks, on the CPU's inline stream */
    const struct device_ops *device;
    void *stream;
    const struct arenas *arenas; /* outlive the strategy; gradients in backward order */
    size_t count;                /* elements of parameters, gradients and each state */
    size_t states, statistics;   /* arenas of the optimizer; running statistics in elements */
    alnico_datatype_t type;      /* of the gradients */
    /* The type on the wire: that of the gradients, or on the CPU FLOAT16 or BFLOAT16 for
     * FLOAT32. */
    alnico_datatype_t wire;
    /* How gradients of FLOAT32 travel; ops NULL or none: as `wire` says. */
    struct codec codec;
    const size_t *ends; /* where buckets end, in elements, rising, the last is `count` */
    size_t buckets;
    bool late;                   /* send nothing before the backward pass is over */
    bool scaled;                 /* a loss scale is in the control words, and changes */
    size_t every;                /* steps between averages of parameters */
    bool average_state;          /* and of the optimizer's states and the running statistics */
    size_t staleness;            /* async: steps that workers may be apart; SIZE_MAX: any */
    const char *record, *replay; /* async: interleavings; NULL: none */
    struct strategy_calls calls;
};

/* Numbers on the device. */
struct strategy_memory {
    float *memory;
    size_t count;
};

enum { STRATEGY_OWN_MOST = 4 };

/* Options of a run that not every strategy takes. */
enum strategy_option {
    STRATEGY_TAKES_BUCKETS = 1,
    STRATEGY_TAKES_OVERLAP = 2,
    STRATEGY_TAKES_WIRE = 4,       /* gradients that the kernels make in 16 bits */
    STRATEGY_TAKES_NARROW = 8,     /* and others, which it narrows itself */
    STRATEGY_TAKES_STALENESS = 16, /* a bound, and interleavings */
    STRATEGY_TAKES_CODEC = 32,
    STRATEGY_TAKES_SPLIT = 128, /* networks that are split over the ranks: gradients are averaged */
    STRATEGY_TAKES_SHRINK = 256, /* lost ranks: each has all of the state, at least at times */
    STRATEGY_TAKES_EVERY = 64,   /* and needs: steps between averages; average_state, own seeds */
};

struct strategy_ops {
    const char *name, *about; /* "allreduce"; one line of help */
    bool capturable;          /* advance and finish are the same calls in every step */
    bool rooted;              /* rank 0 updates for all: a step's times are its times */
    /* Ranks update parts of the parameters on the host, and take no notice of gradients that are
     * not finite: without clipping, LARS, fp16. */
    bool sharded;
    unsigned takes;             /* bits of enum strategy_option */
    const char *phases[PHASES]; /* its own words for phases; NULL: phase_name's */

    /* Bytes of the device that it allocates for each gradient, on a rank of so many, beside what a
     * codec takes; if sharded, of the host. Optional: none. */
    size_t (*bytes)(alnico_datatype_t type, alnico_datatype_t wire, int rank, int ranks);

    /* Collective. Errors: ARGUMENT (bad ends, or a wire type that cannot be), MEMORY. */
    alnico_status_t (*create)(const struct strategy_setup *setup, void **out);
    void (*destroy)(void *self); /* collective; joins nothing; NULL is fine */

    /* Between steps of a backward pass: the first `filled` gradients are final, and may be sent.
     * Does not wait for other ranks. */
    alnico_status_t (*advance)(void *self, size_t filled);

    /* After the backward pass: makes the parameters of the next step, and marks the phases behind
     * PHASE_BACKWARD. */
    alnico_status_t (*finish)(void *self);

    /* Once between steps: communicates as a step does, with gradients that are zero and nothing
     * beside it, and leaves everything as it is (collective). Optional. */
    alnico_status_t (*rehearse)(void *self);

    /* After each step, outside of a captured graph: `step` of them are done. Optional. */
    alnico_status_t (*after)(void *self, size_t step);

    /* As after, and instead of it, where each rank does as many of a round's steps as it can: until
     * round->over a rank has another. A round ends where calls.pace says that the ranks settle.
     * Waits at its end for all ranks. Optional: all ranks do the same steps. */
    alnico_status_t (*share)(void *self, struct strategy_round *round);

    /* For the report, once settled. Optional: there is none. */
    const struct strategy_staleness *(*staleness)(const void *self);

    /* Before a test, a checkpoint and the end (collective): makes parameters, states and, unless
     * they are the ranks' own, statistics equal on all ranks. Optional: they are after each
     * step. */
    alnico_status_t (*settle)(void *self);

    /* State that differs between ranks, for checkpoints: at most STRATEGY_OWN_MOST pieces. Returns
     * how many. Optional: none. */
    size_t (*own)(const void *self, struct strategy_memory *out);

    /* Bytes that this rank sent in the last step, or sends in each that is captured: by algorithms
     * that send the least. Optional: not counted. */
    size_t (*sent)(const void *self);
};

/* Errors: ARGUMENT, in the strategy's name, for ends that do not rise to the setup's count. */
alnico_status_t strategy_check_ends(const struct strategy_setup *setup, const char *name);

/* Whether the caller is the stream: the CPU's inline stream. */
bool strategy_is_inline(const struct strategy_setup *setup);

/* Lets the stream wait for a request; on the inline stream waits. *request NULL: done. */
alnico_status_t strategy_wait(const struct strategy_setup *setup, alnico_request_t *request);

extern const struct strategy_ops strategy_allreduce, strategy_server, strategy_weights,
    strategy_async;

/* The residents, ended by NULL, those whose ranks share steps last; and one by name (NULL if there
 * is none). */
extern const struct strategy_ops *const strategies_all[];
const struct strategy_ops *strategy_find(const char *name);

#endif
