/* What the public calls check before they describe a call: the communicator, and arguments that
 * most of them have. */
#include "comm/api/api.h"
#include "comm/api/consistency.h"

#include "base/datatype.h"
#include "base/status.h"

#include <stdint.h>

alnico_status_t api_refused(alnico_comm_t comm, alnico_status_t mine, const char *who)
{
    return comm->family->settings.check ? call_compare(comm, NULL, false, mine, who) : mine;
}

alnico_status_t api_collective(alnico_comm_t comm, const char *who)
{
    TRY(comm_usable(comm, who));
    TRY_TOLD(comm, who, comm_group_closed(comm, who));
    return ALNICO_SUCCESS;
}

alnico_status_t api_request(alnico_request_t *request, const char *who)
{
    if (!request)
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: request is NULL", who);
    *request = NULL;
    return ALNICO_SUCCESS;
}

alnico_status_t api_request_told(alnico_comm_t comm, alnico_request_t *request, const char *who)
{
    if (!request)
        TRY(comm_usable(comm, who));
    alnico_status_t status = api_request(request, who);
    return status == ALNICO_SUCCESS ? status : api_refused(comm, status, who);
}

alnico_status_t api_root(alnico_comm_t comm, int root, const char *who)
{
    if (root >= 0 && root < comm->size)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "%s: root %d is not one of the ranks 0 to %d of communicator %d", who, root,
                     comm->size - 1, comm->id);
}

alnico_status_t api_nowhere(alnico_comm_t comm, const char *name, int root, const char *who)
{
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "%s: %s is ALNICO_IN_PLACE on rank %d; it has a meaning at the root %d only",
                     who, name, comm->rank, root);
}

alnico_status_t api_counts(const size_t *counts, const char *name, const char *who)
{
    if (counts)
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT, "%s: %s is NULL; it needs a count for each rank", who,
                     name);
}

alnico_status_t api_own_count(alnico_comm_t comm, const char *name, size_t count,
                              const size_t *counts, const char *who)
{
    if (count == counts[comm->rank])
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT, "%s: %s is %zu and counts[%d] %zu; they must be equal",
                     who, name, count, comm->rank, counts[comm->rank]);
}

/* An address beyond all is refused with the rest of the blocks. */
alnico_status_t api_own_place(alnico_comm_t comm, const struct side *blocks, const void *buffer,
                              alnico_datatype_t type, const char *who, void **out)
{
    struct walk block = {0};
    TRY(api_type(0, type, who));
    for (int b = blocks->counts ? 0 : comm->rank; b <= comm->rank; b++)
        side_block(blocks, b, &block);
    *out = buffer ? (void *)((uintptr_t)buffer + block.at * datatype_bytes(type)) : NULL;
    return ALNICO_SUCCESS;
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
