/* Premultiplied sums: see premultiplied.h. The products of an allreduce, and of a reduce at its root, fit in
 * `recv`, where the call is then in place; all others need memory in the order of the stream. */
#include "comm/api/premultiplied.h"

#include "base/datatype.h"
#include "base/status.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

/* ---- Operations ---- */

static struct created_op **find(alnico_comm_t comm, alnico_op_t op)
{
    struct created_op **link = &comm->created_ops;
    while (*link && (int)op != CREATED_OP + (*link)->number)
        link = &(*link)->next;
    return link;
}

static alnico_status_t check(alnico_comm_t comm, const void *factor, alnico_datatype_t type,
                             alnico_device_t device, const char *who)
{
    if (!factor)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: factor is NULL", who);
    if (!datatype_valid(type))
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: unknown type %d", who, (int)type);
    if (device == ALNICO_DEVICE_CPU)
        return ALNICO_SUCCESS;
    if (device != ALNICO_DEVICE_CUDA)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: unknown device %d", who, (int)device);
    if (device != comm->device->kind)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: factor is on a GPU, and communicator %d on %s",
                         who, comm->id, comm->device->name);
    if ((uintptr_t)factor % datatype_bytes(type))
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "%s: factor %p is not aligned to the %zu bytes of %s", who, factor,
                         datatype_bytes(type), datatype_name(type));
    int before = comm_enter(comm);
    alnico_status_t status = comm->device->check_memory(factor, "factor", who);
    comm_leave(comm, before);
    return status;
}

alnico_status_t alnico_op_create_premultiplied_sum(alnico_comm_t comm, const void *factor,
                                                   alnico_datatype_t type, alnico_device_t device,
                                                   alnico_op_t *out)
{
    const char *who = "alnico_op_create_premultiplied_sum";
    if (!out)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: out is NULL", who);
    *out = ALNICO_SUM;
    TRY(comm_usable(comm, who));
    TRY(check(comm, factor, type, device, who));
    struct created_op *op = calloc(1, sizeof *op);
    if (!op)
        return error_set(ALNICO_ERROR_MEMORY, "%s: no memory", who);
    op->type = type;
    op->number = comm->last_op = (comm->last_op + 1) % CREATED_OP;
    if (device == ALNICO_DEVICE_CPU)
        memcpy(&op->factor.bits, factor, datatype_bytes(type));
    else
        op->factor.at = factor;
    op->next = comm->created_ops;
    comm->created_ops = op;
    *out = (alnico_op_t)(CREATED_OP + op->number);
    return ALNICO_SUCCESS;
}

alnico_status_t alnico_op_destroy(alnico_comm_t comm, alnico_op_t op)
{
    const char *who = "alnico_op_destroy";
    TRY(comm_check(comm, who));
    struct created_op **link = find(comm, op), *found = *link;
    if (!found)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: communicator %d has created no operation %d",
                         who, comm->id, (int)op);
    *link = found->next;
    free(found);
    return ALNICO_SUCCESS;
}

alnico_status_t premultiplied_resolve(alnico_comm_t comm, struct call *call, const char *who)
{
    if (!call_reduces(call) || op_valid(call->op))
        return ALNICO_SUCCESS;
    const struct created_op *op = *find(comm, call->op);
    if (!op)
        return ALNICO_SUCCESS;
    if (op->type != call->type)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "%s: type is %s, and operation %d was created for %s", who,
                         datatype_valid(call->type) ? datatype_name(call->type) : "unknown",
                         (int)call->op, datatype_name(op->type));
    call->op = ALNICO_SUM;
    call->factor = &op->factor;
    return ALNICO_SUCCESS;
}

/* ---- Calls ---- */

static size_t input_count(const struct alnico_comm *comm, const struct call *call)
{
    struct side reads = call_reads(call, comm->rank, comm->size);
    return side_extent(&reads);
}

alnico_status_t premultiplied_place(alnico_comm_t comm, struct call *call, void **scratch)
{
    *scratch = NULL;
    if (!call->factor)
        return ALNICO_SUCCESS;
    bool in_recv = call->collective == ALNICO_ALLREDUCE ||
                   (call->collective == ALNICO_REDUCE && call->root == comm->rank);
    size_t bytes = input_count(comm, call) * datatype_bytes(call->type);
    call->input = call->send;
    if (bytes == 0)
        return ALNICO_SUCCESS;
    if (!in_recv)
        TRY(comm->device->stream_alloc(bytes, scratch, comm->stream));
    call->send = in_recv ? call->recv : *scratch;
    return ALNICO_SUCCESS;
}

alnico_status_t premultiplied_multiply(alnico_comm_t comm, const struct call *call)
{
    size_t count = call->factor ? input_count(comm, call) : 0;
    if (count == 0)
        return ALNICO_SUCCESS;
    return comm->device->scale((void *)(uintptr_t)call->send, call->input, count, call->type,
                               call->factor, comm->stream);
}

void premultiplied_release(alnico_comm_t comm, void *scratch)
{
    if (scratch)
        comm->device->stream_free(scratch, comm->stream);
}

/* ---- Requests ---- */

/* Of a nonblocking call with scratch: the operation's own request, and what to free after it. */
struct premultiplied {
    struct alnico_request request; /* the user's view */
    struct premultiplied *next;
    alnico_request_t inner;
    void *scratch;
};

static struct premultiplied *of_request(alnico_request_t request)
{
    return (struct premultiplied *)((char *)request - offsetof(struct premultiplied, request));
}

static alnico_status_t join(alnico_request_t request)
{
    alnico_request_t inner = of_request(request)->inner;
    return inner->ops->join(inner);
}

static alnico_status_t test(alnico_request_t request)
{
    alnico_request_t inner = of_request(request)->inner;
    return inner->ops->test(inner);
}

static alnico_status_t synchronize(alnico_request_t request)
{
    alnico_request_t inner = of_request(request)->inner;
    return inner->ops->synchronize(inner);
}

/* The communicator's stream has joined the operation, or the operation has ended. */
static void release(alnico_request_t request)
{
    struct premultiplied *own = of_request(request), **link = &request->comm->scratch;
    alnico_comm_t comm = request->comm;
    while (*link != own)
        link = &(*link)->next;
    *link = own->next;
    own->inner->ops->release(own->inner);
    int before = comm_enter(comm);
    premultiplied_release(comm, own->scratch);
    comm_leave(comm, before);
    free(own);
}

static const struct request_ops requests = {join, test, synchronize, release};

alnico_status_t premultiplied_keep(alnico_comm_t comm, void *scratch, alnico_request_t *request)
{
    struct premultiplied *own = scratch ? calloc(1, sizeof *own) : NULL;
    if (!scratch)
        return ALNICO_SUCCESS;
    if (!own) {
        alnico_status_t status = (*request)->ops->synchronize(*request);
        (*request)->ops->release(*request);
        *request = NULL;
        premultiplied_release(comm, scratch);
        return status == ALNICO_SUCCESS ? error_set(ALNICO_ERROR_MEMORY, "no memory for a request")
                                        : status;
    }
    *own = (struct premultiplied){{comm, &requests}, comm->scratch, *request, scratch};
    comm->scratch = own;
    *request = &own->request;
    return ALNICO_SUCCESS;
}

void premultiplied_finish(alnico_comm_t comm)
{
    while (comm->scratch) {
        struct premultiplied *next = comm->scratch->next;
        premultiplied_release(comm, comm->scratch->scratch);
        free(comm->scratch);
        comm->scratch = next;
    }
    while (comm->created_ops) {
        struct created_op *next = comm->created_ops->next;
        free(comm->created_ops);
        comm->created_ops = next;
    }
}
