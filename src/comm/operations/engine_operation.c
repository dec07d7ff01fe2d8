/*
 * Operations that the engine carries out for a backend. Two gates tie one to the stream: the stream
 * opens `ready`, the operation opens `done`. With nothing in flight a blocking call on the inline
 * stream polls the operation itself.
 *
 * The calling thread makes and recycles operations; in between one belongs to whoever polls it.
 */
#include "comm/operations/engine_operation.h"

#include "base/status.h"
#include "device/backoff.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POLLS_PER_LOOK = 32 }; /* idle polls between looks at the clock */

/* ---- Giving up ---- */

static const char *operation_name(const struct hosted *h, char *text, size_t bytes)
{
    snprintf(text, bytes, "alnico_%s, %s %llu of communicator %d",
             tuning_collectives[h->call.collective],
             h->work->awaits ? "after operation" : "operation", (unsigned long long)h->sequence,
             h->comm->id);
    return text;
}

/* Tells the other ranks, and stops touching the buffers. */
static void leave(struct hosted *h, alnico_status_t why, double waited)
{
    struct report report = {.rank = h->comm->rank,
                            .status = why,
                            .sequence = h->sequence,
                            .count = h->call.count,
                            .type = h->call.type,
                            .op = h->call.op,
                            .collective = h->call.collective,
                            .root = h->call.root,
                            .waited = waited};
    h->awaited = h->work->awaits ? h->work->awaits(h) : -1;
    h->work->cancel(h);
    watch_tell(&h->comm->watch, h->comm->transport, &report);
}

/* An error of this rank's own, whose detail is the thread's. */
static alnico_status_t fail(struct hosted *h, alnico_status_t status)
{
    char name[96], detail[512];
    snprintf(detail, sizeof detail, "%s", alnico_error_detail());
    error_set(status, "%s: %s", operation_name(h, name, sizeof name), detail);
    comm_latch(h->comm, status, alnico_error_detail());
    leave(h, status, 0);
    return comm_latched(h->comm);
}

/* Whether the deadline has passed, at two looks: a rank that was held up itself, for however long,
 * polls in between, and finds what came meanwhile. */
static bool is_over(struct hosted *h, double waited, double timeout)
{
    bool before = h->overdue;
    h->overdue = waited >= timeout;
    return before && h->overdue;
}

/* Nothing advanced in this poll. Looks at the clock now and then: a stalled operation first listens
 * to others who give up, and at the deadline gives up itself. */
static alnico_status_t look_at_clock(struct hosted *h)
{
    if (++h->idle_polls % POLLS_PER_LOOK)
        return ALNICO_PENDING;
    if (h->work->is_queued && h->work->is_queued(h)) {
        h->stalled_at = 0;
        return ALNICO_PENDING;
    }
    struct transport *transport = h->comm->transport;
    double now = transport->ops->now(transport), timeout = h->comm->family->settings.timeout;
    if (h->stalled_at == 0) {
        h->stalled_at = now;
        h->overdue = false;
    }
    double waited = now - h->stalled_at;
    if (waited < watch_patience(timeout))
        return ALNICO_PENDING;
    if (!is_over(h, waited, timeout) && !watch_hears(&h->comm->watch, transport))
        return ALNICO_PENDING;
    leave(h, ALNICO_ERROR_TIMEOUT, waited);
    h->phase = HOSTED_LEAVING;
    return ALNICO_PENDING;
}

/* ---- The operation ---- */

static alnico_status_t poll_running(struct hosted *h, bool *moved)
{
    bool advanced = false;
    alnico_status_t status = h->work->poll(h, &advanced);
    if (status != ALNICO_PENDING && status != ALNICO_SUCCESS)
        return fail(h, status);
    if (advanced) {
        *moved = true;
        h->idle_polls = 0;
        h->stalled_at = 0;
        return status;
    }
    return status == ALNICO_PENDING ? look_at_clock(h) : status;
}

static alnico_status_t poll_leaving(struct hosted *h)
{
    char name[96];
    alnico_status_t status =
        watch_verdict(&h->comm->watch, h->comm->transport, h->comm->family->settings.timeout,
                      operation_name(h, name, sizeof name), h->awaited);
    if (status == ALNICO_PENDING)
        return ALNICO_PENDING;
    comm_latch(h->comm, status, alnico_error_detail());
    return comm_latched(h->comm);
}

static alnico_status_t hosted_poll(struct op *op, bool *moved)
{
    struct hosted *h = (struct hosted *)op;
    if (atomic_load_explicit(&h->comm->latch.status, memory_order_relaxed) != ALNICO_SUCCESS) {
        alnico_status_t status = comm_latched(h->comm);
        if (h->phase != HOSTED_LEAVING)
            leave(h, status, 0);
        return status;
    }
    switch (h->phase) {
    case HOSTED_WAITING:
        if (!gate_is_open(&h->ready) || (h->work->may_run && !h->work->may_run(h)))
            return ALNICO_PENDING;
        h->phase = HOSTED_RUNNING;
        return poll_running(h, moved);
    case HOSTED_RUNNING:
        return poll_running(h, moved);
    case HOSTED_LEAVING:
        return poll_leaving(h);
    }
    return ALNICO_ERROR_SYSTEM;
}

/* The last touch is the communicator's count: afterwards it may be destroyed. */
static void hosted_retire(struct op *op, alnico_status_t status)
{
    struct hosted *h = (struct hosted *)op;
    alnico_comm_t comm = h->comm;
    h->ended = status;
    gate_open(&h->done);
    atomic_store_explicit(&h->retired, true, memory_order_release);
    atomic_fetch_sub_explicit(&comm->in_flight, 1, memory_order_release);
}

/* ---- Making and recycling ---- */

static bool is_retired(const struct hosted *h)
{
    return atomic_load_explicit(&h->retired, memory_order_acquire);
}

static void op_free(struct hosted *h)
{
    if (h->work->finish)
        h->work->finish(h);
    gate_finish(&h->ready);
    gate_finish(&h->done);
    free(h->lists);
    free(h);
}

static struct hosted *op_create(alnico_comm_t comm, const struct work_ops *work)
{
    size_t bytes = (work->bytes + 63) / 64 * 64;
    struct hosted *h = aligned_alloc(64, bytes);
    if (!h)
        return NULL;
    memset(h, 0, bytes);
    h->comm = comm;
    h->op.lane = work->awaits ? &comm->messages_lane : &comm->lane;
    h->op.poll = hosted_poll;
    h->op.retire = hosted_retire;
    h->request = (struct alnico_request){comm, work->backend};
    h->work = work;
    if (gate_init(&h->ready, comm->device) == ALNICO_SUCCESS &&
        gate_init(&h->done, comm->device) == ALNICO_SUCCESS)
        return h;
    op_free(h);
    return NULL;
}

static void append_issued(alnico_comm_t comm, struct hosted *h)
{
    h->next = NULL;
    if (comm->issued)
        comm->issued_last->next = h;
    else
        comm->issued = h;
    comm->issued_last = h;
}

/* Moves operations that nobody uses any more from the issued queue to the spare list: looks at a few,
 * so that a call takes no longer where thousands are in flight, and at others the next time. A stream
 * may still be about to pass the gates of a retired one: `done` was opened at least to its epoch,
 * which never goes back. */
static void reap(alnico_comm_t comm)
{
    enum { LOOKS = 8 };
    const struct hosted *kept = NULL;
    for (int i = 0; i < LOOKS && comm->issued && comm->issued != kept; i++) {
        struct hosted *h = comm->issued;
        comm->issued = h->next;
        if (!h->claimed && is_retired(h)) {
            h->next = comm->spare;
            comm->spare = h;
            continue;
        }
        append_issued(comm, h);
        if (!kept)
            kept = h;
    }
}

struct hosted *hosted_take(alnico_comm_t comm, const struct work_ops *work)
{
    if (comm->issued)
        reap(comm);
    struct hosted **link = &comm->spare;
    while (*link && (*link)->work != work)
        link = &(*link)->next;
    struct hosted *h = *link;
    if (h)
        *link = h->next;
    else
        h = op_create(comm, work);
    if (!h)
        error_set(ALNICO_ERROR_MEMORY, "no memory for an operation");
    return h;
}

alnico_status_t hosted_keep_lists(struct hosted *h, struct call *call)
{
    int size = h->comm->size;
    if (!call_is_vector(call))
        return ALNICO_SUCCESS;
    if (!h->lists)
        h->lists = malloc(CALL_LISTS * (size_t)size * sizeof *h->lists);
    if (!h->lists)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for the counts of %d ranks", size);
    call_keep_lists(call, h->lists, size);
    return ALNICO_SUCCESS;
}

void hosted_put_back(struct hosted *h)
{
    h->next = h->comm->spare;
    h->comm->spare = h;
}

static void op_prepare(struct hosted *h, const struct call *call)
{
    h->call = *call;
    h->phase = HOSTED_RUNNING;
    h->claimed = false;
    atomic_store_explicit(&h->retired, false, memory_order_relaxed);
    h->idle_polls = 0;
    h->stalled_at = 0;
    if (!h->work->awaits)
        h->comm->sequence++;
    h->sequence = h->comm->sequence;
}

/* ---- Starting and waiting ---- */

/* On the caller's thread, to the end. Other communicators' operations of an engine without a thread
 * go on meanwhile: another rank may have to finish them before it comes here. */
static alnico_status_t run(struct hosted *h)
{
    struct engine *engine = h->comm->family->engine;
    struct backoff backoff = {.crowded = h->comm->crowded};
    backoff_reset(&backoff);
    for (;;) {
        bool moved = false;
        alnico_status_t status = hosted_poll(&h->op, &moved);
        if (status != ALNICO_PENDING)
            return status;
        if (!moved && !engine_is_threaded(engine))
            moved = engine_pump(engine);
        if (moved)
            backoff_reset(&backoff);
        else
            backoff_pause(&backoff);
    }
}

static alnico_status_t run_directly(struct hosted *h)
{
    alnico_status_t status = run(h);
    hosted_put_back(h);
    return status;
}

/* Gives the operation to the engine, between its gates. On failure it is spare again. */
static alnico_status_t submit(struct hosted *h)
{
    alnico_comm_t comm = h->comm;
    gate_close(&h->done);
    alnico_status_t status = ALNICO_SUCCESS;
    if (!comm->inline_stream) {
        h->phase = HOSTED_WAITING;
        gate_close(&h->ready);
        status = h->work->open ? h->work->open(h) : gate_open_on(&h->ready, comm->stream);
    }
    atomic_fetch_add_explicit(&comm->in_flight, 1, memory_order_relaxed);
    if (status == ALNICO_SUCCESS)
        status = engine_submit(comm->family->engine, &h->op);
    if (status == ALNICO_SUCCESS) {
        append_issued(comm, h);
        return status;
    }
    atomic_fetch_sub_explicit(&comm->in_flight, 1, memory_order_relaxed);
    hosted_put_back(h);
    comm_latch(comm, status,
               alnico_error_detail()); /* the others count this operation, and wait for it */
    return status;
}

static alnico_status_t hold(struct hosted *h)
{
    return h->work->hold ? h->work->hold(h) : gate_hold(&h->done, h->comm->stream);
}

/* The caller has nothing else to do until the operation has retired or stalls. Where the engine's
 * thread rests, it polls itself; a thread that is at it has the vectors in its core's cache, and
 * goes on. */
static void attend(struct hosted *h)
{
    struct engine *engine = h->comm->family->engine;
    struct backoff backoff = {.crowded = h->comm->crowded};
    bool polls = engine_rests(engine);
    backoff_reset(&backoff);
    if (polls)
        engine_attend(engine);
    while (!is_retired(h)) {
        if (polls && engine_pump(engine))
            backoff_reset(&backoff);
        else if (backoff_wants_sleep(&backoff))
            break;
    }
    if (polls)
        engine_leave(engine);
}

/* Blocks until the operation has retired. */
static alnico_status_t await(struct hosted *h)
{
    struct engine *engine = h->comm->family->engine;
    if (engine_is_threaded(engine)) {
        attend(h);
        if (!is_retired(h))
            gate_wait(&h->done);
    }
    struct backoff backoff = {.crowded = h->comm->crowded};
    backoff_reset(&backoff);
    while (!is_retired(h)) {
        if (!engine_is_threaded(engine) && engine_pump(engine))
            backoff_reset(&backoff);
        else
            backoff_pause(&backoff);
    }
    return h->ended;
}

/* How an operation ended that failed on another thread: its detail becomes the caller's. */
static alnico_status_t outcome(struct hosted *h)
{
    alnico_status_t ended = h->ended;
    return ended == ALNICO_SUCCESS ? ended : comm_latched(h->comm);
}

static alnico_status_t start_blocking(struct hosted *h)
{
    alnico_comm_t comm = h->comm;
    if (comm->inline_stream && atomic_load_explicit(&comm->in_flight, memory_order_acquire) == 0)
        return run_directly(h);
    TRY(submit(h));
    if (!comm->inline_stream)
        return hold(h);
    await(h);
    return outcome(h);
}

alnico_status_t hosted_start(struct hosted *h, const struct call *call, alnico_request_t *request)
{
    struct engine *engine = h->comm->family->engine;
    op_prepare(h, call);
    if (!request)
        return start_blocking(h);
    TRY(submit(h));
    h->claimed = true;
    *request = &h->request;
    if (!engine_is_threaded(engine))
        engine_pump(engine);
    return ALNICO_SUCCESS;
}

/* ---- Requests ---- */

static struct hosted *op_of(alnico_request_t request)
{
    return (struct hosted *)((char *)request - offsetof(struct hosted, request));
}

alnico_status_t hosted_synchronize(alnico_request_t request)
{
    await(op_of(request));
    return outcome(op_of(request));
}

alnico_status_t hosted_join(alnico_request_t request)
{
    struct hosted *h = op_of(request);
    if (!h->comm->inline_stream)
        return gate_hold(&h->done, h->comm->stream);
    return hosted_synchronize(request);
}

alnico_status_t hosted_test(alnico_request_t request)
{
    struct hosted *h = op_of(request);
    struct engine *engine = h->comm->family->engine;
    if (!is_retired(h) && !engine_is_threaded(engine))
        engine_pump(engine);
    return is_retired(h) ? outcome(h) : ALNICO_PENDING;
}

void hosted_release(alnico_request_t request)
{
    op_of(request)->claimed = false;
}

static void free_list(struct hosted *h)
{
    while (h) {
        struct hosted *next = h->next;
        op_free(h);
        h = next;
    }
}

void hosted_finish(alnico_comm_t comm)
{
    free_list(comm->issued);
    free_list(comm->spare);
    comm->issued = comm->spare = NULL;
}
