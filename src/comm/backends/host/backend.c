/*
 * The host backend: a collective is an operation of the progress engine, which runs an algorithm
 * over the transport, chunk by chunk. The operation's order, deadline and requests are operations/engine_operation.c's.
 *
 * If the host does not reach the buffers, two kernels on the communicator's stream copy a short
 * message: one writes the input to pinned memory and opens `ready`, one waits for `done` and reads
 * the result. So no copy call stands on its way. A nonblocking one's result is copied when somebody
 * waits for it; all chunks of a long message are copied by streams of the library's. After an error a
 * short message has left its result's buffer as it was; a long one may have written some chunks of it.
 */
#include "comm/backends/host/host.h"
#include "comm/communicator/out_of_band.h"
#include "comm/operations/engine_operation.h"
#include "comm/operations/pipeline.h"
#include "progress/staging.h"

#include "base/datatype.h"
#include "base/log.h"
#include "base/status.h"

#include <limits.h>

enum host_way {
    WAY_DIRECT, /* the host reaches the buffers */
    WAY_SHORT,
    WAY_SHORT_LATER, /* nonblocking */
    WAY_LONG
};

struct host_op {
    struct engine_operation operation;
    struct pipeline pipeline;
    enum host_way way;

    /* The input and the result of a short message, in pinned memory. */
    char *input, *result;
    unsigned region;
    struct device_flag *failed; /* raised: there is no result */
    struct gate landing;        /* of SHORT_LATER: open unless a stream copies the result */
    bool lands, taken;          /* of SHORT_LATER: that has begun; the region is in use */

    uint64_t ticket; /* of a long message, for the chunks */
};

static struct side side_at(const struct host_op *op, bool written)
{
    const struct call *call = op->operation.call;
    int rank = op->operation.comm->rank, size = op->operation.comm->size;
    return written ? call_writes(call, rank, size) : call_reads(call, rank, size);
}

/* Bytes that a rank reads and writes of a short message, which has no gaps. */
static size_t bytes_of(const struct host_op *op, bool written)
{
    struct side side = side_at(op, written);
    return side_extent(&side) * datatype_bytes(op->operation.call->type);
}

static bool has_gaps(const struct host_op *op)
{
    struct side reads = side_at(op, false), writes = side_at(op, true);
    return !side_is_dense(&reads) || !side_is_dense(&writes);
}

static alnico_status_t host_land(struct engine_operation *h)
{
    struct host_op *op = (struct host_op *)h;
    size_t bytes = op->way == WAY_SHORT_LATER ? bytes_of(op, true) : 0;
    if (bytes == 0)
        return ALNICO_SUCCESS;
    struct staging *staging = host_staging(h->comm);
    if (!op->lands)
        TRY(staging_mark_after(
            staging, &op->landing, staging->in,
            staging_enqueue(staging, h->call->recv, op->result, bytes, staging->in)));
    op->lands = true;
    return gate_is_open(&op->landing) ? ALNICO_SUCCESS : ALNICO_PENDING;
}

/* A result that is copied later stays until then. */
static bool host_is_free(struct engine_operation *h)
{
    struct host_op *op = (struct host_op *)h;
    if (!gate_is_idle(&op->landing))
        return false;
    if (op->taken)
        staging_give(host_staging(h->comm), op->region);
    op->taken = false;
    return true;
}

static void leave_staging(struct host_op *op)
{
    struct staging *staging = host_staging(op->operation.comm);
    if (op->way == WAY_SHORT)
        staging_give(staging, op->region);
    if (op->way == WAY_LONG && tickets_is_served(&staging->tickets, op->ticket))
        tickets_next(&staging->tickets);
}

/* In the order of the calls: were two ranks to serve two messages in different orders, both would
 * wait for ever. */
static bool host_may_run(struct engine_operation *h)
{
    struct host_op *op = (struct host_op *)h;
    return op->way != WAY_LONG || tickets_is_served(&host_staging(h->comm)->tickets, op->ticket);
}

static alnico_status_t host_poll(struct engine_operation *h, bool *moved)
{
    struct host_op *op = (struct host_op *)h;
    TRY(pipeline_poll(&op->pipeline, moved));
    leave_staging(op);
    return ALNICO_SUCCESS;
}

static void host_cancel(struct engine_operation *h)
{
    struct host_op *op = (struct host_op *)h;
    pipeline_cancel(&op->pipeline);
    if (op->failed)
        h->comm->device->flag_raise(op->failed, 1);
    leave_staging(op);
}

static alnico_status_t host_open(struct engine_operation *h)
{
    struct host_op *op = (struct host_op *)h;
    size_t bytes = op->way == WAY_LONG || op->way == WAY_DIRECT ? 0 : bytes_of(op, false);
    if (bytes == 0)
        return gate_open_on(&h->ready, h->comm->stream);
    return gate_open_copied(&h->ready, op->input, h->call->send, bytes, h->comm->stream);
}

static alnico_status_t host_hold(struct engine_operation *h)
{
    struct host_op *op = (struct host_op *)h;
    void *stream = h->comm->stream;
    const bool later = op->way == WAY_SHORT_LATER;
    size_t bytes = op->way == WAY_SHORT || later ? bytes_of(op, true) : 0;
    if (bytes == 0)
        return gate_hold(&h->done, stream);
    const alnico_status_t status =
        gate_hold_and_copy(&h->done, h->call->recv, op->result, bytes, op->failed, stream);
    return later ? staging_mark_after(host_staging(h->comm), &op->landing, stream, status) : status;
}

static void host_finish(struct engine_operation *h)
{
    struct host_op *op = (struct host_op *)h;
    if (gate_finish_idle(&op->landing) && op->failed)
        h->comm->device->flag_destroy(op->failed);
}

static const struct work_ops host_work = {
    .bytes = sizeof(struct host_op),
    .poll = host_poll,
    .cancel = host_cancel,
    .may_run = host_may_run,
    .open = host_open,
    .hold = host_hold,
    .land = host_land,
    .is_free = host_is_free,
    .finish = host_finish,
};

static size_t room_for(size_t bytes)
{
    return (bytes + 16 + 63) / 64 * 64;
}

/* Room for the input, and for the result where that is aligned otherwise or something else; false
 * if there is none now. */
static bool take_region(struct host_op *op, const struct call *call)
{
    struct staging *staging = host_staging(op->operation.comm);
    size_t in = bytes_of(op, false), out = bytes_of(op, true);
    size_t from = (uintptr_t)call->send % 16, to = (uintptr_t)call->recv % 16;
    bool one = from == to &&
               (call->collective == ALNICO_ALLREDUCE || call->collective == ALNICO_BROADCAST);
    if (in > STAGING_SHORT_BYTES || out > STAGING_SHORT_BYTES || has_gaps(op))
        return false;
    size_t room = one ? room_for(in > out ? in : out) : room_for(in) + room_for(out);
    char *memory = staging_take(staging, room, &op->region);
    if (!memory)
        return false;
    op->input = memory + from;
    op->result = one ? op->input : memory + room_for(in) + to;
    return true;
}

/* Flag and gate that a short message needs beside its region; kept with the operation. */
static alnico_status_t prepare_short(struct host_op *op)
{
    const struct device_ops *device = op->operation.comm->device;
    if (!op->failed)
        TRY(device->flag_create(&op->failed));
    return op->landing.device ? ALNICO_SUCCESS : gate_init(&op->landing, device);
}

static alnico_status_t choose_way(struct host_op *op, bool nonblocking)
{
    struct pipeline *p = &op->pipeline;
    const struct call *call = op->operation.call;
    op->way = WAY_DIRECT;
    op->lands = false;
    p->call = call;
    p->staging = NULL;
    if (op->operation.comm->device->host_accessible)
        return ALNICO_SUCCESS;
    TRY(prepare_short(op));
    if (take_region(op, call)) {
        op->way = nonblocking ? WAY_SHORT_LATER : WAY_SHORT;
        op->taken = nonblocking;
        p->own = *call;
        p->own.send = op->input;
        p->own.recv = op->result;
        p->call = &p->own;
        return ALNICO_SUCCESS;
    }
    op->way = WAY_LONG;
    p->staging = host_staging(op->operation.comm);
    op->ticket = tickets_take(&p->staging->tickets);
    return ALNICO_SUCCESS;
}

static void begin(struct host_op *op, const struct choice *choice)
{
    struct pipeline *p = &op->pipeline;
    alnico_comm_t comm = op->operation.comm;
    p->algorithm = choice->algorithm;
    p->chunk_bytes = choice->chunk_bytes;
    p->transport = comm->transport;
    p->pool = &comm->family->pool;
    p->map = comm->map;
    p->number = (uint32_t)comm->next_chunk;
    pipeline_begin(p);
    comm->next_chunk += p->numbers;
}

static alnico_status_t host_start(alnico_comm_t comm, const struct call *call,
                                  const struct choice *choice, alnico_request_t *request)
{
    if (call->collective == ALNICO_SENDRECV)
        return messages_start(comm, call, choice, request);
    struct host_op *op = (struct host_op *)engine_operation_take(comm, &host_work, call, request);
    if (!op)
        return ALNICO_ERROR_MEMORY;
    alnico_status_t status = choose_way(op, request != NULL);
    if (status != ALNICO_SUCCESS) {
        engine_operation_put_back(&op->operation);
        return status;
    }
    begin(op, choice);
    status = engine_operation_start(&op->operation, request);
    if (status == ALNICO_SUCCESS || comm->spare != &op->operation)
        return status;
    if (op->way == WAY_LONG) /* it was not submitted */
        tickets_give_back(&host_staging(comm)->tickets);
    else
        leave_staging(op);
    host_is_free(&op->operation);
    return status;
}

static void host_detach(alnico_comm_t comm)
{
    staging_destroy(host_staging(comm));
    comm->state[BACKEND_HOST] = NULL;
}

/* All ranks have staging, or none: it is then not fit for them. */
static alnico_status_t host_attach(alnico_comm_t comm, const char *who)
{
    if (comm->device->host_accessible || !comm->transport->concurrent ||
        !comm_take_scratch(comm, "host", STAGING_BYTES))
        return ALNICO_SUCCESS;
    struct staging *staging = NULL;
    alnico_status_t status = staging_create(comm->device, &staging);
    comm->state[BACKEND_HOST] = staging;
    if (status != ALNICO_SUCCESS)
        log_write(LOG_WARNING, "%s: no messages through the host: %s", who, alnico_error_detail());
    struct comm_rendezvous r;
    comm_rendezvous_init(&r, comm, who);
    status = comm_rendezvous_agree(&r, status);
    if (status != ALNICO_SUCCESS)
        host_detach(comm);
    return r.base.failed ? status : ALNICO_SUCCESS;
}

static void host_memory(alnico_comm_t comm, alnico_comm_memory_t *sum)
{
    size_t scratch = host_staging(comm) ? STAGING_BYTES : 0;
    sum->host += scratch + messages_pinned_bytes(comm);
    sum->scratch += scratch;
}

/* Whether a call that is never cut is short enough for one message, and for one chunk of staging. */
static bool has_room(alnico_comm_t comm, const struct call *call, const struct algorithm *algorithm)
{
    size_t element = datatype_bytes(call->type), longest = call_longest(call, comm->size);
    bool staged = host_staging(comm) != NULL;
    size_t most = staged ? pipeline_staged_count(call, comm->size) : SIZE_MAX;
    if (!algorithm->whole)
        return most > 0;
    return longest <= most && longest <= (size_t)INT_MAX / element / (size_t)comm->size;
}

/* Messages that a stream waits for need somebody else to carry them. */
static bool host_supports(alnico_comm_t comm, const struct call *call,
                          const struct algorithm *algorithm)
{
    bool works = comm->device->host_accessible ? comm->inline_stream || comm->transport->concurrent
                                               : host_staging(comm) != NULL;
    return works && (!call || has_room(comm, call, algorithm));
}

const struct backend_ops host_ops = {
    .about = "the progress engine runs an algorithm's rounds over a transport",
    .needs =
        "MPI_THREAD_MULTIPLE or the inline stream, and blocks of at most 2 GB in all if it sends "
        "several at once, 512 KB for GPUs",
    .attach = host_attach,
    .detach = host_detach,
    .supports = host_supports,
    .memory = host_memory,
    .start = host_start,
};
