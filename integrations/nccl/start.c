/* What a group starts when it ends: see group.h. On the thread of the group. */
#include "integrations/nccl/calls.h"
#include "integrations/nccl/entries.h"

#include <stdlib.h>

static int compare(const void *left, const void *right)
{
    const struct operation *a = left, *b = right;
    if (a->comm->number != b->comm->number)
        return a->comm->number < b->comm->number ? -1 : 1;
    return a->order < b->order ? -1 : 1;
}

/* All communicators are held, or none. */
static ncclResult_t hold_all(const struct operation *operations, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        ncclResult_t result = comm_hold(operations[i].comm, call_name(&operations[i]));
        if (result == ncclSuccess)
            continue;
        while (i-- > 0)
            comm_release(operations[i].comm);
        return result;
    }
    return ncclSuccess;
}

static void release_all(const struct operation *operations, size_t count)
{
    for (size_t i = 0; i < count; i++)
        comm_release(operations[i].comm);
}

/* Operations of the same communicator as the first, from `begin` on. */
static size_t part_length(const struct operation *begin, const struct operation *end)
{
    size_t length = 0;
    while (begin + length < end && begin[length].comm == begin->comm)
        length++;
    return length;
}

static bool is_kept(const struct operation *o, bool messages)
{
    return !call_is_foreign(o) && call_is_message(o) == messages;
}

static ncclResult_t set_stream(const struct operation *o)
{
    return result_of(alnico_comm_set_stream(o->comm->alnico, o->stream), call_name(o));
}

/* The communicator visits the streams of all messages: each follows the one before. The group runs on the
 * last, which is behind all of them, and the others then follow it. `now` is where the communicator is. */
static ncclResult_t visit_streams(const struct operation *part, size_t count,
                                  const struct operation **now)
{
    ncclResult_t result = ncclSuccess;
    for (size_t i = 0; i < count && result == ncclSuccess; i++) {
        if (!is_kept(&part[i], true) || (*now && (*now)->stream == part[i].stream))
            continue;
        *now = &part[i];
        result = set_stream(*now);
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
    result = result_of(alnico_group_begin(comm), "ncclGroupEnd");
    for (size_t i = 0; i < count && result == ncclSuccess; i++)
        if (is_kept(&part[i], true))
            result = call_start(&part[i]);
    end = result_of(alnico_group_end(comm, NULL), "ncclGroupEnd");
    if (result == ncclSuccess)
        result = end;
    return result == ncclSuccess ? visit_streams(part, count, &now) : result;
}

/* What one communicator has in the group. */
static ncclResult_t start_part(const struct operation *part, size_t count)
{
    ncclResult_t result = ncclSuccess;
    size_t messages = 0;
    for (size_t i = 0; i < count && result == ncclSuccess; i++) {
        messages += is_kept(&part[i], true);
        if (!is_kept(&part[i], false))
            continue;
        result = set_stream(&part[i]);
        if (result == ncclSuccess)
            result = call_start(&part[i]);
    }
    if (result == ncclSuccess && messages)
        result = start_messages(part, count);
    return comm_failed(part->comm, result);
}

/* The other communicators go on after an error of one: other ranks may wait for them. */
static ncclResult_t start_ours(const struct operation *operations, size_t count)
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

static ncclResult_t prepare_one(const struct job *job)
{
    return call_prepare_foreign(job->comm, job->who);
}

ncclResult_t group_prepare_foreign(const struct operation *operations, size_t count)
{
    struct job *jobs = calloc(count, sizeof *jobs);
    size_t jobs_count = 0;
    ncclResult_t result = ncclSuccess;
    if (!jobs)
        return fail(ncclSystemError, "ncclGroupEnd: no memory");
    for (size_t i = 0; i < count && result == ncclSuccess; i++) {
        const struct operation *o = &operations[i];
        bool again = jobs_count && jobs[jobs_count - 1].comm == o->comm;
        if (!call_is_foreign(o) || o->comm->real || again)
            continue;
        result = call_may_prepare(o);
        jobs[jobs_count++] = (struct job){
            .run = prepare_one, .who = call_name(o), .comm = o->comm, .device = o->comm->device};
    }
    if (result == ncclSuccess)
        result = jobs_run(jobs, jobs_count);
    free(jobs);
    return result;
}

static ncclResult_t start_foreign(const struct operation *operations, size_t count)
{
    const struct entries *real = entries_real();
    ncclResult_t result = real->GroupStart();
    for (size_t i = 0; i < count && result == ncclSuccess; i++)
        if (call_is_foreign(&operations[i]))
            result = call_start_foreign(&operations[i]);
    ncclResult_t end = real->GroupEnd();
    if (result == ncclSuccess && end != ncclSuccess)
        result = fail(end, "ncclGroupEnd: the real NCCL: %s", real->GetLastError(NULL));
    return result;
}

static ncclResult_t start_held(const struct operation *operations, size_t count)
{
    size_t foreign = 0;
    for (size_t i = 0; i < count; i++)
        foreign += call_is_foreign(&operations[i]);
    ncclResult_t result = foreign ? group_prepare_foreign(operations, count) : ncclSuccess;
    if (result == ncclSuccess)
        result = start_ours(operations, count);
    return result == ncclSuccess && foreign ? start_foreign(operations, count) : result;
}

ncclResult_t group_start(struct operation *operations, size_t count)
{
    ncclResult_t result = count ? hold_all(operations, count) : ncclSuccess;
    if (result != ncclSuccess || count == 0)
        return result;
    qsort(operations, count, sizeof *operations, compare);
    result = start_held(operations, count);
    release_all(operations, count);
    return result;
}
