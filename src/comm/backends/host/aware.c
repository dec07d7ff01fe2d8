/*
 * The aware backend: the rounds of host's algorithms on the device's own memory, where the
 * transport is aware of it, as a CUDA-aware MPI is. The stream opens `ready`; the engine's thread
 * then gives the transport pointers to the device; elements are combined by the device's reductions
 * on a stream of the library's; behind the last of them the engine opens `done`, and the stream
 * goes on. Scratch is the communicator's (progress/arithmetic.h), which one operation has at a
 * time.
 *
 * The transport may copy by a stream of its own. If that is one that waits for the legacy default
 * stream, a communicator on the latter has to wait for itself.
 */
#include "comm/backends/host/host.h"
#include "comm/communicator/out_of_band.h"
#include "comm/operations/engine_operation.h"
#include "comm/operations/pipeline.h"
#include "progress/arithmetic.h"

#include "base/datatype.h"
#include "base/log.h"
#include "base/status.h"

#include <limits.h>

struct aware_op {
    struct engine_operation operation;
    struct pipeline pipeline;
    uint64_t ticket;
};

static struct tickets *tickets_of(const struct aware_op *op)
{
    return &op->pipeline.arithmetic->tickets;
}

static bool is_served(const struct aware_op *op)
{
    return tickets_is_served(tickets_of(op), op->ticket);
}

static bool aware_may_run(struct engine_operation *o)
{
    return is_served((struct aware_op *)o);
}

/* On the communicator's device, as the transport and the device want it. */
static alnico_status_t aware_poll(struct engine_operation *o, bool *moved)
{
    struct aware_op *op = (struct aware_op *)o;
    int before = comm_enter(o->comm);
    alnico_status_t status = pipeline_poll(&op->pipeline, moved);
    comm_leave(o->comm, before);
    if (status == ALNICO_SUCCESS)
        tickets_next(tickets_of(op));
    return status;
}

static void aware_cancel(struct engine_operation *o)
{
    struct aware_op *op = (struct aware_op *)o;
    int before = comm_enter(o->comm);
    pipeline_cancel(&op->pipeline);
    comm_leave(o->comm, before);
    if (is_served(op))
        tickets_next(tickets_of(op));
}

static const struct work_ops aware_work = {
    .bytes = sizeof(struct aware_op),
    .poll = aware_poll,
    .cancel = aware_cancel,
    .may_run = aware_may_run,
};

static void begin(struct aware_op *op, const struct choice *choice)
{
    struct pipeline *p = &op->pipeline;
    alnico_comm_t comm = op->operation.comm;
    p->call = op->operation.call;
    p->algorithm = aware_rounds(choice->algorithm);
    p->chunk_bytes = choice->chunk_bytes;
    p->transport = comm->transport;
    p->arithmetic = aware_arithmetic(comm);
    p->pool = &comm->family->pool;
    p->map = comm->map;
    p->number = (uint32_t)comm->next_chunk;
    pipeline_begin(p);
    comm->next_chunk += p->numbers;
}

static alnico_status_t aware_start(alnico_comm_t comm, const struct call *call,
                                   const struct choice *choice, alnico_request_t *request)
{
    if (call->collective == ALNICO_SENDRECV)
        return messages_start(comm, call, choice, request);
    struct aware_op *op =
        (struct aware_op *)engine_operation_take(comm, &aware_work, call, request);
    if (!op)
        return ALNICO_ERROR_MEMORY;
    begin(op, choice);
    op->ticket = tickets_take(tickets_of(op));
    alnico_status_t status = engine_operation_start(&op->operation, request);
    if (status != ALNICO_SUCCESS && comm->spare == &op->operation) /* it was not submitted */
        tickets_give_back(tickets_of(op));
    return status;
}

static void aware_detach(alnico_comm_t comm)
{
    arithmetic_destroy(aware_arithmetic(comm));
    comm->state[BACKEND_AWARE] = NULL;
}

static alnico_status_t make(alnico_comm_t comm)
{
    struct arithmetic *arithmetic = NULL;
    if (comm->family->settings.aware == AWARE_AUTO && !comm->transport->ops->aware(comm->transport))
        return error_set(ALNICO_ERROR_UNSUPPORTED, "rank %d: %s does not say that it is CUDA-aware",
                         comm->rank, comm->transport->ops->name);
    alnico_status_t status = arithmetic_create(comm->device, &arithmetic);
    comm->state[BACKEND_AWARE] = arithmetic;
    return status;
}

/* It is fit for all ranks, or for none. */
static alnico_status_t aware_attach(alnico_comm_t comm, const char *who)
{
    if (comm->device->host_accessible || !comm->transport->concurrent ||
        !comm->transport->ops->aware || comm->family->settings.aware == AWARE_NEVER ||
        !comm_take_scratch(comm, "aware", ARITHMETIC_BYTES))
        return ALNICO_SUCCESS;
    struct comm_rendezvous r;
    comm_rendezvous_init(&r, comm, who);
    alnico_status_t status = comm_rendezvous_agree(&r, make(comm));
    if (status != ALNICO_SUCCESS)
        aware_detach(comm);
    if (status != ALNICO_SUCCESS && comm->rank == 0)
        log_write(LOG_INFO, "%s: messages of GPUs go through the host: %s", who,
                  alnico_error_detail());
    return r.base.failed ? status : ALNICO_SUCCESS;
}

static void aware_memory(alnico_comm_t comm, alnico_comm_memory_t *sum)
{
    size_t bytes = aware_arithmetic(comm) ? ARITHMETIC_BYTES : 0;
    sum->device += bytes;
    sum->scratch += bytes;
}

/* Whether a call that is never cut fits into one message, and its chunk into the scratch. */
static bool has_room(alnico_comm_t comm, const struct call *call, const struct algorithm *algorithm)
{
    size_t element = datatype_bytes(call->type), longest = call_longest(call, comm->size);
    size_t most = pipeline_arithmetic_count(call, algorithm, comm->size);
    if (!algorithm->whole)
        return most > 0;
    return longest <= most && longest <= (size_t)INT_MAX / element / (size_t)comm->size;
}

static bool aware_supports(alnico_comm_t comm, const struct call *call,
                           const struct algorithm *algorithm)
{
    if (!aware_arithmetic(comm))
        return false;
    return !call || call->collective == ALNICO_SENDRECV ||
           has_room(comm, call, aware_rounds(algorithm));
}

const struct backend_ops aware_ops = {
    .about = "the same with messages of the GPUs' memory, over a transport that takes it",
    .needs =
        "a CUDA-aware MPI as the transport, MPI_THREAD_MULTIPLE, and blocks of at most 2 GB in "
        "all and some MB of scratch if it sends several at once",
    .attach = aware_attach,
    .detach = aware_detach,
    .supports = aware_supports,
    .memory = aware_memory,
    .start = aware_start,
};
