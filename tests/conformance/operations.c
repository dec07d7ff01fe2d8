/* The table of operations and their public calls. */
#include "tests/conformance/operations.h"

#include <alnico/alnico.h>

#include <string.h>

enum { FOR_NULL = 32 };

/* ---- What a call is given ---- */

/* For what must not be looked at. */
static void *anything(const struct plan *plan, uint64_t which)
{
    return plan_draw(plan, FOR_NULL, which) % 2 ? NULL : (void *)1;
}

/* The address of an area in a buffer of its own; where it is empty, perhaps NULL. */
static void *apart(const struct plan *plan, const struct area *area, int buffer)
{
    bool none = area->bytes == 0 && plan_draw(plan, FOR_NULL, (uint64_t)(2 + buffer)) % 2;
    return area->number == 0 ? anything(plan, (uint64_t)buffer)
           : none            ? NULL
                             : plan->buffer[buffer];
}

/* Where one block stands in place among all: the address of the rank's own. */
static void *within(const struct plan *plan, bool alone)
{
    const struct area *all = plan->reads.number > 1 ? &plan->reads : &plan->writes;
    return alone ? plan_address(plan, 1, plan_own(plan, all)) : plan->buffer[1];
}

static const void *send_of(const struct plan *plan)
{
    const struct operation *o = plan->operation;
    if (plan->place == PLACE_APART)
        return apart(plan, &plan->reads, 0);
    if (plan->place == PLACE_NAMED && o->collective != ALNICO_SCATTER &&
        o->collective != ALNICO_SCATTERV)
        return ALNICO_IN_PLACE;
    return within(plan, o->reads == ONE && o->writes == ALL);
}

static void *recv_of(const struct plan *plan)
{
    const struct operation *o = plan->operation;
    bool scatters = o->collective == ALNICO_SCATTER || o->collective == ALNICO_SCATTERV;
    if (plan->place == PLACE_APART)
        return apart(plan, &plan->writes, 1);
    if (plan->place == PLACE_NAMED)
        return scatters ? ALNICO_IN_PLACE : plan->buffer[1];
    return within(plan, o->writes == ONE && o->reads == ALL);
}

static size_t own_count(const struct area *area)
{
    return area->pieces[0].count;
}

/* A list that this rank has, or what must not be looked at; of displacements NULL has a meaning. */
static const size_t *list_of(const struct plan *plan, const size_t *list, const struct area *area,
                             uint64_t which)
{
    return list || area->number ? list : anything(plan, which);
}

static const size_t *in_place_list(const struct plan *plan, const size_t *list, uint64_t which)
{
    return plan->place == PLACE_APART ? list : anything(plan, which);
}

/* ---- The calls ---- */

#define TRIAL_TYPE ((alnico_datatype_t)plan->trial->type)
#define TRIAL_OP ((alnico_op_t)plan->trial->op)
#define TRIAL_COUNT ((size_t)plan->trial->count)
#define SEND_COUNTS list_of(plan, plan->send_counts, &plan->reads, 4)
#define SEND_AT list_of(plan, plan->send_at, &plan->reads, 5)
#define RECV_COUNTS list_of(plan, plan->recv_counts, &plan->writes, 6)
#define RECV_AT list_of(plan, plan->recv_at, &plan->writes, 7)

#define CALL(NAME, ...)                                                                            \
    static alnico_status_t call_##NAME(const struct plan *plan, alnico_request_t *request)         \
    {                                                                                              \
        return request ? alnico_i##NAME(__VA_ARGS__, plan->comm, request)                          \
                       : alnico_##NAME(__VA_ARGS__, plan->comm);                                   \
    }
CALL(allreduce, send_of(plan), recv_of(plan), TRIAL_COUNT, TRIAL_TYPE, TRIAL_OP)
CALL(reduce, send_of(plan), recv_of(plan), TRIAL_COUNT, TRIAL_TYPE, TRIAL_OP, plan->root)
CALL(broadcast, plan->buffer[1], TRIAL_COUNT, TRIAL_TYPE, plan->root)
CALL(broadcast_to, send_of(plan), recv_of(plan), TRIAL_COUNT, TRIAL_TYPE, plan->root)
CALL(allgather, send_of(plan), recv_of(plan), TRIAL_COUNT, TRIAL_TYPE)
CALL(allgatherv, send_of(plan), own_count(&plan->reads), recv_of(plan), plan->recv_counts,
     plan->recv_at, TRIAL_TYPE)
CALL(reduce_scatter, send_of(plan), recv_of(plan), TRIAL_COUNT, TRIAL_TYPE, TRIAL_OP)
CALL(reduce_scatterv, send_of(plan), recv_of(plan), plan->send_counts, TRIAL_TYPE, TRIAL_OP)
CALL(gather, send_of(plan), recv_of(plan), TRIAL_COUNT, TRIAL_TYPE, plan->root)
CALL(gatherv, send_of(plan), own_count(&plan->reads), recv_of(plan), RECV_COUNTS, RECV_AT,
     TRIAL_TYPE, plan->root)
CALL(scatter, send_of(plan), recv_of(plan), TRIAL_COUNT, TRIAL_TYPE, plan->root)
CALL(scatterv, send_of(plan), SEND_COUNTS, SEND_AT, recv_of(plan), own_count(&plan->writes),
     TRIAL_TYPE, plan->root)
CALL(alltoall, send_of(plan), recv_of(plan), TRIAL_COUNT, TRIAL_TYPE)
CALL(alltoallv, send_of(plan), in_place_list(plan, plan->send_counts, 4),
     in_place_list(plan, plan->send_at, 5), recv_of(plan), plan->recv_counts, plan->recv_at,
     TRIAL_TYPE)

static alnico_status_t call_barrier(const struct plan *plan, alnico_request_t *request)
{
    return request ? alnico_ibarrier(plan->comm, request) : alnico_barrier(plan->comm);
}

/* ---- Messages ---- */

#define SENT plan_address(plan, 0, out->out), out->count
#define RECEIVED plan_address(plan, 1, in->in), in->count

static alnico_status_t act(const struct plan *plan, const struct action *action,
                           alnico_request_t *request)
{
    const struct message *out = action->send < 0 ? NULL : &plan->messages[action->send],
                         *in = action->receive < 0 ? NULL : &plan->messages[action->receive];
    alnico_comm_t comm = plan->comm;
    if (out && in)
        return request
                   ? alnico_isendrecv(SENT, out->to, RECEIVED, in->from, in->type, comm, request)
                   : alnico_sendrecv(SENT, out->to, RECEIVED, in->from, in->type, comm);
    if (out)
        return request ? alnico_isend(SENT, out->type, out->to, comm, request)
                       : alnico_send(SENT, out->type, out->to, comm);
    return request ? alnico_irecv(RECEIVED, in->type, in->from, comm, request)
                   : alnico_recv(RECEIVED, in->type, in->from, comm);
}

static alnico_status_t call_messages(const struct plan *plan, alnico_request_t *requests)
{
    alnico_status_t status = ALNICO_SUCCESS;
    for (int i = 0; i < plan->actions_count && status == ALNICO_SUCCESS; i++) {
        const struct action *action = &plan->actions[i];
        status = act(plan, action, requests && action->nonblocking ? &requests[i] : NULL);
    }
    return status;
}

static alnico_status_t call_group(const struct plan *plan, alnico_request_t *request)
{
    alnico_status_t status = alnico_group_begin(plan->comm);
    for (int i = 0; i < plan->actions_count && status == ALNICO_SUCCESS; i++)
        status = act(plan, &plan->actions[i], NULL);
    return status == ALNICO_SUCCESS ? alnico_group_end(plan->comm, request) : status;
}

/* ---- The table ---- */

#define ROW(NAME, COLLECTIVE, READS, WRITES, ...)                                                  \
    {                                                                                              \
        .name = #NAME, .collective = ALNICO_##COLLECTIVE, .reads = READS, .writes = WRITES,        \
        .call = call_##NAME, __VA_ARGS__                                                           \
    }

const struct operation operations[] = {
    ROW(allreduce, ALLREDUCE, ONE, ONE, .reduces = true, .in_place = true),
    ROW(reduce, REDUCE, ONE, ONE, .writes_at_root = true, .reduces = true, .rooted = true,
        .in_place = true),
    ROW(broadcast, BROADCAST, ONE, ONE, .reads_at_root = true, .writes_elsewhere = true,
        .rooted = true),
    ROW(broadcast_to, BROADCAST, ONE, ONE, .reads_at_root = true, .rooted = true, .in_place = true),
    ROW(allgather, ALLGATHER, ONE, ALL, .in_place = true),
    ROW(allgatherv, ALLGATHERV, ONE, ALL, .counts = true, .at = true, .in_place = true),
    ROW(reduce_scatter, REDUCE_SCATTER, ALL, ONE, .reduces = true, .in_place = true),
    ROW(reduce_scatterv, REDUCE_SCATTERV, ALL, ONE, .reduces = true, .counts = true,
        .in_place = true),
    ROW(gather, GATHER, ONE, ALL, .writes_at_root = true, .rooted = true, .in_place = true),
    ROW(gatherv, GATHERV, ONE, ALL, .writes_at_root = true, .rooted = true, .counts = true,
        .at = true, .in_place = true),
    ROW(scatter, SCATTER, ALL, ONE, .reads_at_root = true, .rooted = true, .in_place = true),
    ROW(scatterv, SCATTERV, ALL, ONE, .reads_at_root = true, .rooted = true, .counts = true,
        .at = true, .in_place = true),
    ROW(alltoall, ALLTOALL, ALL, ALL, .in_place = true),
    ROW(alltoallv, ALLTOALLV, ALL, ALL, .counts = true, .at = true, .pairs = true,
        .in_place = true),
    ROW(barrier, BARRIER, NONE, NONE, ),
    {.name = "sendrecv", .collective = ALNICO_SENDRECV, .messages = true, .call = call_messages},
    ROW(messages, SENDRECV, NONE, NONE, .messages = true),
    ROW(group, SENDRECV, NONE, NONE, .messages = true),
    {.name = NULL},
};

int operations_count(void)
{
    return (int)(sizeof operations / sizeof *operations) - 1;
}

const char *operation_name(int i)
{
    return operations[i].name;
}

int operation_places(int i)
{
    const struct operation *o = &operations[i];
    return !o->in_place ? 1 : o->reads == ALL && o->writes == ALL ? PLACE_MIXED : PLACES;
}

int operation_find(const char *name)
{
    for (int i = 0; operations[i].name; i++)
        if (strcmp(operations[i].name, name) == 0)
            return i;
    return -1;
}
