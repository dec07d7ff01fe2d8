/*
 * [SEAM strategy] How the ranks' gradients meet. A resident fills one struct strategy_ops. The trainer
 * calls its functions on the thread that trains, one at a time; every slot is mandatory.
 */
#ifndef ALNICO_SRC_TRAIN_STRATEGY_H
#define ALNICO_SRC_TRAIN_STRATEGY_H

#include <alnico/alnico.h>

struct strategy_setup {
    alnico_comm_t comm; /* on the CPU's inline stream; NULL: this rank is alone */
    float *gradients;   /* the arena, in backward order */
    size_t count;
    size_t bucket; /* gradients that travel together, in bytes, >= 4 */
};

struct strategy_ops {
    const char *name, *about; /* "allreduce"; one line of help */

    /* Collective. Errors: ARGUMENT (bucket too small), MEMORY. */
    alnico_status_t (*create)(const struct strategy_setup *setup, void **out);
    void (*destroy)(void *self); /* joins nothing; NULL is fine */

    /* Between steps of a backward pass: the first `filled` gradients are final, and may be sent. Does
     * not wait for other ranks. */
    alnico_status_t (*advance)(void *self, size_t filled);

    /* After the backward pass: waits until every gradient is the mean over the ranks. The next pass may
     * then begin. */
    alnico_status_t (*join)(void *self);
};

extern const struct strategy_ops strategy_allreduce;

/* The residents, and one by name (NULL if there is none). */
extern const struct strategy_ops *const strategy_all[];
enum { STRATEGIES = 1 };
const struct strategy_ops *strategy_find(const char *name);

#endif
