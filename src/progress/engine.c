/*
 * One pass of the engine is admit, then poll and retire each lane. Between passes its thread follows
 * the idle policy: spin, then yield, then sleep. With nothing in flight it sleeps until the next
 * submission. With something in flight that has stalled for about 1 ms it sleeps for growing times,
 * because a message that comes cannot wake a thread.
 *
 * A caller that waits for an operation while the thread rests polls itself, and the thread leaves the
 * passes to it. `polling` is the right to make a pass; nobody waits for it.
 */
#include "progress/progress.h"

#include "base/log.h"
#include "base/status.h"
#include "base/thread.h"
#include "device/backoff.h"
#include "device/topology.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

struct engine {
    struct engine_options options;
    struct inbox inbox;
    struct lane *lanes;  /* those with operations in flight; for the thread that makes a pass */
    atomic_bool polling; /* a pass is being made */
    atomic_bool busy;    /* lanes were left in flight by the last pass */
    atomic_int pollers;  /* callers that wait, and poll themselves */

    pthread_mutex_t lock; /* of starting, stopping and sleeping */
    pthread_cond_t woken;
    pthread_t thread;
    atomic_bool stopping;
    atomic_bool started;
    atomic_bool sleeping; /* the thread is about to sleep or sleeps: submit must signal */
    atomic_ulong sleeps;
};

static void lane_append(struct engine *engine, struct op *op)
{
    struct lane *lane = op->lane;
    op->link.next = NULL;
    if (lane->first)
        lane->last->link.next = &op->link;
    else
        lane->first = op;
    lane->last = op;
    if (!lane->listed) {
        lane->listed = true;
        lane->next = engine->lanes;
        engine->lanes = lane;
    }
}

static bool admit(struct engine *engine)
{
    struct inbox_link *link = inbox_take(&engine->inbox);
    bool any = link != NULL;
    while (link) {
        struct inbox_link *next = link->next;
        lane_append(engine, (struct op *)link);
        link = next;
    }
    return any;
}

/* Polls the window of a lane in order and retires operations that have ended. The owner may free the
 * lane when its last operation retires. False once it is empty. */
static bool poll_lane(struct lane *lane, bool *moved)
{
    struct op *previous = NULL, *op = lane->first;
    for (int k = 0; op && (k < LANE_WINDOW || lane->wide); k++) {
        struct op *next = (struct op *)op->link.next;
        alnico_status_t status = op->poll(op, moved);
        if (status == ALNICO_PENDING) {
            previous = op;
            op = next;
            continue;
        }
        if (previous)
            previous->link.next = op->link.next;
        else
            lane->first = next;
        if (!next)
            lane->last = previous;
        bool empty = lane->first == NULL;
        if (empty)
            lane->listed = false;
        *moved = true;
        op->retire(op, status);
        if (empty)
            return false;
        op = next;
    }
    return true;
}

static bool pass(struct engine *engine)
{
    bool moved = admit(engine);
    struct lane **link = &engine->lanes;
    while (*link) {
        struct lane *lane = *link, *next = lane->next;
        if (poll_lane(lane, &moved))
            link = &lane->next;
        else
            *link = next;
    }
    return moved;
}

bool engine_pump(struct engine *engine)
{
    if (atomic_load_explicit(&engine->polling, memory_order_relaxed) ||
        atomic_exchange_explicit(&engine->polling, true, memory_order_acquire))
        return false;
    bool moved = pass(engine);
    bool busy = engine->lanes != NULL;
    if (busy != atomic_load_explicit(&engine->busy, memory_order_relaxed))
        atomic_store_explicit(&engine->busy, busy, memory_order_relaxed);
    atomic_store_explicit(&engine->polling, false, memory_order_release);
    return moved;
}

static bool has_pollers(const struct engine *engine)
{
    return atomic_load(&engine->pollers) > 0;
}

/* Whether something is in flight; exact where nobody else polls. */
static bool is_busy(const struct engine *engine)
{
    return atomic_load_explicit(&engine->busy, memory_order_relaxed);
}

/* The caller holds the lock. It announces the sleep before it looks at pollers and the inbox once more;
 * submit pushes, and a poller ends, before they look at the announcement: one of the two sees the
 * other. With operations in flight that nobody else polls it sleeps until `until` at most. True if
 * somebody ended the sleep. */
static bool sleep_locked(struct engine *engine, const struct timespec *until)
{
    int timed_out = 0;
    atomic_store(&engine->sleeping, true);
    bool polled = has_pollers(engine);
    if ((polled || inbox_empty(&engine->inbox)) && !atomic_load(&engine->stopping)) {
        atomic_fetch_add_explicit(&engine->sleeps, 1, memory_order_relaxed);
        if (!polled && is_busy(engine))
            timed_out = pthread_cond_timedwait(&engine->woken, &engine->lock, until);
        else
            pthread_cond_wait(&engine->woken, &engine->lock);
    }
    atomic_store(&engine->sleeping, false);
    return !timed_out;
}

static struct timespec after(long ns)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    time.tv_nsec += ns;
    time.tv_sec += time.tv_nsec / 1000000000L;
    time.tv_nsec %= 1000000000L;
    return time;
}

/* After a pass that moved nothing, or that was left to others. With nothing to poll and no core to
 * spare it sleeps at once. False when the engine is to stop. */
static bool idle(struct engine *engine, struct backoff *backoff)
{
    if (atomic_load(&engine->stopping))
        return false;
    bool needless = engine->options.crowded && (!is_busy(engine) || has_pollers(engine));
    if (!needless && !backoff_wants_sleep(backoff))
        return true;
    struct timespec until = after(backoff->sleep_ns);
    pthread_mutex_lock(&engine->lock);
    bool woken = sleep_locked(engine, &until);
    pthread_mutex_unlock(&engine->lock);
    if (woken)
        backoff_reset(backoff);
    else
        backoff_slept(backoff);
    return true;
}

static void *run(void *argument)
{
    struct engine *engine = argument;
    if (engine->options.core >= 0 && topology_bind_thread(engine->options.core) != ALNICO_SUCCESS)
        log_write(LOG_WARNING, "engine thread not bound to unit %d: %s", engine->options.core,
                  alnico_error_detail());
    struct backoff backoff = {.crowded = engine->options.crowded};
    backoff_reset(&backoff);
    for (;;) {
        if (!has_pollers(engine) && engine_pump(engine))
            backoff_reset(&backoff);
        else if (!idle(engine, &backoff))
            return NULL;
    }
}

static alnico_status_t start_thread(struct engine *engine)
{
    int error = 0;
    pthread_mutex_lock(&engine->lock);
    if (!atomic_load(&engine->started)) {
        error = thread_create(&engine->thread, run, engine);
        atomic_store(&engine->started, error == 0);
    }
    pthread_mutex_unlock(&engine->lock);
    if (error)
        return error_set(ALNICO_ERROR_SYSTEM, "cannot start the engine thread: %s",
                         strerror(error));
    return ALNICO_SUCCESS;
}

alnico_status_t engine_create(const struct engine_options *options, struct engine **out)
{
    struct engine *engine = calloc(1, sizeof *engine);
    *out = engine;
    if (!engine)
        return error_set(ALNICO_ERROR_MEMORY, "cannot allocate an engine");
    engine->options = *options;
    pthread_mutex_init(&engine->lock, NULL);
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&engine->woken, &attributes);
    pthread_condattr_destroy(&attributes);
    return ALNICO_SUCCESS;
}

void engine_destroy(struct engine *engine)
{
    if (!engine)
        return;
    pthread_mutex_lock(&engine->lock);
    atomic_store(&engine->stopping, true);
    pthread_cond_signal(&engine->woken);
    pthread_mutex_unlock(&engine->lock);
    if (atomic_load(&engine->started))
        pthread_join(engine->thread, NULL);
    pthread_cond_destroy(&engine->woken);
    pthread_mutex_destroy(&engine->lock);
    free(engine);
}

bool engine_is_threaded(const struct engine *engine)
{
    return engine->options.threaded;
}

unsigned long engine_sleeps(const struct engine *engine)
{
    return atomic_load_explicit(&engine->sleeps, memory_order_relaxed);
}

/* In the order in which an operation goes from one to the next. */
bool engine_is_idle(const struct engine *engine)
{
    return inbox_empty(&engine->inbox) && !atomic_load(&engine->polling) &&
           !atomic_load(&engine->busy);
}

void engine_wake(struct engine *engine)
{
    if (!atomic_load(&engine->sleeping))
        return;
    pthread_mutex_lock(&engine->lock);
    pthread_cond_signal(&engine->woken);
    pthread_mutex_unlock(&engine->lock);
}

alnico_status_t engine_submit(struct engine *engine, struct op *op)
{
    if (engine->options.threaded && !atomic_load(&engine->started))
        TRY(start_thread(engine));
    inbox_push(&engine->inbox, &op->link);
    if (!has_pollers(engine))
        engine_wake(engine);
    return ALNICO_SUCCESS;
}

bool engine_is_resting(const struct engine *engine)
{
    return engine->options.crowded || atomic_load_explicit(&engine->sleeping, memory_order_relaxed);
}

void engine_begin_polling(struct engine *engine)
{
    atomic_fetch_add(&engine->pollers, 1);
}

void engine_end_polling(struct engine *engine)
{
    bool last = atomic_fetch_sub(&engine->pollers, 1) == 1;
    if (last && (is_busy(engine) || !inbox_empty(&engine->inbox)))
        engine_wake(engine);
}
