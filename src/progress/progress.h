/*
 * The progress engine: it polls operations until they end, and knows of them only op->poll. It runs on
 * a thread of its own, started by the first operation, or is pumped by callers that wait, one at a
 * time. Operations of one lane start in the order of their submission, and several are in flight at
 * once; lanes are independent of each other.
 */
#ifndef ALNICO_PROGRESS_PROGRESS_H
#define ALNICO_PROGRESS_PROGRESS_H

#include "progress/inbox.h"

#include <alnico/alnico.h>

struct engine;
struct lane;

/* An operation. The owner embeds it and fills lane, poll and retire. */
struct op {
    struct inbox_link link; /* the engine's, from submission until retire */
    struct lane *lane;

    /* One step without blocking: ALNICO_PENDING, or how the operation ended. Sets *moved if
     * anything advanced. Called on the engine's thread, or one that pumps. */
    alnico_status_t (*poll)(struct op *op, bool *moved);

    /* Called once after the end, on the same thread. The engine does not touch the op afterwards. */
    void (*retire)(struct op *op, alnico_status_t status);
};

/* Operations of one lane polled at once: enough to hide each other's waits. */
enum { LANE_WINDOW = 8 };

/* An order of operations: one for each communicator. Zero-initialised; the engine's while any
 * operation of it is in flight. */
struct lane {
    struct op *first, *last; /* admitted and not retired, in order */
    struct lane *next;       /* in the engine's list, while first is not NULL */
    bool listed;
    bool wide; /* set by the owner: all operations are polled at once, independent of each other */
};

struct engine_options {
    bool threaded; /* a thread of its own; otherwise engine_pump is how it advances */
    bool crowded;  /* more threads than cores: yield and sleep instead of spinning */
    int core;      /* unit to bind the thread to, or -1 */
};

/* Creates an engine without operations; the thread starts with the first one. Errors: MEMORY. */
alnico_status_t engine_create(const struct engine_options *options, struct engine **out);

/* Stops the thread. Every operation has retired and every submit has returned; not from poll or
 * retire. NULL is fine. */
void engine_destroy(struct engine *engine);

bool engine_is_threaded(const struct engine *engine);

/* Hands over an operation; its lane's order is the order of these calls. Any thread, but one at a
 * time for one lane; also from poll and retire, which may hand over the retired one again: it is
 * then first polled in a later pass. Errors: SYSTEM (the thread could not be started): the op was
 * not taken. */
alnico_status_t engine_submit(struct engine *engine, struct op *op);

/* One pass over everything in flight. True if anything advanced; false also if another thread makes a
 * pass. For an engine without a thread, or between begin and end of polling; not from poll or
 * retire. */
bool engine_pump(struct engine *engine);

/* Between these a caller that waits for an operation pumps again and again and does not sleep, and the
 * engine's thread leaves the passes to it. Any thread, several at once. */
void engine_begin_polling(struct engine *engine);
void engine_end_polling(struct engine *engine);

/* Whether the engine's thread makes no passes now: it sleeps, or yields where threads outnumber cores.
 * Then a waiting caller had better poll itself. Any thread. */
bool engine_is_resting(const struct engine *engine);

/* Whether nothing is in flight; what is handed over meanwhile may be missed. Any thread. */
bool engine_is_idle(const struct engine *engine);

/* A caller waits now: a thread that sleeps because all in flight has stalled polls at once, and spins
 * and yields again before the next sleep. Any thread. */
void engine_wake(struct engine *engine);

/* Times that the engine's thread went to sleep so far, for tests and alnico-info. */
unsigned long engine_sleeps(const struct engine *engine);

#endif
