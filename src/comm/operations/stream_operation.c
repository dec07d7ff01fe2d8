/*
 * Operations that the device carries out. Those of a communicator run one after the other: blocking
 * ones on its stream, nonblocking ones on a stream of the library's, and events that are recorded
 * only where the two meet.
 *
 * An event may be recorded again while streams still wait for what it marked before. What is
 * captured into a graph is ordered among itself only; between a replay and other calls the streams
 * that the user gives them to decide.
 */
#include "comm/operations/stream_operation.h"

#include "base/status.h"
#include "device/backoff.h"

#include <stddef.h>
#include <stdlib.h>

struct stream_operation {
    struct alnico_request request; /* the user's view */
    struct stream_operation *next; /* in the list of all */
    struct device_event *done;
    bool used;     /* begun, and not yet released */
    bool captured; /* while a graph was captured */
};

/* The graph that is being captured on the stream, 0 if none is. */
static uint64_t capture_of(alnico_comm_t comm, void *stream)
{
    return comm->device->capturing ? comm->device->capturing(stream) : 0;
}

static bool is_captured(alnico_comm_t comm)
{
    return capture_of(comm, comm->stream) != 0;
}

static alnico_status_t make_event(alnico_comm_t comm, struct device_event **event)
{
    return *event ? ALNICO_SUCCESS : comm->device->event_create(event);
}

static alnico_status_t prepare(alnico_comm_t comm)
{
    struct stream_operations *state = &comm->stream_operations;
    TRY(make_event(comm, &state->front));
    return state->stream ? ALNICO_SUCCESS : comm->device->stream_create(&state->stream);
}

void stream_operation_attach(alnico_comm_t comm)
{
    if (!comm->device->host_accessible)
        (void)prepare(comm);
}

static alnico_status_t take(alnico_comm_t comm, struct stream_operation **out)
{
    struct stream_operations *state = &comm->stream_operations;
    struct stream_operation *op = state->all;
    while (op && op->used)
        op = op->next;
    *out = op;
    if (op)
        return ALNICO_SUCCESS;
    op = calloc(1, sizeof *op);
    if (!op)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for an operation");
    alnico_status_t status = comm->device->event_create(&op->done);
    if (status != ALNICO_SUCCESS) {
        free(op);
        return status;
    }
    op->request.comm = comm;
    op->next = state->all;
    state->all = op;
    *out = op;
    return ALNICO_SUCCESS;
}

/* The communicator's stream follows the newest nonblocking operation, and so all of them. */
static alnico_status_t follow(alnico_comm_t comm)
{
    struct stream_operation **last = comm->stream_operations.last;
    if (!last[0] && !last[1])
        return ALNICO_SUCCESS;
    last += is_captured(comm);
    if (!*last)
        return ALNICO_SUCCESS;
    struct device_event *done = (*last)->done;
    *last = NULL;
    return comm->device->stream_wait(comm->stream, done);
}

/* `next` goes on behind what `before` has so far. */
static alnico_status_t chain(alnico_comm_t comm, void *before, void *next)
{
    struct device_event **event = &comm->stream_operations.front;
    TRY(make_event(comm, event));
    TRY(comm->device->event_record(*event, before));
    return comm->device->stream_wait(next, *event);
}

/* `next` follows the last eager stream, by the mark of its newest call where there is one. */
static alnico_status_t follow_eager(alnico_comm_t comm, void *eager, void *next)
{
    struct stream_operations *state = &comm->stream_operations;
    return state->marked ? comm->device->stream_wait(next, state->tail) : chain(comm, eager, next);
}

/* CUDA keeps no order between a stream that is captured and another, unless both are in one graph.
 * The first stream after a capture therefore follows the last one before. A stream whose newest call
 * left a mark, or whose capture is over, may be gone and is not asked. */
static alnico_status_t order_streams(alnico_comm_t comm, void *next)
{
    struct stream_operations *state = &comm->stream_operations;
    uint64_t to = capture_of(comm, next);
    bool gone = (state->marked && !state->captured) || (to == 0 && state->in_graph);
    uint64_t from = gone ? 0 : capture_of(comm, comm->stream);
    void *eager = state->in_graph ? state->eager : comm->stream;
    if (to == 0 && from == 0)
        TRY(follow_eager(comm, eager, next));
    else if (to != 0 && to == from)
        TRY(chain(comm, comm->stream, next));
    state->marked = state->marked && to != 0;
    state->captured = to != 0;
    state->in_graph = to != 0;
    state->eager = eager;
    return ALNICO_SUCCESS;
}

alnico_status_t stream_operation_move(alnico_comm_t comm, void *stream)
{
    if (stream == comm->stream && !comm->stream_operations.in_graph)
        return ALNICO_SUCCESS;
    TRY(order_streams(comm, stream));
    comm_follow_stream(comm, stream);
    comm->stream_operations.moved = true;
    return ALNICO_SUCCESS;
}

alnico_status_t stream_operation_mark(alnico_comm_t comm)
{
    struct stream_operations *state = &comm->stream_operations;
    if (!state->moved || comm->inline_stream)
        return ALNICO_SUCCESS;
    state->captured = is_captured(comm);
    if (state->captured)
        return ALNICO_SUCCESS;
    TRY(make_event(comm, &state->tail));
    TRY(comm->device->event_record(state->tail, comm->stream));
    state->marked = true;
    return ALNICO_SUCCESS;
}

/* The stream of the next operation; *op is NULL where that is blocking. */
static alnico_status_t begin(alnico_comm_t comm, bool nonblocking, struct stream_operation **op,
                             void **stream)
{
    *op = NULL;
    *stream = comm->stream;
    if (!nonblocking)
        return follow(comm);
    TRY(prepare(comm));
    TRY(take(comm, op));
    TRY(chain(comm, comm->stream, comm->stream_operations.stream));
    (*op)->used = true;
    (*op)->captured = is_captured(comm);
    *stream = comm->stream_operations.stream;
    return ALNICO_SUCCESS;
}

static struct stream_operation *op_of(alnico_request_t request)
{
    return (struct stream_operation *)((char *)request -
                                       offsetof(struct stream_operation, request));
}

static alnico_status_t op_join(alnico_request_t request)
{
    struct stream_operation *op = op_of(request),
                            **last = &request->comm->stream_operations.last[op->captured];
    alnico_comm_t comm = request->comm;
    if (*last == op)
        *last = NULL;
    TRY(comm->device->stream_wait(comm->stream, op->done));
    return comm_health(comm);
}

/* A captured operation runs whenever its graph is replayed: it has no end that the host could know. */
static alnico_status_t check_eager(const struct stream_operation *op, const char *who)
{
    return op->captured ? error_set(ALNICO_ERROR_UNSUPPORTED,
                                    "%s: the operation was captured into a graph; alnico_wait is "
                                    "what joins it",
                                    who)
                        : ALNICO_SUCCESS;
}

/* The status of a completed event's work. Ranks that aborted it reported so before. */
static alnico_status_t status_of(alnico_comm_t comm, struct device_event *event)
{
    TRY(comm->device->event_synchronize(event));
    return comm_confirm(comm);
}

static alnico_status_t op_test(alnico_request_t request)
{
    const struct stream_operation *op = op_of(request);
    TRY(check_eager(op, "alnico_test"));
    bool complete = request->comm->device->event_complete(op->done);
    return complete ? status_of(request->comm, op->done) : ALNICO_PENDING;
}

enum { POLLS_PER_LOOK = 64 };

/* Whether to wait no longer. What keeps the deadline by itself, our kernels and the engine's
 * operations, can say which rank did not come: it is given half as long again to do so. */
static bool is_hopeless(alnico_comm_t comm, double waited)
{
    double timeout = comm->family->settings.timeout;
    return comm_health(comm) != ALNICO_SUCCESS || waited > 1.5 * timeout ||
           (waited > detector_patience(timeout) && comm_warned(comm));
}

struct event_wait {
    alnico_comm_t comm;
    struct device_event *event;
    int64_t start_ns;
    unsigned polls;
    bool aborted;
};

static enum wait look_for_event(void *context)
{
    struct event_wait *w = context;
    if (w->comm->device->event_complete(w->event))
        return WAIT_DONE;
    if (++w->polls % POLLS_PER_LOOK || w->aborted)
        return WAIT_IDLE;
    double waited = 1e-9 * (double)(backoff_now_ns() - w->start_ns);
    w->aborted = is_hopeless(w->comm, waited);
    if (w->aborted)
        comm_abort(w->comm, waited);
    return WAIT_IDLE;
}

/* A backend's kernels may wait for other ranks without end. They are aborted some time after the
 * deadline, or when the communicator has failed in another way. */
static alnico_status_t wait_for(alnico_comm_t comm, struct device_event *event)
{
    struct event_wait wait = {.comm = comm, .event = event, .start_ns = backoff_now_ns()};
    wait_until(look_for_event, &wait, WAIT_FOREVER, comm->crowded);
    return status_of(comm, event);
}

static alnico_status_t op_synchronize(alnico_request_t request)
{
    struct stream_operation *op = op_of(request);
    TRY(check_eager(op, "alnico_request_synchronize"));
    return wait_for(request->comm, op->done);
}

/* An eager operation has ended by now, or the communicator's stream waits for it. */
static void op_release(alnico_request_t request)
{
    struct stream_operation *op = op_of(request), **last = request->comm->stream_operations.last;
    if (last[0] == op)
        last[0] = NULL;
    op->used = false;
}

static const struct request_ops requests = {op_join, op_test, op_synchronize, op_release};

alnico_status_t stream_operation_start(alnico_comm_t comm, const struct call *call,
                                       const struct choice *choice, alnico_request_t *request)
{
    struct stream_operation *op;
    void *stream;
    TRY(begin(comm, request != NULL, &op, &stream));
    alnico_status_t status = choice->backend->ops->launch(comm, call, choice, stream);
    if (!op)
        return status;
    if (status == ALNICO_SUCCESS)
        status = comm->device->event_record(op->done, comm->stream_operations.stream);
    if (status != ALNICO_SUCCESS) {
        op->used = false;
        return status;
    }
    comm->stream_operations.last[op->captured] = op;
    op->request.ops = &requests;
    *request = &op->request;
    return ALNICO_SUCCESS;
}

static alnico_status_t wait_for_stream(alnico_comm_t comm, void *stream)
{
    TRY(make_event(comm, &comm->stream_operations.fence));
    TRY(comm->device->event_record(comm->stream_operations.fence, stream));
    return wait_for(comm, comm->stream_operations.fence);
}

/* On the CPU nothing of a stream waits without a deadline of its own. */
alnico_status_t stream_operation_drain(alnico_comm_t comm)
{
    if (comm->device->host_accessible)
        TRY(comm->device->stream_synchronize(comm->stream));
    else
        TRY(wait_for_stream(comm, comm->stream));
    return comm->stream_operations.stream ? wait_for_stream(comm, comm->stream_operations.stream)
                                          : ALNICO_SUCCESS;
}

void stream_operation_finish(alnico_comm_t comm)
{
    struct stream_operations *state = &comm->stream_operations;
    while (state->all) {
        struct stream_operation *next = state->all->next;
        comm->device->event_destroy(state->all->done);
        free(state->all);
        state->all = next;
    }
    if (state->front)
        comm->device->event_destroy(state->front);
    if (state->fence)
        comm->device->event_destroy(state->fence);
    if (state->tail)
        comm->device->event_destroy(state->tail);
    if (state->stream)
        comm->device->stream_destroy(state->stream);
    *state = (struct stream_operations){0};
}
