/*
 * The host backend: a collective is an operation of the progress engine, which runs an algorithm over the
 * transport, chunk by chunk. Two gates tie it to the stream: the stream opens `ready`, the operation
 * opens `done`. With nothing in flight a blocking call on the inline stream polls the operation itself.
 *
 * The calling thread makes and recycles operations; in between one belongs to whoever polls it.
 */
#include "comm/backend.h"

#include "comm/pipeline.h"
#include "device/backoff.h"
#include "progress/gate.h"
#include "status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { POLLS_PER_LOOK = 32 }; /* idle polls between looks at the clock */

/* Waiting: for the stream to open `ready`. Leaving: it gives up, and learns from other ranks why. */
enum phase { PHASE_WAITING, PHASE_RUNNING, PHASE_LEAVING };

struct host_op {
    struct op op;                  /* first: the engine's view */
    struct alnico_request request; /* the user's view */
    struct host_op *next;          /* in the communicator's lists */
    alnico_comm_t comm;
    struct gate ready, done;
    enum phase phase;
    bool claimed;          /* the user holds the request */
    atomic_bool retired;   /* nobody polls it any more */
    alnico_status_t ended; /* how; valid once retired */
    uint64_t sequence;

    struct pipeline pipeline;
    unsigned idle_polls;
    double stalled_at; /* when it last advanced; 0 before the first look at the clock */
};

/* ---- Giving up ---- */

static const char *operation_name(const struct host_op *h, char *text, size_t bytes)
{
    snprintf(text, bytes, "alnico_allreduce, operation %llu of communicator %d",
             (unsigned long long)h->sequence, h->comm->id);
    return text;
}

/* Tells the other ranks, and stops touching the buffers. */
static void leave(struct host_op *h, alnico_status_t why, double waited)
{
    struct report report = {.rank = h->comm->rank,
                            .status = why,
                            .sequence = h->sequence,
                            .count = h->pipeline.call.count,
                            .type = h->pipeline.call.type,
                            .op = h->pipeline.call.op,
                            .waited = waited};
    pipeline_cancel(&h->pipeline);
    watch_tell(&h->comm->watch, h->comm->transport, &report);
}

/* An error of this rank's own, whose detail is the thread's. */
static alnico_status_t fail(struct host_op *h, alnico_status_t status)
{
    char name[96], detail[512];
    snprintf(detail, sizeof detail, "%s", alnico_error_detail());
    error_set(status, "%s: %s", operation_name(h, name, sizeof name), detail);
    comm_latch(h->comm, status, alnico_error_detail());
    leave(h, status, 0);
    return comm_latched(h->comm);
}

/* Nothing advanced in this poll. Looks at the clock now and then: a stalled operation first listens to
 * others who give up, and at the deadline gives up itself. */
static alnico_status_t look_at_clock(struct host_op *h)
{
    if (++h->idle_polls % POLLS_PER_LOOK)
        return ALNICO_PENDING;
    struct transport *transport = h->comm->transport;
    double now = transport->ops->now(transport), timeout = h->comm->family->settings.timeout;
    if (h->stalled_at == 0)
        h->stalled_at = now;
    double waited = now - h->stalled_at;
    if (waited < watch_patience(timeout))
        return ALNICO_PENDING;
    if (waited < timeout && !watch_hears(&h->comm->watch, transport))
        return ALNICO_PENDING;
    leave(h, ALNICO_ERROR_TIMEOUT, waited);
    h->phase = PHASE_LEAVING;
    return ALNICO_PENDING;
}

/* ---- The operation ---- */

static alnico_status_t poll_running(struct host_op *h, bool *moved)
{
    bool advanced = false;
    alnico_status_t status = pipeline_poll(&h->pipeline, &advanced);
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

static alnico_status_t poll_leaving(struct host_op *h)
{
    char name[96];
    alnico_status_t status =
        watch_verdict(&h->comm->watch, h->comm->transport, h->comm->family->settings.timeout,
                      operation_name(h, name, sizeof name));
    if (status == ALNICO_PENDING)
        return ALNICO_PENDING;
    comm_latch(h->comm, status, alnico_error_detail());
    return comm_latched(h->comm);
}

static alnico_status_t host_poll(struct op *op, bool *moved)
{
    struct host_op *h = (struct host_op *)op;
    if (atomic_load_explicit(&h->comm->latch.status, memory_order_relaxed) != ALNICO_SUCCESS) {
        alnico_status_t status = comm_latched(h->comm);
        leave(h, status, 0);
        return status;
    }
    switch (h->phase) {
    case PHASE_WAITING:
        if (!gate_is_open(&h->ready))
            return ALNICO_PENDING;
        h->phase = PHASE_RUNNING;
        return poll_running(h, moved);
    case PHASE_RUNNING:
        return poll_running(h, moved);
    case PHASE_LEAVING:
        return poll_leaving(h);
    }
    return ALNICO_ERROR_SYSTEM;
}

/* The last touch is the communicator's count: afterwards it may be destroyed. */
static void host_retire(struct op *op, alnico_status_t status)
{
    struct host_op *h = (struct host_op *)op;
    alnico_comm_t comm = h->comm;
    h->ended = status;
    gate_open(&h->done);
    atomic_store_explicit(&h->retired, true, memory_order_release);
    atomic_fetch_sub_explicit(&comm->in_flight, 1, memory_order_release);
}

/* ---- Making and recycling ---- */

static bool is_retired(const struct host_op *h)
{
    return atomic_load_explicit(&h->retired, memory_order_acquire);
}

static void op_free(struct host_op *h)
{
    gate_finish(&h->ready);
    gate_finish(&h->done);
    free(h);
}

static struct host_op *op_create(alnico_comm_t comm)
{
    struct host_op *h = aligned_alloc(64, (sizeof *h + 63) / 64 * 64);
    if (!h)
        return NULL;
    memset(h, 0, sizeof *h);
    h->comm = comm;
    h->op.lane = &comm->lane;
    h->op.poll = host_poll;
    h->op.retire = host_retire;
    h->request = (struct alnico_request){comm, &backend_host};
    h->pipeline.transport = comm->transport;
    h->pipeline.device = comm->device;
    h->pipeline.pool = &comm->family->pool;
    if (gate_init(&h->ready, comm->device) == ALNICO_SUCCESS &&
        gate_init(&h->done, comm->device) == ALNICO_SUCCESS)
        return h;
    op_free(h);
    return NULL;
}

/* Moves operations that nobody uses any more from the issued list to the spare one. A stream may still be
 * about to pass the gates of a retired one: `done` was opened at least to its epoch, which never goes back. */
static void reap(alnico_comm_t comm)
{
    struct host_op **link = &comm->issued;
    while (*link) {
        struct host_op *h = *link;
        if (h->claimed || !is_retired(h)) {
            link = &h->next;
            continue;
        }
        *link = h->next;
        h->next = comm->spare;
        comm->spare = h;
    }
}

static struct host_op *op_take(alnico_comm_t comm)
{
    if (comm->issued)
        reap(comm);
    struct host_op *h = comm->spare;
    if (h)
        comm->spare = h->next;
    else
        h = op_create(comm);
    return h;
}

static void op_prepare(struct host_op *h, const struct call *call, const struct choice *choice)
{
    alnico_comm_t comm = h->comm;
    struct pipeline *p = &h->pipeline;
    h->phase = PHASE_RUNNING;
    h->claimed = false;
    atomic_store_explicit(&h->retired, false, memory_order_relaxed);
    h->idle_polls = 0;
    h->stalled_at = 0;
    h->sequence = ++comm->sequence;
    p->call = *call;
    p->algorithm = choice->algorithm;
    p->chunk_bytes = choice->chunk_bytes;
    p->turn = comm->next_turn;
    pipeline_begin(p);
    comm->next_turn += p->chunks;
}

/* ---- Starting and waiting ---- */

/* On the caller's thread, to the end. Other communicators' operations of an engine without a thread go on
 * meanwhile: another rank may have to finish them before it comes here. */
static alnico_status_t run(struct host_op *h)
{
    struct engine *engine = h->comm->family->engine;
    struct backoff backoff = {.crowded = h->comm->crowded};
    backoff_reset(&backoff);
    for (;;) {
        bool moved = false;
        alnico_status_t status = host_poll(&h->op, &moved);
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

static alnico_status_t run_directly(struct host_op *h)
{
    alnico_status_t status = run(h);
    h->next = h->comm->spare;
    h->comm->spare = h;
    return status;
}

/* Gives the operation to the engine, between its gates. On failure it is spare again. */
static alnico_status_t submit(struct host_op *h)
{
    alnico_comm_t comm = h->comm;
    gate_close(&h->done);
    alnico_status_t status = ALNICO_SUCCESS;
    if (comm->stream) {
        h->phase = PHASE_WAITING;
        gate_close(&h->ready);
        status = gate_open_on(&h->ready, comm->stream);
    }
    atomic_fetch_add_explicit(&comm->in_flight, 1, memory_order_relaxed);
    if (status == ALNICO_SUCCESS)
        status = engine_submit(comm->family->engine, &h->op);
    if (status == ALNICO_SUCCESS) {
        h->next = comm->issued;
        comm->issued = h;
        return status;
    }
    atomic_fetch_sub_explicit(&comm->in_flight, 1, memory_order_relaxed);
    h->next = comm->spare;
    comm->spare = h;
    return status;
}

/* Blocks until the operation has retired. */
static alnico_status_t await(struct host_op *h)
{
    struct engine *engine = h->comm->family->engine;
    if (engine_is_threaded(engine) && !is_retired(h)) {
        engine_wake(engine);
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
static alnico_status_t outcome(struct host_op *h)
{
    alnico_status_t ended = h->ended;
    return ended == ALNICO_SUCCESS ? ended : comm_latched(h->comm);
}

static alnico_status_t start_blocking(struct host_op *h)
{
    alnico_comm_t comm = h->comm;
    if (!comm->stream && atomic_load_explicit(&comm->in_flight, memory_order_acquire) == 0)
        return run_directly(h);
    TRY(submit(h));
    if (comm->stream)
        return gate_hold(&h->done, comm->stream);
    await(h);
    return outcome(h);
}

static alnico_status_t host_start(alnico_comm_t comm, const struct call *call,
                                  const struct choice *choice, alnico_request_t *request)
{
    struct host_op *h = op_take(comm);
    if (!h)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for an operation");
    op_prepare(h, call, choice);
    if (!request)
        return start_blocking(h);
    TRY(submit(h));
    h->claimed = true;
    *request = &h->request;
    if (!engine_is_threaded(comm->family->engine))
        engine_pump(comm->family->engine);
    return ALNICO_SUCCESS;
}

/* ---- Requests ---- */

static struct host_op *op_of(alnico_request_t request)
{
    return (struct host_op *)((char *)request - offsetof(struct host_op, request));
}

static alnico_status_t host_synchronize(alnico_request_t request)
{
    await(op_of(request));
    return outcome(op_of(request));
}

static alnico_status_t host_join(alnico_request_t request)
{
    struct host_op *h = op_of(request);
    if (h->comm->stream)
        return gate_hold(&h->done, h->comm->stream);
    return host_synchronize(request);
}

static alnico_status_t host_test(alnico_request_t request)
{
    struct host_op *h = op_of(request);
    struct engine *engine = h->comm->family->engine;
    if (!is_retired(h) && !engine_is_threaded(engine))
        engine_pump(engine);
    return is_retired(h) ? outcome(h) : ALNICO_PENDING;
}

static void host_release(alnico_request_t request)
{
    op_of(request)->claimed = false;
}

static void free_list(struct host_op *h)
{
    while (h) {
        struct host_op *next = h->next;
        op_free(h);
        h = next;
    }
}

static void host_detach(alnico_comm_t comm)
{
    free_list(comm->issued);
    free_list(comm->spare);
    comm->issued = comm->spare = NULL;
}

static bool host_supports(const struct alnico_comm *comm, const struct call *call)
{
    (void)comm;
    return call->collective == ALNICO_ALLREDUCE;
}

const struct backend_ops backend_host = {
    .name = "host",
    .supports = host_supports,
    .start = host_start,
    .join = host_join,
    .test = host_test,
    .synchronize = host_synchronize,
    .release = host_release,
    .detach = host_detach,
};
