/* Operations for the tests of the engine, which end when they are told to. Included after
 * cmocka.h. */
#ifndef ALNICO_TESTS_UNIT_PROGRESS_STEPS_H
#define ALNICO_TESTS_UNIT_PROGRESS_STEPS_H

#include "progress/progress.h"
#include "tests/support/patience.h"

static inline void waste_time(int amount)
{
    for (volatile int i = 0; i < amount; i++)
        ;
}

/* Ends after `polls` polls once `go` is set; with go NULL at once. */
struct step {
    struct op op;
    int polls;
    alnico_status_t end;
    atomic_bool *go;
    bool moves;   /* says that it advances in every poll */
    int *started; /* counts the first polls of a lane; `start` is this one's */
    int start, polled;
    int linger; /* how long retire takes after it has said so */
    atomic_bool retired;
    alnico_status_t status;
};

static inline alnico_status_t step_poll(struct op *op, bool *moved)
{
    struct step *step = (struct step *)op;
    if (step->polled++ == 0 && step->started)
        step->start = (*step->started)++;
    if (step->moves)
        *moved = true;
    if (step->go && !atomic_load(step->go))
        return ALNICO_PENDING;
    return step->polls-- > 0 ? ALNICO_PENDING : step->end;
}

static inline void step_retire(struct op *op, alnico_status_t status)
{
    struct step *step = (struct step *)op;
    int linger = step->linger;
    step->status = status;
    atomic_store(&step->retired, true); /* now it may be gone */
    waste_time(linger);
}

static inline void step_prepare(struct step *step, struct lane *lane)
{
    *step = (struct step){.op = {.lane = lane, .poll = step_poll, .retire = step_retire}};
}

static inline bool is_retired(struct step *step)
{
    return atomic_load(&step->retired);
}

static inline struct engine *new_engine(bool threaded, bool crowded)
{
    struct engine_options options = {.threaded = threaded, .crowded = crowded, .core = -1};
    struct engine *engine = NULL;
    assert_int_equal(engine_create(&options, &engine), ALNICO_SUCCESS);
    assert_int_equal(engine_is_threaded(engine), threaded);
    return engine;
}

static inline void submit(struct engine *engine, struct step *step)
{
    assert_int_equal(engine_submit(engine, &step->op), ALNICO_SUCCESS);
}

#endif
