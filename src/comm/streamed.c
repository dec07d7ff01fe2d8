/*
 * Operations that the device carries out. Those of a communicator run one after the other: blocking ones on its
 * stream, nonblocking ones on a stream of the library's, and events that are recorded only where the two meet.
 *
 * An event may be recorded again while streams still wait for what it marked before. What is captured into a graph is
 * ordered among itself only; between a replay and other calls the streams that the user gives them to decide.
 */
#include "comm/streamed.h"

#include "status.h"

#include <stddef.h>
#include <stdlib.h>

struct streamed {
    struct alnico_request request; /* the user's view */
    struct streamed *next;         /* in the list of all */
    struct device_event *done;
    bool used;     /* begun, and not yet released */
    bool captured; /* while a graph was captured */
};

static bool is_captured(alnico_comm_t comm)
{
    return comm->device->capturing && comm->device->capturing(comm->stream);
}

/* ---- Making and recycling ---- */

static alnico_status_t prepare(alnico_comm_t comm)
{
    struct streamed_state *state = &comm->streamed;
    if (!state->front)
        TRY(comm->device->event_create(&state->front));
    return state->stream ? ALNICO_SUCCESS : comm->device->stream_create(&state->stream);
}

static struct streamed *find_free(struct streamed_state *state)
{
    struct streamed *op = state->all;
    while (op && op->used)
        op = op->next;
    return op;
}

static alnico_status_t take(alnico_comm_t comm, struct streamed **out)
{
    struct streamed_state *state = &comm->streamed;
    struct streamed *op = find_free(state);
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

/* ---- Order ---- */

/* The communicator's stream follows the newest nonblocking operation, and so all of them. */
static alnico_status_t follow(alnico_comm_t comm)
{
    struct streamed *last = comm->streamed.last;
    if (!last || last->captured != is_captured(comm))
        return ALNICO_SUCCESS;
    comm->streamed.last = NULL;
    return comm->device->stream_wait(comm->stream, last->done);
}

static alnico_status_t fork_stream(alnico_comm_t comm)
{
    struct streamed_state *state = &comm->streamed;
    TRY(comm->device->event_record(state->front, comm->stream));
    return comm->device->stream_wait(state->stream, state->front);
}

alnico_status_t streamed_begin(alnico_comm_t comm, bool nonblocking, struct streamed **op,
                               void **stream)
{
    *op = NULL;
    *stream = comm->stream;
    if (!nonblocking)
        return follow(comm);
    TRY(prepare(comm));
    TRY(fork_stream(comm));
    TRY(take(comm, op));
    (*op)->used = true;
    (*op)->captured = is_captured(comm);
    *stream = comm->streamed.stream;
    return ALNICO_SUCCESS;
}

alnico_status_t streamed_end(alnico_comm_t comm, struct streamed *op,
                             const struct backend_ops *backend, alnico_request_t *request)
{
    if (!op)
        return ALNICO_SUCCESS;
    alnico_status_t status = comm->device->event_record(op->done, comm->streamed.stream);
    if (status != ALNICO_SUCCESS) {
        streamed_cancel(comm, op);
        return status;
    }
    comm->streamed.last = op;
    op->request.backend = backend;
    *request = &op->request;
    return ALNICO_SUCCESS;
}

void streamed_cancel(alnico_comm_t comm, struct streamed *op)
{
    (void)comm;
    if (op)
        op->used = false;
}

/* ---- Requests ---- */

static struct streamed *op_of(alnico_request_t request)
{
    return (struct streamed *)((char *)request - offsetof(struct streamed, request));
}

alnico_status_t streamed_join(alnico_request_t request)
{
    struct streamed *op = op_of(request);
    alnico_comm_t comm = request->comm;
    if (comm->streamed.last == op)
        comm->streamed.last = NULL;
    TRY(comm->device->stream_wait(comm->stream, op->done));
    return comm_health(comm);
}

alnico_status_t streamed_test(alnico_request_t request)
{
    alnico_comm_t comm = request->comm;
    return comm->device->event_complete(op_of(request)->done) ? comm_health(comm) : ALNICO_PENDING;
}

alnico_status_t streamed_synchronize(alnico_request_t request)
{
    alnico_comm_t comm = request->comm;
    TRY(comm->device->event_synchronize(op_of(request)->done));
    return comm_health(comm);
}

void streamed_release(alnico_request_t request)
{
    op_of(request)->used = false;
}

/* ---- The end ---- */

alnico_status_t streamed_drain(alnico_comm_t comm)
{
    void *stream = comm->streamed.stream;
    return stream ? comm->device->stream_synchronize(stream) : ALNICO_SUCCESS;
}

void streamed_finish(alnico_comm_t comm)
{
    struct streamed_state *state = &comm->streamed;
    while (state->all) {
        struct streamed *next = state->all->next;
        comm->device->event_destroy(state->all->done);
        free(state->all);
        state->all = next;
    }
    if (state->front)
        comm->device->event_destroy(state->front);
    if (state->stream)
        comm->device->stream_destroy(state->stream);
    *state = (struct streamed_state){0};
}
