/* Checks of arguments, and what follows from them: root, counts and ALNICO_IN_PLACE of a collective
 * by the table of collectives, and the arguments of a buffer. */
#include "comm/api/api.h"

#include "base/datatype.h"
#include "base/status.h"

#include <stdint.h>

alnico_status_t api_request(alnico_request_t *request, const char *who)
{
    if (!request)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: request is NULL", who);
    *request = NULL;
    return ALNICO_SUCCESS;
}

static alnico_status_t check_counts(const size_t *counts, const char *name, const char *who)
{
    if (counts)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT, "%s: %s is NULL; it needs a count for each rank", who,
                     name);
}

/* A rank's blocks to and from itself are one. In place both sides are the receiving one. */
static alnico_status_t resolve_both_counts(alnico_comm_t comm, struct call *call, const char *who)
{
    int rank = comm->rank;
    TRY(check_counts(call->recv_counts, "recv_counts", who));
    if (call->send == ALNICO_IN_PLACE || (call->send && call->send == call->recv)) {
        call->send_counts = call->recv_counts;
        call->send_at = call->recv_at;
        return ALNICO_SUCCESS;
    }
    TRY(check_counts(call->send_counts, "send_counts", who));
    size_t sent = call->send_counts[rank], received = call->recv_counts[rank];
    return sent == received
               ? ALNICO_SUCCESS
               : error_set(
                     ALNICO_ERROR_ARGUMENT,
                     "%s: send_counts[%d] is %zu and recv_counts[%d] %zu; the rank's own must "
                     "be equal",
                     who, rank, sent, rank, received);
}

/* The count of a rank's own block is an argument of its own, but where vectors are reduced. */
static alnico_status_t resolve_counts(alnico_comm_t comm, struct call *call, const char *who)
{
    const struct collective *kind = &collectives[call->collective];
    if (kind->reads == kind->writes)
        return resolve_both_counts(comm, call, who);
    bool reads_all = kind->reads == ALL_BLOCKS;
    const size_t *counts = reads_all ? call->send_counts : call->recv_counts;
    TRY(check_counts(counts, "counts", who));
    if (kind->reduces)
        call->count = counts[comm->rank];
    if (call->count == counts[comm->rank])
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT, "%s: %s is %zu and counts[%d] %zu; they must be equal",
                     who, reads_all ? "recv_count" : "send_count", call->count, comm->rank,
                     counts[comm->rank]);
}

static alnico_status_t check_root(alnico_comm_t comm, int root, const char *who)
{
    if (root >= 0 && root < comm->size)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "%s: root %d is not one of the ranks 0 to %d of communicator %d", who, root,
                     comm->size - 1, comm->id);
}

/* Buffers and counts that only the root has are NULL elsewhere. */
static void drop_root_side(struct call *call)
{
    const struct collective *kind = &collectives[call->collective];
    if (kind->writes_at_root) {
        call->recv = NULL;
        call->recv_counts = call->recv_at = NULL;
    } else if (kind->writes != kind->reads) {
        call->send = NULL;
        call->send_counts = call->send_at = NULL;
    }
}

/* The rank's own block in `buffer`, which has the blocks of all. An address beyond all is refused
 * with the rest of the blocks. */
static alnico_status_t own_block(alnico_comm_t comm, const struct call *call,
                                 const struct side *blocks, const void *buffer, const char *who,
                                 void **out)
{
    struct walk block = {0};
    TRY(api_type(0, call->type, who));
    for (int b = blocks->counts ? 0 : comm->rank; b <= comm->rank; b++)
        side_block(blocks, b, &block);
    *out = buffer ? (void *)((uintptr_t)buffer + block.at * datatype_bytes(call->type)) : NULL;
    return ALNICO_SUCCESS;
}

/* The buffer in place becomes the rank's own block of the other one, or the same one. */
static alnico_status_t resolve_in_place(alnico_comm_t comm, struct call *call, const char *who)
{
    const struct collective *kind = &collectives[call->collective];
    bool recv = kind->in_place == IN_PLACE_RECV;
    if ((recv ? call->recv : call->send) != ALNICO_IN_PLACE)
        return ALNICO_SUCCESS;
    if (kind->rooted && comm->rank != call->root)
        return error_set(
            ALNICO_ERROR_ARGUMENT,
            "%s: %s is ALNICO_IN_PLACE on rank %d; it has a meaning at the root %d only", who,
            recv ? "recv" : "send", comm->rank, call->root);
    struct side reads = call_reads(call, comm->rank, comm->size),
                writes = call_writes(call, comm->rank, comm->size);
    void *own = call->recv;
    if (kind->writes == ALL_BLOCKS && kind->reads == OWN_BLOCK)
        TRY(own_block(comm, call, &writes, call->recv, who, &own));
    if (!recv)
        call->send = own;
    return kind->reads == ALL_BLOCKS && kind->writes == OWN_BLOCK
               ? own_block(comm, call, &reads, call->send, who, &call->recv)
               : ALNICO_SUCCESS;
}

alnico_status_t api_resolve(alnico_comm_t comm, struct call *call, const char *who)
{
    const struct collective *kind = &collectives[call->collective];
    bool elsewhere = kind->rooted && comm->rank != call->root;
    if (kind->rooted)
        TRY(check_root(comm, call->root, who));
    if (elsewhere)
        drop_root_side(call);
    else if (kind->vector)
        TRY(resolve_counts(comm, call, who));
    return kind->in_place == IN_PLACE_NEVER ? ALNICO_SUCCESS : resolve_in_place(comm, call, who);
}

alnico_status_t api_type(size_t count, alnico_datatype_t type, const char *who)
{
    if (!datatype_valid(type))
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: unknown type %d", who, (int)type);
    size_t bytes;
    if (__builtin_mul_overflow(count, datatype_bytes(type), &bytes) || bytes > PTRDIFF_MAX)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: count %zu of %s overflows the address space",
                         who, count, datatype_name(type));
    return ALNICO_SUCCESS;
}

alnico_status_t api_buffer(alnico_comm_t comm, const void *buffer, const char *name, size_t count,
                           alnico_datatype_t type, const char *who)
{
    if (!buffer)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: %s is NULL with count %zu", who, name, count);
    if (buffer == ALNICO_IN_PLACE)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: %s cannot be ALNICO_IN_PLACE", who, name);
    size_t bytes = datatype_bytes(type);
    if ((uintptr_t)buffer % bytes)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: %s %p is not aligned to the %zu bytes of %s",
                         who, name, buffer, bytes, datatype_name(type));
    return pointer_cache_check(&comm->pointer_cache, comm->device, buffer, name, who);
}
