/*
 * [SEAM strategy] How the ranks' gradients meet. A resident fills one struct strategy_ops. The
 * trainer calls its functions on the thread that trains, one at a time; every slot is mandatory. On
 * the CPU's inline stream they wait where they say so; on any other stream they enqueue, and can be
 * captured into a graph.
 */
#ifndef ALNICO_TRAIN_STRATEGIES_STRATEGY_H
#define ALNICO_TRAIN_STRATEGIES_STRATEGY_H

#include "device/device.h"

struct strategy_setup {
    alnico_comm_t comm; /* on the device and stream; NULL: this rank is alone */
    const struct device_ops *device;
    void *stream;
    void *gradients;        /* the arena, in backward order; outlives the strategy */
    size_t count;           /* elements */
    alnico_datatype_t type; /* of the arena */
    /* The type on the wire: that of the arena, or on the CPU FLOAT16 or BFLOAT16 for FLOAT32. */
    alnico_datatype_t wire;
    const size_t *ends; /* where buckets end, in elements, rising, the last is `count` */
    size_t buckets;
    bool late; /* send nothing before the backward pass is over */
};

struct strategy_ops {
    const char *name, *about; /* "allreduce"; one line of help */

    /* Collective. Errors: ARGUMENT (bad ends, or a wire type that cannot be), MEMORY. */
    alnico_status_t (*create)(const struct strategy_setup *setup, void **out);
    void (*destroy)(void *self); /* collective; joins nothing; NULL is fine */

    /* Between steps of a backward pass: the first `filled` gradients are final, and may be sent.
     * Does not wait for other ranks. */
    alnico_status_t (*advance)(void *self, size_t filled);

    /* After the backward pass: the stream waits until every gradient is the mean over the ranks.
     * The next pass may then begin. */
    alnico_status_t (*join)(void *self);
};

extern const struct strategy_ops strategy_allreduce;

/* The residents, ended by NULL; and one by name (NULL if there is none). */
extern const struct strategy_ops *const strategies_all[];
const struct strategy_ops *strategy_find(const char *name);

#endif
