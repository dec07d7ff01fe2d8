/* From a call to its start: resolve, check, choose, start. */
#include "comm/api/api.h"
#include "comm/api/consistency.h"
#include "comm/api/premultiplied.h"
#include "comm/communicator/registration.h"
#include "comm/communicator/sharing.h"
#include "comm/operations/stream_operation.h"

#include "base/datatype.h"
#include "base/status.h"

#include <stdint.h>

static alnico_status_t check_op(const struct call *call, const char *who)
{
    if (!op_valid(call->op))
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: unknown operation %d", who, (int)call->op);
    if (!op_supports(call->op, call->type))
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: type %s does not have the operation %s", who,
                         datatype_name(call->type), op_name(call->op));
    return ALNICO_SUCCESS;
}

/* A buffer of a call that is checked. */
struct checked {
    struct side side;
    const char *base, *name;
    size_t extent; /* elements */
};

static alnico_status_t check_side(alnico_comm_t comm, const struct call *call,
                                  struct checked *checked, const char *who)
{
    checked->extent = side_extent(&checked->side);
    if (checked->extent == 0)
        return ALNICO_SUCCESS;
    if (checked->extent > call->count) /* otherwise the type's check did this one too */
        TRY(api_type(checked->extent, call->type, who));
    return api_buffer(comm, checked->base, checked->name, checked->extent, call->type, who);
}

/* The block by which a call is in place: the rank's own. */
static const char *own_block(const struct checked *checked, int rank, size_t bytes)
{
    int own = checked->side.blocks > 1 ? rank : 0;
    struct walk block = {0};
    for (int b = 0; b <= own; b++)
        side_block(&checked->side, b, &block);
    return checked->base + block.at * bytes;
}

static bool overlap(const char *a, size_t a_bytes, const char *b, size_t b_bytes)
{
    uintptr_t x = (uintptr_t)a, y = (uintptr_t)b;
    return x < y ? y - x < a_bytes : x - y < b_bytes;
}

static bool blocks_overlap(const struct checked *reads, const struct checked *writes, size_t bytes)
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
static bool is_in_place(const struct checked *reads, const struct checked *writes, int rank,
                        size_t bytes)
{
    return reads->side.counts && writes->side.counts
               ? reads->base == writes->base
               : own_block(reads, rank, bytes) == own_block(writes, rank, bytes);
}

static alnico_status_t check_buffers(alnico_comm_t comm, const struct call *call, const char *who)
{
    bool broadcast = call->collective == ALNICO_BROADCAST;
    const char *one = call->copies ? "recv" : "buffer";
    struct checked reads = {call_reads(call, comm->rank, comm->size), call->send,
                            broadcast ? one : "send", 0};
    struct checked writes = {call_writes(call, comm->rank, comm->size), call->recv,
                             broadcast ? one : "recv", 0};
    size_t bytes = datatype_bytes(call->type);
    TRY(check_side(comm, call, &reads, who));
    TRY(check_side(comm, call, &writes, who));
    if (reads.extent == 0 || writes.extent == 0 ||
        !overlap(reads.base, reads.extent * bytes, writes.base, writes.extent * bytes) ||
        is_in_place(&reads, &writes, comm->rank, bytes) || !blocks_overlap(&reads, &writes, bytes))
        return ALNICO_SUCCESS;
    return error_set(
        ALNICO_ERROR_ARGUMENT, "%s: send %p and recv %p overlap; they must be %s or apart", who,
        call->send, call->recv,
        reads.side.blocks == writes.side.blocks ? "equal" : "in place, the own block in both,");
}

/* Bytes that are copied to the call's buffer before it begins. */
static size_t input_bytes(const struct alnico_comm *comm, const struct call *call)
{
    bool copies = call->copies && comm->rank == call->root;
    return copies ? call->count * datatype_bytes(call->type) : 0;
}

static alnico_status_t check_input(alnico_comm_t comm, const struct call *call, const char *who)
{
    size_t bytes = input_bytes(comm, call);
    if (bytes == 0)
        return ALNICO_SUCCESS;
    TRY(api_buffer(comm, call->input, "send", call->count, call->type, who));
    if (!overlap(call->input, bytes, call->recv, bytes))
        return ALNICO_SUCCESS;
    return error_set(ALNICO_ERROR_ARGUMENT,
                     "%s: send %p and recv %p overlap; they must be equal or apart", who,
                     call->input, (const void *)call->recv);
}

static alnico_status_t copy_input(alnico_comm_t comm, const struct call *call)
{
    size_t bytes = input_bytes(comm, call);
    if (bytes == 0)
        return ALNICO_SUCCESS;
    return comm->device->copy(call->recv, call->input, bytes, comm->stream);
}

static alnico_status_t check_call(alnico_comm_t comm, const struct call *call, const char *who)
{
    TRY(api_type(call->count, call->type, who));
    if (call_reduces(call))
        TRY(check_op(call, who));
    if (call->collective == ALNICO_SENDRECV)
        return ALNICO_SUCCESS;
    TRY(check_buffers(comm, call, who));
    return check_input(comm, call, who);
}

/* All that a choice depends on; but for `may_wait` equal on all ranks. */
struct question {
    alnico_comm_t comm;
    const struct call *call;
    size_t bytes;
    unsigned modes;
    bool may_wait; /* for what the backend makes first */
    const char *who;
};

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

static bool can_do(const struct question *q, const struct choice *choice)
{
    const struct backend_ops *ops = choice->backend->ops;
    return ops && (ops->capturable || !(q->modes & MODE_CAPTURED)) &&
           (!ops->supports || ops->supports(q->comm, q->call, choice->algorithm));
}

static bool is_prepared(alnico_comm_t comm, const struct choice *choice)
{
    const struct backend_ops *ops = choice->backend->ops;
    return !ops || !ops->prepared || ops->prepared(comm, choice->algorithm);
}

alnico_status_t api_prepare(alnico_comm_t comm, const struct choice *forced, const char *who)
{
    if (is_prepared(comm, forced))
        return ALNICO_SUCCESS;
    int before = comm_enter(comm);
    alnico_status_t status = forced->backend->ops->prepare(comm, forced->algorithm, who);
    comm_leave(comm, before);
    return status;
}

/* Only a forced algorithm can be one that does not fit the communicator or the call. */
alnico_status_t api_fits(alnico_comm_t comm, const struct call *call, unsigned modes,
                         const struct choice *forced, const char *who)
{
    const struct question q = {.comm = comm, .call = call, .modes = modes};
    const struct backend_ops *ops = forced->backend->ops;
    const char *name = forced->algorithm->name;
    if (can_do(&q, forced))
        return ALNICO_SUCCESS;
    if (!ops)
        return error_set(ALNICO_ERROR_UNSUPPORTED, "%s: %s: this build has no backend %s", who,
                         name, forced->backend->name);
    if (modes & MODE_CAPTURED && !ops->capturable)
        return error_set(ALNICO_ERROR_UNSUPPORTED,
                         "%s: %s is not capturable, and a graph is being captured on the stream",
                         who, name);
    return error_set(ALNICO_ERROR_UNSUPPORTED,
                     "%s: %s needs %s; communicator %d has %d ranks on %d host%s", who, name,
                     ops->needs, comm->id, comm->size, comm->hosts, comm->hosts == 1 ? "" : "s");
}

/* From `step` on, the first that can do it. */
static const struct tuning_step *next_able(const struct question *q, const struct tuning_step *step)
{
    while (step && !can_do(q, &step->choice))
        step = tuning_next(step, q->bytes);
    return step;
}

static const struct tuning_step *first_able(const struct question *q)
{
    return next_able(q, tuning_choose(&q->comm->tuning, q->call->collective, q->modes, q->bytes));
}

/* Makes what the step's backend has not made yet, which may show that it is not able, or goes on to
 * one that needs nothing. */
static alnico_status_t make_ready(const struct question *q, const struct tuning_step **step)
{
    while (*step && !is_prepared(q->comm, &(*step)->choice)) {
        const struct choice *choice = &(*step)->choice;
        if (q->may_wait)
            TRY(choice->backend->ops->prepare(q->comm, choice->algorithm, q->who));
        else
            *step = tuning_next(*step, q->bytes);
        *step = next_able(q, *step);
    }
    return ALNICO_SUCCESS;
}

static bool is_capturing(const struct alnico_comm *comm)
{
    return comm->device->capturing && comm->device->capturing(comm->stream);
}

/* Whether `step` of an eager call is also the first one while a graph is captured. For most calls it
 * is, and nobody needs to ask the device. */
static bool is_for_both(const struct question *q, const struct tuning_step *step)
{
    const struct alnico_comm *comm = q->comm;
    if (!comm->device->capturing)
        return true;
    if (!step || !step->choice.backend->ops->capturable)
        return false;
    return tuning_same_captured(&comm->tuning, q->call->collective, q->modes, q->bytes, step);
}

static alnico_status_t nothing_can(const struct question *q)
{
    const struct call *call = q->call;
    return error_set(
        ALNICO_ERROR_UNSUPPORTED, "%s: no backend of communicator %d on %s can do %s of %s%s",
        q->who, q->comm->id, q->comm->device->name,
        call_reduces(call) ? op_name(call->op) : collectives[call->collective].name,
        datatype_name(call->type), q->modes & MODE_CAPTURED ? " while a graph is captured" : "");
}

/* While a graph is captured what is ready goes before what would have to be made; all ranks capture the
 * call, so that they can make it together where nothing else is. */
static alnico_status_t choose_captured(struct question *q, const struct tuning_step **step)
{
    q->modes |= MODE_CAPTURED;
    q->may_wait = false;
    *step = first_able(q);
    TRY(make_ready(q, step));
    if (*step || q->call->collective == ALNICO_SENDRECV)
        return ALNICO_SUCCESS;
    q->may_wait = true;
    *step = first_able(q);
    return make_ready(q, step);
}

/* The last resort while a graph is captured: out of other calls. */
static alnico_status_t choose_composed(const struct question *q, struct choice *out)
{
    const struct algorithm *const *list = backend_composed.algorithms[q->call->collective];
    if (!(q->modes & MODE_CAPTURED) || !list)
        return nothing_can(q);
    *out = (struct choice){&backend_composed, *list, CHUNK_BYTES_LEAST, 0};
    if (can_do(q, out) && !is_prepared(q->comm, out))
        TRY(out->backend->ops->prepare(q->comm, out->algorithm, q->who));
    return can_do(q, out) ? ALNICO_SUCCESS : nothing_can(q);
}

static alnico_status_t choose_from_table(struct question *q, struct choice *out)
{
    const struct tuning_step *step = first_able(q);
    bool ready = !step || is_prepared(q->comm, &step->choice);
    bool captured = (!ready || !is_for_both(q, step)) && is_capturing(q->comm);
    TRY(captured ? choose_captured(q, &step) : make_ready(q, &step));
    if (!step)
        return choose_composed(q, out);
    *out = step->choice;
    return ALNICO_SUCCESS;
}

/* It is prepared since it is forced. Chunks are the table's. */
static alnico_status_t choose_forced(struct question *q, struct choice *out)
{
    const struct backend_ops *ops = out->backend->ops;
    if (ops && !ops->capturable && is_capturing(q->comm))
        q->modes |= MODE_CAPTURED;
    const struct tuning_step *step =
        tuning_choose(&q->comm->tuning, q->call->collective, q->modes, q->bytes);
    out->chunk_bytes = step ? step->choice.chunk_bytes : CHUNK_BYTES_LEAST;
    return api_fits(q->comm, q->call, q->modes, out, q->who);
}

static alnico_status_t choose(struct question *q, struct choice *out)
{
    size_t chunk_bytes = q->comm->family->settings.chunk_bytes;
    *out = q->comm->forced[q->call->collective];
    TRY(out->algorithm ? choose_forced(q, out) : choose_from_table(q, out));
    if (chunk_bytes)
        out->chunk_bytes = chunk_bytes;
    return ALNICO_SUCCESS;
}

/* A call gains if it would go another way with registered buffers. A reduction's bits must be the same on
 * both ways: which one it goes is not to be seen in the results. */
static bool gains_by_sharing(const struct question *q)
{
    const struct tuning_steps *steps = &q->comm->tuning;
    const struct tuning_step *plain = first_able(q),
                             *step = tuning_choose(steps, q->call->collective,
                                                   q->modes | MODE_REGISTERED, q->bytes);
    for (; step && !can_do(q, &step->choice); step = tuning_next(step, q->bytes)) {
        const struct backend_ops *ops = step->choice.backend->ops;
        if (ops && ops->direct && ops->direct(q->comm, q->call, step->choice.algorithm))
            return !call_reduces(q->call) ||
                   (plain && plain->choice.backend == step->choice.backend);
    }
    return false;
}

/* Buffers that all ranks' votes share count as registered in this call. */
static alnico_status_t agree_on_sharing(struct question *q)
{
    alnico_comm_t comm = q->comm;
    const struct call *call = q->call;
    bool agreed, may = sharing_begin(comm);
    if (!may || !q->may_wait || q->modes & MODE_REGISTERED ||
        comm->forced[call->collective].algorithm)
        return ALNICO_SUCCESS;
    struct question asked = *q;
    bool captured = is_capturing(comm);
    asked.modes |= captured ? MODE_CAPTURED : 0;
    if (!gains_by_sharing(&asked))
        return ALNICO_SUCCESS;
    size_t bytes = datatype_bytes(call->type);
    struct side reads = call_reads(call, comm->rank, comm->size),
                writes = call_writes(call, comm->rank, comm->size);
    const struct sharing_side sides[] = {
        {call->send, side_extent(&reads) * bytes, reads.blocks < writes.blocks},
        {call->recv, side_extent(&writes) * bytes, writes.blocks < reads.blocks}};
    TRY(sharing_agree(comm, sides, captured, q->who, &agreed));
    q->modes |= agreed ? MODE_REGISTERED : 0;
    return ALNICO_SUCCESS;
}

/* The arguments by themselves, and with ALNICO_CHECK against those of all ranks. */
static alnico_status_t check(alnico_comm_t comm, struct call *call, bool nonblocking,
                             const char *who)
{
    bool all = call->collective != ALNICO_SENDRECV, compares = comm->family->settings.check && all;
    alnico_status_t mine = all ? comm_group_closed(comm, who) : ALNICO_SUCCESS;
    if (mine == ALNICO_SUCCESS)
        mine = api_resolve(comm, call, who);
    if (mine == ALNICO_SUCCESS)
        mine = premultiplied_resolve(comm, call, who);
    if (mine == ALNICO_SUCCESS)
        mine = check_call(comm, call, who);
    if (mine == ALNICO_SUCCESS && compares)
        mine = call_check_blocks(comm, call, who);
    return compares ? call_compare(comm, call, nonblocking, mine, who) : mine;
}

static alnico_status_t prepare(alnico_comm_t comm, struct call *call, bool nonblocking,
                               const char *who, struct choice *choice, void **scratch)
{
    TRY(check(comm, call, nonblocking, who));
    TRY(premultiplied_place(comm, call, scratch));
    struct question q = {.comm = comm,
                         .call = call,
                         .bytes = call_bytes(call, comm->size),
                         .modes = is_registered(comm, call) ? MODE_REGISTERED : 0,
                         .may_wait = call->collective != ALNICO_SENDRECV && !nonblocking,
                         .who = who};
    if (call->collective != ALNICO_SENDRECV)
        TRY(agree_on_sharing(&q));
    return choose(&q, choice);
}

/* The detail names the call, and the rank that has no memory. */
static alnico_status_t name_error(alnico_comm_t comm, alnico_status_t status, const char *who)
{
    return status == ALNICO_ERROR_MEMORY
               ? error_set(status, "%s: rank %d: %s", who, comm->rank, error_text(who))
               : error_of(who, status);
}

alnico_status_t api_start(alnico_comm_t comm, struct call *call, alnico_request_t *request,
                          const char *who)
{
    if (call->collective != ALNICO_SENDRECV)
        TRY(comm_usable(comm, who));
    int before = comm_enter(comm);
    struct choice choice;
    void *scratch = NULL;
    comm->called_on = true;
    sharing_sweep(comm);
    alnico_status_t status = prepare(comm, call, request != NULL, who, &choice, &scratch);
    if (status == ALNICO_SUCCESS)
        status = copy_input(comm, call);
    if (status == ALNICO_SUCCESS)
        status = premultiplied_multiply(comm, call);
    if (status == ALNICO_SUCCESS)
        status = choice.backend->ops->start(comm, call, &choice, request);
    if (status == ALNICO_SUCCESS && request)
        status = premultiplied_keep(comm, scratch, request);
    else
        premultiplied_release(comm, scratch);
    if (status == ALNICO_SUCCESS)
        status = stream_operation_mark(comm);
    sharing_end(comm);
    comm_leave(comm, before);
    return status == ALNICO_SUCCESS ? status : name_error(comm, status, who);
}

alnico_status_t api_start_request(alnico_comm_t comm, struct call *call, alnico_request_t *request,
                                  const char *who)
{
    if (request) {
        *request = NULL;
        return api_start(comm, call, request, who);
    }
    TRY(comm_usable(comm, who));
    alnico_status_t mine = api_request(request, who);
    return comm->family->settings.check ? call_compare(comm, NULL, false, mine, who) : mine;
}
