/* What a group starts when it ends: see group.h. On the thread of the group. */
#include "integrations/nccl/calls.h"

#include <stdlib.h>

static int compare(const void *left, const void *right)
{
    const struct operation *a = left, *b = right;
    if (a->comm->number != b->comm->number)
        return a->comm->number < b->comm->number ? -1 : 1;
    return a->order < b->order ? -1 : 1;
}

static void release_all(const struct operation *operations, size_t count)
{
    for (size_t i = 0; i < count; i++)
        comm_release(operations[i].comm, ncclSuccess);
}

/* All communicators are held, or none. */
static ncclResult_t hold_all(const struct operation *operations, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        entry_begin(operations[i].who);
        ncclResult_t result = comm_hold(operations[i].comm);
        if (result == ncclSuccess)
            continue;
        release_all(operations, i);
        return result;
    }
    return ncclSuccess;
}

/* Operations of the same communicator as the first, from `begin` on. */
static size_t part_length(const struct operation *begin, const struct operation *end)
{
    size_t length = 0;
    while (begin + length < end && begin[length].comm == begin->comm)
        length++;
    return length;
}

/* The communicator visits the streams of all messages: each follows the one before. The group runs on the
 * last, which is behind all of them, and the others then follow it. `now` is where the communicator is. */
static ncclResult_t visit_streams(const struct operation *part, size_t count,
                                  const struct operation **now)
{
    ncclResult_t result = ncclSuccess;
    for (size_t i = 0; i < count && result == ncclSuccess; i++) {
        if (!call_is_message(&part[i]) || (*now && (*now)->stream == part[i].stream))
            continue;
        *now = &part[i];
        result = call_set_stream(*now);
    }
    return result;
}

static ncclResult_t start_messages(const struct operation *part, size_t count)
{
    alnico_comm_t comm = part->comm->alnico;
    const struct operation *now = NULL;
    ncclResult_t result = visit_streams(part, count, &now), end;
    if (result != ncclSuccess)
        return result;
    result = result_of(alnico_group_begin(comm));
    for (size_t i = 0; i < count && result == ncclSuccess; i++) {
        entry_begin(part[i].who);
        if (call_is_message(&part[i]))
            result = call_add(&part[i]);
    }
    entry_begin("ncclGroupEnd");
    end = result_of(alnico_group_end(comm, NULL));
    if (result == ncclSuccess)
        result = end;
    return result == ncclSuccess ? visit_streams(part, count, &now) : result;
}

/* What one communicator has in the group. */
static ncclResult_t start_part(const struct operation *part, size_t count)
{
    ncclResult_t result = ncclSuccess;
    bool messages = false;
    for (size_t i = 0; i < count && result == ncclSuccess; i++) {
        entry_begin(part[i].who);
        if (call_is_message(&part[i]))
            messages = true;
        else
            result = call_start(&part[i]);
    }
    if (result == ncclSuccess && messages)
        result = start_messages(part, count);
    return comm_failed(part->comm, result);
}

/* The other communicators go on after an error of one: other ranks may wait for them. */
static ncclResult_t start_held(const struct operation *operations, size_t count)
{
    ncclResult_t result = ncclSuccess;
    const struct operation *end = operations + count;
    for (const struct operation *part = operations; part < end;) {
        size_t length = part_length(part, end);
        ncclResult_t one = start_part(part, length);
        if (result == ncclSuccess)
            result = one;
        part += length;
    }
    return result;
}

ncclResult_t group_start(struct operation *operations, size_t count)
{
    ncclResult_t result = hold_all(operations, count);
    if (result != ncclSuccess || count == 0)
        return result;
    qsort(operations, count, sizeof *operations, compare);
    result = start_held(operations, count);
    release_all(operations, count);
    return result;
}
