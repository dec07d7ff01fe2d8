/*
 * Messages between two ranks. An operation posts all its messages at once, after those of earlier calls:
 * sends or receives first, as the transport wants. A message too long for a transport goes in pieces,
 * the last shorter than the others, so that two sides with different counts always differ in a piece.
 *
 * If the host does not reach the buffers, the operation has copies in pinned memory: the
 * communicator's stream copies the sends before it opens `ready`, and the receives behind `done`; if
 * the host waits instead, a stream of the library's does. The engine's thread copies nothing: the driver
 * keeps it from that while the program's thread waits in a copy of its own, behind this operation. With
 * device arithmetic the messages are of the buffers themselves.
 */
#include "comm/backends/host/host.h"

#include "base/status.h"
#include "comm/operations/engine_operation.h"
#include "comm/operations/rounds.h"
#include "progress/arithmetic.h"
#include "progress/staging.h"

#include <stdio.h>
#include <stdlib.h>

enum {
    PIECE_BYTES = 1 << 30,
    KEPT_BYTES = 64 << 20 /* of pinned memory, from one operation to the next */
};

struct message_op {
    struct engine_operation operation;
    struct rounds rounds;
    uint64_t ticket; /* among the communicator's operations of messages */
    bool posted;
    /* How the host does without reaching the buffers; both NULL: it reaches them. */
    struct staging *staging;
    struct arithmetic *arithmetic;

    int pieces, room;
    struct exchange *list; /* of pieces, in the order of their posting; the next two follow it */
    struct pending *many;
    char **user; /* each piece in the user's memory */

    char *pinned; /* with staging: all pieces, each in lines of its own */
    size_t pinned_bytes;
    struct gate landing; /* with staging: open unless a stream copies the receives, as it does once
                            the operation lands */
    bool receives, lands;
};

static bool receives(const struct exchange *x)
{
    return x->from >= 0;
}

static const struct span *span_of(const struct exchange *x)
{
    return receives(x) ? &x->recv : &x->send;
}

static alnico_status_t tell_sizes(const struct message_op *op)
{
    const struct exchange *x = &op->rounds.pending[op->rounds.failed].exchange;
    char detail[256];
    snprintf(detail, sizeof detail, "%s", alnico_error_detail());
    return error_set(ALNICO_ERROR_MISMATCH, "%s rank %d, %zu bytes on rank %d: %s",
                     receives(x) ? "a message from" : "a message to", receives(x) ? x->from : x->to,
                     span_of(x)->len, op->rounds.shape.rank, detail);
}

static alnico_status_t enqueue_receives(struct message_op *op, void *stream)
{
    for (int i = 0; i < op->pieces; i++)
        if (receives(&op->list[i]) && op->list[i].recv.len)
            TRY(staging_enqueue(op->staging, op->user[i], op->pinned + op->list[i].recv.at,
                                op->list[i].recv.len, stream));
    return ALNICO_SUCCESS;
}

/* Copies the receives to the device, if there are any. */
static alnico_status_t land_on(struct message_op *op, void *stream)
{
    if (!op->staging || !op->receives)
        return ALNICO_SUCCESS;
    op->lands = true;
    return staging_mark_after(op->staging, &op->landing, stream, enqueue_receives(op, stream));
}

static alnico_status_t messages_hold(struct engine_operation *h)
{
    TRY(gate_hold(&h->done, h->comm->stream));
    return land_on((struct message_op *)h, h->comm->stream);
}

static alnico_status_t messages_land(struct engine_operation *h)
{
    struct message_op *op = (struct message_op *)h;
    const alnico_status_t status =
        op->lands || !op->staging ? ALNICO_SUCCESS : land_on(op, op->staging->in);
    if (status != ALNICO_SUCCESS)
        gate_settle(&op->landing);
    return status == ALNICO_SUCCESS && !gate_is_idle(&op->landing) ? ALNICO_PENDING : status;
}

static bool messages_is_free(struct engine_operation *h)
{
    return gate_is_idle(&((struct message_op *)h)->landing);
}

static alnico_status_t poll(struct message_op *op, bool *moved)
{
    struct engine_operation *h = &op->operation;
    struct tickets *tickets = &h->comm->messages;
    if (!op->posted && !tickets_is_served(tickets, op->ticket))
        return ALNICO_PENDING;
    alnico_status_t status = rounds_poll(&op->rounds, moved);
    if (!op->posted)
        tickets_next(tickets);
    op->posted = true;
    return status == ALNICO_ERROR_MISMATCH ? tell_sizes(op) : status;
}

/* On the communicator's device, whose memory a transport may have to copy from. */
static alnico_status_t messages_poll(struct engine_operation *h, bool *moved)
{
    int before = comm_enter(h->comm);
    alnico_status_t status = poll((struct message_op *)h, moved);
    comm_leave(h->comm, before);
    return status;
}

static void messages_cancel(struct engine_operation *h)
{
    struct message_op *op = (struct message_op *)h;
    int before = comm_enter(h->comm);
    rounds_cancel(&op->rounds);
    comm_leave(h->comm, before);
}

static int messages_await(const struct engine_operation *h)
{
    return rounds_waits_for(&((const struct message_op *)h)->rounds);
}

static alnico_status_t messages_open(struct engine_operation *h)
{
    struct message_op *op = (struct message_op *)h;
    alnico_comm_t comm = h->comm;
    for (int i = 0; op->staging && i < op->pieces; i++)
        if (!receives(&op->list[i]) && op->list[i].send.len)
            TRY(comm->device->copy(op->pinned + op->list[i].send.at, op->user[i],
                                   op->list[i].send.len, comm->stream));
    return gate_open_on(&h->ready, comm->stream);
}

static void messages_finish(struct engine_operation *h)
{
    struct message_op *op = (struct message_op *)h;
    free(op->list);
    if (gate_finish_idle(&op->landing) && op->pinned)
        h->comm->device->pinned_free(op->pinned);
}

static const struct work_ops messages_work = {
    .bytes = sizeof(struct message_op),
    .poll = messages_poll,
    .cancel = messages_cancel,
    .open = messages_open,
    .hold = messages_hold,
    .land = messages_land,
    .is_free = messages_is_free,
    .awaits = messages_await,
    .finish = messages_finish,
};

static size_t pinned_in(const struct engine_operation *o)
{
    size_t sum = 0;
    for (; o; o = o->next)
        if (o->work == &messages_work)
            sum += ((const struct message_op *)o)->pinned_bytes;
    return sum;
}

size_t messages_pinned_bytes(const struct alnico_comm *comm)
{
    return pinned_in(comm->issued) + pinned_in(comm->spare);
}

static size_t pieces_of(const struct exchange *x)
{
    return span_of(x)->len / PIECE_BYTES + 1;
}

static alnico_status_t make_room(struct message_op *op, int pieces)
{
    size_t room = (size_t)pieces;
    if (pieces <= op->room)
        return ALNICO_SUCCESS;
    free(op->list);
    op->room = 0;
    op->list = malloc(room * (sizeof *op->list + sizeof *op->many + sizeof *op->user));
    if (!op->list)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for a group of %d messages", pieces);
    op->many = (struct pending *)(op->list + room);
    op->user = (char **)(op->many + room);
    op->room = pieces;
    return ALNICO_SUCCESS;
}

/* Cuts one message; its pieces' `at` counts from the call's buffers. */
static void add_message(struct message_op *op, const struct call *call, const struct exchange *x)
{
    char *base = receives(x) ? call->recv : (char *)call->send;
    size_t done = 0, pieces = pieces_of(x), len = span_of(x)->len;
    for (size_t i = 0; i < pieces; i++) {
        struct exchange *piece = &op->list[op->pieces];
        *piece = *x;
        struct span *span = receives(x) ? &piece->recv : &piece->send;
        span->at += done;
        span->len = len - done < PIECE_BYTES ? len - done : PIECE_BYTES;
        op->user[op->pieces++] = base + span->at;
        done += span->len;
    }
}

static void add_messages(struct message_op *op, const struct call *call, bool received)
{
    for (int i = 0; i < call->messages_count; i++)
        if (receives(&call->messages[i]) == received)
            add_message(op, call, &call->messages[i]);
}

static alnico_status_t list_pieces(struct message_op *op, const struct call *call)
{
    size_t pieces = 0;
    for (int i = 0; i < call->messages_count; i++)
        pieces += pieces_of(&call->messages[i]);
    TRY(make_room(op, (int)pieces));
    op->pieces = 0;
    bool sends_first = op->operation.comm->transport->sends_first;
    add_messages(op, call, !sends_first);
    int first = op->pieces;
    add_messages(op, call, sends_first);
    op->receives = sends_first ? op->pieces > first : first > 0;
    return ALNICO_SUCCESS;
}

static alnico_status_t make_gate(struct message_op *op)
{
    return op->landing.device ? ALNICO_SUCCESS
                              : gate_init(&op->landing, op->operation.comm->device);
}

static alnico_status_t make_pinned(struct message_op *op, size_t bytes)
{
    const struct device_ops *device = op->operation.comm->device;
    bool fits = bytes <= op->pinned_bytes &&
                (op->pinned_bytes <= KEPT_BYTES || bytes > op->pinned_bytes / 2);
    void *memory = NULL;
    TRY(make_gate(op));
    if (fits || bytes == 0)
        return ALNICO_SUCCESS;
    if (op->pinned)
        device->pinned_free(op->pinned);
    op->pinned = NULL;
    op->pinned_bytes = 0;
    TRY(device->pinned_alloc(bytes, &memory));
    op->pinned = memory;
    op->pinned_bytes = bytes;
    return ALNICO_SUCCESS;
}

/* The pieces move to pinned memory, one behind the other. */
static alnico_status_t pin_pieces(struct message_op *op)
{
    size_t next = 0;
    for (int i = 0; i < op->pieces; i++) {
        struct exchange *x = &op->list[i];
        struct span *span = receives(x) ? &x->recv : &x->send;
        span->at = next;
        next += (span->len + 63) / 64 * 64;
    }
    return make_pinned(op, next);
}

static void set_rounds(struct message_op *op, const struct call *call,
                       const struct algorithm *algorithm)
{
    alnico_comm_t comm = op->operation.comm;
    const struct arithmetic *arithmetic = op->arithmetic;
    struct rounds *r = &op->rounds;
    r->algorithm = algorithm;
    r->shape = (struct shape){
        .rank = comm->rank, .size = comm->size, .messages = op->list, .messages_count = op->pieces};
    r->transport = comm->transport;
    r->tag = TAG_MESSAGE;
    r->device = arithmetic ? arithmetic->device : &device_cpu;
    r->stream = arithmetic ? arithmetic->stream : NULL;
    r->ended = arithmetic ? &op->landing : NULL;
    r->type = call->type;
    r->buffer[BUFFER_SEND] = op->staging ? op->pinned : (char *)call->send;
    r->buffer[BUFFER_RECV] = op->staging ? op->pinned : call->recv;
    r->many = op->many;
    r->empty = true;
    rounds_begin(r);
}

static alnico_status_t describe(struct message_op *op, const struct call *call,
                                const struct choice *choice)
{
    op->lands = op->posted = false;
    op->arithmetic =
        choice->backend == &backend_aware ? aware_arithmetic(op->operation.comm) : NULL;
    op->staging = op->arithmetic ? NULL : host_staging(op->operation.comm);
    TRY(list_pieces(op, call));
    if (op->staging)
        TRY(pin_pieces(op));
    if (op->arithmetic)
        TRY(make_gate(op));
    set_rounds(op, call, op->arithmetic ? aware_rounds(choice->algorithm) : choice->algorithm);
    return ALNICO_SUCCESS;
}

alnico_status_t messages_start(alnico_comm_t comm, const struct call *call,
                               const struct choice *choice, alnico_request_t *request)
{
    struct message_op *op =
        (struct message_op *)engine_operation_take(comm, &messages_work, call, request);
    if (!op)
        return ALNICO_ERROR_MEMORY;
    alnico_status_t status = describe(op, call, choice);
    if (status != ALNICO_SUCCESS) {
        engine_operation_put_back(&op->operation);
        return status;
    }
    op->ticket = tickets_take(&comm->messages);
    return engine_operation_start(&op->operation, request);
}
