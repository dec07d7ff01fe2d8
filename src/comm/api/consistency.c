/* ALNICO_CHECK: before a collective begins, all ranks exchange what they call, and all
 * refuse it alike if that differs. On the caller's thread. */
#include "comm/api/consistency.h"
#include "comm/api/premultiplied.h"
#include "comm/communicator/comm.h"
#include "comm/communicator/out_of_band.h"
#include "comm/communicator/registration.h"

#include "base/datatype.h"
#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>

enum field {
    FIELD_STATUS, /* of the arguments on this rank */
    FIELD_COLLECTIVE,
    FIELD_NONBLOCKING,
    FIELD_TYPE,
    FIELD_OP,
    FIELD_COUNT, /* not of vector forms */
    FIELD_ROOT,
    /* These count where every rank has the same buffers: */
    FIELD_SEND_REGISTRATION, /* its number, from the oldest; -1: none */
    FIELD_SEND_OFFSET,
    FIELD_RECV_REGISTRATION,
    FIELD_RECV_OFFSET,
    FIELDS
};

static const char *const names[FIELDS] = {
    [FIELD_TYPE] = "type",
    [FIELD_OP] = "op",
    [FIELD_COUNT] = "count",
    [FIELD_ROOT] = "root",
    [FIELD_SEND_REGISTRATION] = "the number of send's registration (-1: not registered)",
    [FIELD_SEND_OFFSET] = "send's offset in its registration",
    [FIELD_RECV_REGISTRATION] = "the number of recv's registration (-1: not registered)",
    [FIELD_RECV_OFFSET] = "recv's offset in its registration",
};

/* One rank's call, in plain bytes for the others. */
struct rank_call {
    int64_t of[FIELDS];
    char refused[192]; /* its own arguments', with that status */
};

_Static_assert(sizeof(struct rank_call) <= AGREE_BYTES, "one exchange carries a rank's call");

/* A buffer of this rank's block alone, beside one of all blocks, may lie anywhere in its registration: in
 * place it does. */
static void find_place(const struct alnico_comm *comm, const struct side *side, bool alone,
                       const void *memory, alnico_datatype_t type, int64_t *number, int64_t *offset)
{
    size_t bytes = side_extent(side) * datatype_bytes(type);
    const struct alnico_registration *r = registration_find(comm, memory, bytes);
    *number = -1;
    *offset = r && !alone ? (const char *)memory - r->base : 0;
    for (; r; r = r->next)
        ++*number;
}

static void describe_places(const struct alnico_comm *comm, const struct call *call,
                            struct rank_call *out)
{
    struct side reads = call_reads(call, comm->rank, comm->size),
                writes = call_writes(call, comm->rank, comm->size);
    find_place(comm, &reads, reads.blocks < writes.blocks, call->send, call->type,
               &out->of[FIELD_SEND_REGISTRATION], &out->of[FIELD_SEND_OFFSET]);
    find_place(comm, &writes, writes.blocks < reads.blocks, call->recv, call->type,
               &out->of[FIELD_RECV_REGISTRATION], &out->of[FIELD_RECV_OFFSET]);
}

static void describe(const struct alnico_comm *comm, const struct call *call, bool nonblocking,
                     struct rank_call *out)
{
    out->of[FIELD_COLLECTIVE] = (int64_t)call->collective;
    out->of[FIELD_NONBLOCKING] = nonblocking;
    out->of[FIELD_TYPE] = (int64_t)call->type;
    out->of[FIELD_OP] = call->factor ? CREATED_OP : call_reduces(call) ? (int64_t)call->op : 0;
    out->of[FIELD_COUNT] = call_is_vector(call) ? 0 : (int64_t)call->count;
    out->of[FIELD_ROOT] = call_has_root(call) ? call->root : 0;
    if (!call_is_vector(call) && !call_has_root(call))
        describe_places(comm, call, out);
}

/* A field as a message says it: "float32", "sum", or its number. */
static const char *value_of(const struct rank_call *call, int field, char *text, size_t bytes)
{
    int64_t value = call->of[field];
    if (field == FIELD_TYPE && datatype_valid((alnico_datatype_t)value))
        return datatype_name((alnico_datatype_t)value);
    if (field == FIELD_OP && op_valid((alnico_op_t)value))
        return op_name((alnico_op_t)value);
    if (field == FIELD_OP && value == CREATED_OP)
        return "premultiplied sum";
    snprintf(text, bytes, "%lld", (long long)value);
    return text;
}

static const char *prefix_of(const struct rank_call *call)
{
    return call->of[FIELD_NONBLOCKING] ? "alnico_i" : "alnico_";
}

static alnico_status_t differ(const struct rank_call *calls, int i, int field, const char *who)
{
    const struct rank_call *first = &calls[0], *other = &calls[i];
    char here[32], there[32];
    if (field == FIELD_COLLECTIVE || field == FIELD_NONBLOCKING)
        return error_set(ALNICO_ERROR_MISMATCH, "%s: rank 0 calls %s%s, and rank %d %s%s", who,
                         prefix_of(first), collectives[first->of[FIELD_COLLECTIVE]].name, i,
                         prefix_of(other), collectives[other->of[FIELD_COLLECTIVE]].name);
    return error_set(ALNICO_ERROR_MISMATCH, "%s: %s is %s on rank 0 and %s on rank %d", who,
                     names[field], value_of(first, field, here, sizeof here),
                     value_of(other, field, there, sizeof there), i);
}

/* All ranks get one result, but those that refuse their own arguments. */
static alnico_status_t compare(const struct rank_call *calls, int size, const char *who)
{
    for (int i = 0; i < size; i++)
        if (calls[i].of[FIELD_STATUS] != ALNICO_SUCCESS)
            return error_set((alnico_status_t)calls[i].of[FIELD_STATUS],
                             "%s: rank %d refuses its own arguments: %.*s", who, i,
                             (int)sizeof calls[i].refused - 1, calls[i].refused);
    for (int i = 1; i < size; i++)
        for (int f = FIELD_STATUS + 1; f < FIELDS; f++)
            if (calls[i].of[f] != calls[0].of[f])
                return differ(calls, i, f, who);
    return ALNICO_SUCCESS;
}

alnico_status_t call_compare(alnico_comm_t comm, const struct call *call, bool nonblocking,
                             alnico_status_t mine, const char *who)
{
    struct rank_call own = {.of = {[FIELD_STATUS] = mine}};
    struct rank_call *calls = calloc((size_t)comm->size, sizeof *calls);
    const struct comm_opening opening = {
        .what = "a collective", .who = who, .mine = &own, .bytes = sizeof own};
    if (mine == ALNICO_SUCCESS)
        describe(comm, call, nonblocking, &own);
    else
        snprintf(own.refused, sizeof own.refused, "%s", alnico_error_detail());
    alnico_status_t status = comm_agree_first(comm, &opening, calls);
    if (status == ALNICO_SUCCESS)
        status = mine == ALNICO_SUCCESS ? compare(calls, comm->size, who) : mine;
    free(calls);
    return status == ALNICO_SUCCESS && call_is_vector(call) ? call_compare_counts(comm, call, who)
                                                            : status;
}
