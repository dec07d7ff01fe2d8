/* From a described call to its start: checks, choice, start. */
#include "comm/api/api.h"
#include "comm/api/consistency.h"
#include "comm/communicator/registration.h"

#include "base/datatype.h"
#include "base/status.h"

#include <stdint.h>

/* ---- Checks ---- */

static alnico_status_t check_op(const struct call *call, const char *who)
{
    if (!op_valid(call->op))
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: unknown operation %d", who, (int)call->op);
    if (!op_supports(call->op, call->type))
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: type %s does not have the operation %s", who,
                         datatype_name(call->type), op_name(call->op));
    return ALNICO_SUCCESS;
}

/* One side of a call, with its extent in elements. */
struct area {
    struct side side;
    const char *base, *name;
    size_t extent;
};

static alnico_status_t check_area(alnico_comm_t comm, const struct call *call, struct area *area,
                                  const char *who)
{
    area->extent = side_extent(&area->side);
    if (area->extent == 0)
        return ALNICO_SUCCESS;
    TRY(api_type(area->extent, call->type, who));
    return api_buffer(comm, area->base, area->name, area->extent, call->type, who);
}

/* The block by which a call is in place: the rank's own. */
static const char *own_block(const struct area *area, int rank, size_t bytes)
{
    int own = area->side.blocks > 1 ? rank : 0;
    struct walk block = {0};
    for (int b = 0; b <= own; b++)
        side_block(&area->side, b, &block);
    return area->base + block.at * bytes;
}

static bool overlap(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return x < y ? y - x < a_bytes : x - y < b_bytes;
}

static bool blocks_overlap(const struct area *reads, const struct area *writes, size_t bytes)
{
    SIDE_EACH(read, &reads->side)
    {
        struct walk write = {0};
        for (int b = 0; side_block(&writes->side, b, &write); b++)
            if (read.count && write.count &&
                overlap(reads->base + read.at * bytes, read.count * bytes,
                        writes->base + write.at * bytes, write.count * bytes))
                return true;
    }
    return false;
}

/* An alltoallv's own blocks may meet by chance. */
static bool is_in_place(const struct area *reads, const struct area *writes, int rank, size_t bytes)
{
    return reads->side.counts && writes->side.counts
               ? reads->base == writes->base
               : own_block(reads, rank, bytes) == own_block(writes, rank, bytes);
}

static alnico_status_t check_buffers(alnico_comm_t comm, const struct call *call, const char *who)
{
    bool one = call->collective == ALNICO_BROADCAST;
    struct area reads = {call_reads(call, comm->rank, comm->size), call->send,
                         one ? "buffer" : "send", 0};
    struct area writes = {call_writes(call, comm->rank, comm->size), call->recv,
                          one ? "buffer" : "recv", 0};
    size_t bytes = datatype_bytes(call->type);
    TRY(check_area(comm, call, &reads, who));
    TRY(check_area(comm, call, &writes, who));
    if (reads.extent == 0 || writes.extent == 0 ||
        !overlap(reads.base, reads.extent * bytes, writes.base, writes.extent * bytes) ||
        is_in_place(&reads, &writes, comm->rank, bytes) || !blocks_overlap(&reads, &writes, bytes))
        return ALNICO_SUCCESS;
    return error_set(
        ALNICO_ERROR_ARGUMENT, "%s: send %p and recv %p overlap; they must be %s or apart", who,
        call->send, call->recv,
        reads.side.blocks == writes.side.blocks ? "equal" : "in place, the own block in both,");
}

static alnico_status_t check_call(alnico_comm_t comm, const struct call *call, const char *who)
{
    TRY(api_type(call->count, call->type, who));
    if (call_reduces(call))
        TRY(check_op(call, who));
    return call->collective == ALNICO_SENDRECV ? ALNICO_SUCCESS : check_buffers(comm, call, who);
}

/* ---- Choice ---- */

static bool holds_side(alnico_comm_t comm, const struct side *side, const void *base,
                       alnico_datatype_t type)
{
    size_t extent = side_extent(side);
    return extent == 0 || registration_find(comm, base, extent * datatype_bytes(type));
}

static bool is_registered(alnico_comm_t comm, const struct call *call)
{
    if (!comm->registrations)
        return false;
    struct side reads = call_reads(call, comm->rank, comm->size),
                writes = call_writes(call, comm->rank, comm->size);
    return reads.blocks + writes.blocks > 0 && holds_side(comm, &reads, call->send, call->type) &&
           holds_side(comm, &writes, call->recv, call->type);
}

static bool can_do(alnico_comm_t comm, const struct call *call, unsigned modes,
                   const struct backend_ops *backend, const struct algorithm *algorithm)
{
    return backend && (backend->capturable || !(modes & MODE_CAPTURED)) &&
           (!backend->supports || backend->supports(comm, call, algorithm));
}

static bool is_prepared(alnico_comm_t comm, const struct backend_ops *backend,
                        const struct algorithm *algorithm)
{
    return !backend || !backend->prepared || backend->prepared(comm, algorithm);
}

alnico_status_t api_prepare(alnico_comm_t comm, const struct choice *forced, const char *who)
{
    const struct backend_ops *backend = forced->backend->ops;
    if (is_prepared(comm, backend, forced->algorithm))
        return ALNICO_SUCCESS;
    int before = comm_enter(comm);
    alnico_status_t status = backend->prepare(comm, forced->algorithm, who);
    comm_leave(comm, before);
    return status;
}

/* Only a forced algorithm can be one that does not fit the communicator or the call. */
alnico_status_t api_fits(alnico_comm_t comm, const struct call *call, unsigned modes,
                         const struct choice *forced, const char *who)
{
    const struct backend_ops *backend = forced->backend->ops;
    if (can_do(comm, call, modes, backend, forced->algorithm))
        return ALNICO_SUCCESS;
    if (!backend)
        return error_set(ALNICO_ERROR_UNSUPPORTED, "%s: %s: this build has no backend %s", who,
                         forced->algorithm->name, forced->backend->name);
    if (modes & MODE_CAPTURED && !backend->capturable)
        return error_set(ALNICO_ERROR_UNSUPPORTED,
                         "%s: %s is not capturable, and a graph is being captured on the stream",
                         who, forced->algorithm->name);
    return error_set(ALNICO_ERROR_UNSUPPORTED,
                     "%s: %s needs %s; communicator %d has %d ranks on %d host%s", who,
                     forced->algorithm->name, backend->needs, comm->id, comm->size, comm->hosts,
                     comm->hosts == 1 ? "" : "s");
}

/* From `step` on, the first that can do it: a function of what is equal on all ranks only. */
static const struct tuning_step *next_able(alnico_comm_t comm, const struct call *call,
                                           unsigned modes, const struct tuning_step *step,
                                           const struct backend_ops **backend)
{
    for (; step; step = tuning_next(step, call_bytes(call, comm->size))) {
        *backend = step->choice.backend->ops;
        if (can_do(comm, call, modes, *backend, step->choice.algorithm))
            break;
    }
    return step;
}

static const struct tuning_step *first_able(alnico_comm_t comm, const struct call *call,
                                            unsigned modes, const struct backend_ops **backend)
{
    size_t bytes = call_bytes(call, comm->size);
    return next_able(comm, call, modes,
                     tuning_choose(&comm->tuning, call->collective, modes, bytes), backend);
}

/* Makes what the step's backend has not made yet, which may show that it is not able, or goes on to
 * one that needs nothing. */
static alnico_status_t make_ready(alnico_comm_t comm, const struct call *call, unsigned modes,
                                  bool may_wait, const char *who, const struct tuning_step **step,
                                  const struct backend_ops **backend)
{
    while (*step && !is_prepared(comm, *backend, (*step)->choice.algorithm)) {
        if (may_wait)
            TRY((*backend)->prepare(comm, (*step)->choice.algorithm, who));
        else
            *step = tuning_next(*step, call_bytes(call, comm->size));
        *step = next_able(comm, call, modes, *step, backend);
    }
    return ALNICO_SUCCESS;
}

static bool is_capturing(const struct alnico_comm *comm)
{
    return comm->device->capturing && comm->device->capturing(comm->stream);
}

/* Whether `step` of an eager call is also what comes first while a graph is captured. For most
 * calls it is, and nobody needs to ask the device. */
static bool is_for_both(const struct alnico_comm *comm, const struct call *call, unsigned modes,
                        const struct tuning_step *step, const struct backend_ops *backend)
{
    if (!comm->device->capturing)
        return true;
    const struct tuning_step *captured = tuning_choose(
        &comm->tuning, call->collective, modes | MODE_CAPTURED, call_bytes(call, comm->size));
    const struct choice *a = &step->choice, *b = &captured->choice;
    return step && captured && backend->capturable && a->backend == b->backend &&
           a->algorithm == b->algorithm && a->blocks == b->blocks &&
           a->chunk_bytes == b->chunk_bytes;
}

static alnico_status_t nothing_can(alnico_comm_t comm, const struct call *call, unsigned modes,
                                   const char *who)
{
    return error_set(
        ALNICO_ERROR_UNSUPPORTED, "%s: no backend of communicator %d on %s can do %s of %s%s", who,
        comm->id, comm->device->name,
        call_reduces(call) ? op_name(call->op) : collectives[call->collective].name,
        datatype_name(call->type), modes & MODE_CAPTURED ? " while a graph is captured" : "");
}

static alnico_status_t choose_from_table(alnico_comm_t comm, const struct call *call,
                                         unsigned modes, bool may_wait, const char *who,
                                         struct choice *out)
{
    const struct backend_ops *backend = NULL;
    const struct tuning_step *step = first_able(comm, call, modes, &backend);
    bool ready = !step || is_prepared(comm, backend, step->choice.algorithm);
    if ((!ready || !is_for_both(comm, call, modes, step, backend)) && is_capturing(comm)) {
        modes |= MODE_CAPTURED;
        may_wait = false;
        step = first_able(comm, call, modes, &backend);
    }
    TRY(make_ready(comm, call, modes, may_wait, who, &step, &backend));
    if (!step)
        return nothing_can(comm, call, modes, who);
    *out = step->choice;
    return ALNICO_SUCCESS;
}

/* It is prepared since it is forced. */
static alnico_status_t choose_forced(alnico_comm_t comm, const struct call *call, unsigned modes,
                                     const char *who, struct choice *out)
{
    const struct choice *forced = &comm->forced[call->collective];
    const struct backend_ops *ops = forced->backend->ops;
    *out = *forced;
    if (ops && !ops->capturable && is_capturing(comm))
        modes |= MODE_CAPTURED;
    const struct tuning_step *step =
        tuning_choose(&comm->tuning, call->collective, modes, call_bytes(call, comm->size));
    out->chunk_bytes = step ? step->choice.chunk_bytes : CHUNK_BYTES_LEAST;
    return api_fits(comm, call, modes, forced, who);
}

static alnico_status_t choose(alnico_comm_t comm, const struct call *call, bool may_wait,
                              const char *who, struct choice *out)
{
    unsigned modes = is_registered(comm, call) ? MODE_REGISTERED : 0;
    TRY(comm->forced[call->collective].algorithm
            ? choose_forced(comm, call, modes, who, out)
            : choose_from_table(comm, call, modes, may_wait, who, out));
    if (comm->family->settings.chunk_bytes)
        out->chunk_bytes = comm->family->settings.chunk_bytes;
    return ALNICO_SUCCESS;
}

/* ---- Start ---- */

static alnico_status_t compare(alnico_comm_t comm, const struct call *call, bool nonblocking,
                               const char *who)
{
    alnico_status_t mine = check_call(comm, call, who);
    if (mine == ALNICO_SUCCESS)
        mine = call_check_blocks(comm, call, who);
    return call_compare(comm, call, nonblocking, mine, who);
}

static alnico_status_t start(alnico_comm_t comm, const struct call *call, alnico_request_t *request,
                             const char *who)
{
    struct choice choice;
    bool all = call->collective != ALNICO_SENDRECV; /* ranks call, and may wait for each other */
    TRY(comm->family->settings.check && all ? compare(comm, call, request != NULL, who)
                                            : check_call(comm, call, who));
    TRY(choose(comm, call, all && !request, who, &choice));
    return choice.backend->ops->start(comm, call, &choice, request);
}

alnico_status_t api_start(alnico_comm_t comm, const struct call *call, alnico_request_t *request,
                          const char *who)
{
    int before = comm_enter(comm);
    alnico_status_t status = start(comm, call, request, who);
    comm_leave(comm, before);
    return status;
}
