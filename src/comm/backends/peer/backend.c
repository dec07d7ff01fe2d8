/*
 * The peer backend on the CPU: collectives over memory that 2 to 64 ranks of one host map. An
 * operation is polled by the engine or its caller (operations/engine_operation.h); the protocol is
 * in peer/peer.c. The area has room for one operation at a time: each has a ticket for it.
 */
#include "base/log.h"
#include "base/status.h"
#include "comm/backends/peer/peer.h"
#include "comm/communicator/out_of_band.h"
#include "comm/hostmem/segment.h"
#include "comm/operations/engine_operation.h"
#include "comm/operations/pipeline.h"

#include <stdlib.h>

enum { REST_CHUNK_BYTES = 16 << 20 }; /* the fewer copies the kernel makes, the faster */

/* The communicator's state of this backend. */
struct peer_state {
    struct segment segment;
    struct peer *peer;
    struct tickets tickets; /* for the area */
};

struct peer_op {
    struct engine_operation operation;
    struct peer_run run;
    uint64_t ticket;

    /* Long blocks of a gatherv, scatterv or alltoallv, which go as messages. */
    bool has_rest;
    struct pipeline rest;
};

static struct peer_state *state_of(const struct alnico_comm *comm)
{
    return comm->state[BACKEND_PEER];
}

static alnico_status_t poll_run(struct peer_op *op, bool *moved)
{
    struct tickets *tickets = &state_of(op->operation.comm)->tickets;
    if (tickets_is_queued(tickets, op->ticket))
        return ALNICO_PENDING;
    if (!tickets_is_served(tickets, op->ticket))
        return ALNICO_SUCCESS;
    TRY(peer_poll(&op->run, moved));
    tickets_next(tickets);
    return ALNICO_SUCCESS;
}

static alnico_status_t peer_op_poll(struct engine_operation *h, bool *moved)
{
    struct peer_op *op = (struct peer_op *)h;
    alnico_status_t status = poll_run(op, moved);
    if (!op->has_rest || (status != ALNICO_SUCCESS && status != ALNICO_PENDING))
        return status;
    alnico_status_t rest = pipeline_poll(&op->rest, moved);
    return rest == ALNICO_SUCCESS ? status : rest;
}

static bool peer_op_is_queued(struct engine_operation *h)
{
    const struct peer_op *op = (struct peer_op *)h;
    return tickets_is_queued(&state_of(h->comm)->tickets, op->ticket);
}

static void peer_op_cancel(struct engine_operation *h)
{
    struct peer_op *op = (struct peer_op *)h;
    if (op->has_rest)
        pipeline_cancel(&op->rest);
}

static const struct work_ops peer_work = {
    .bytes = sizeof(struct peer_op),
    .poll = peer_op_poll,
    .cancel = peer_op_cancel,
    .is_queued = peer_op_is_queued,
};

static enum peer_algorithm algorithm_of(const struct algorithm *algorithm)
{
    return algorithm == &algorithm_two_shot                ? PEER_CPU_TWO_SHOT
           : algorithm == &algorithm_recursive_multiplying ? PEER_CPU_MULTIPLYING
                                                           : PEER_CPU_ONE_SHOT;
}

static void begin_rest(struct peer_op *op)
{
    alnico_comm_t comm = op->operation.comm;
    struct pipeline *p = &op->rest;
    p->call = &p->own;
    p->algorithm = p->call->collective == ALNICO_GATHERV    ? &algorithm_gather_linear
                   : p->call->collective == ALNICO_SCATTERV ? &algorithm_scatter_linear
                                                            : &algorithm_alltoall_pairwise;
    size_t chunk = comm->family->settings.chunk_bytes;
    p->chunk_bytes = chunk ? chunk : REST_CHUNK_BYTES;
    p->transport = comm->transport;
    p->pool = &comm->family->pool;
    p->number = (uint32_t)comm->next_chunk;
    pipeline_begin(p);
}

/* All ranks count one chunk of messages, whether they have any or not. */
static void plan_rest(struct peer_op *op)
{
    alnico_comm_t comm = op->operation.comm;
    op->has_rest = false;
    if (call_is_even(op->operation.call))
        return;
    size_t *lists = op->operation.lists + CALL_LISTS * comm->size;
    op->has_rest = peer_rest(&op->run, &op->rest.own, lists);
    if (op->has_rest)
        begin_rest(op);
    comm->next_chunk++;
}

static alnico_status_t peer_start(alnico_comm_t comm, const struct call *call,
                                  const struct choice *choice, alnico_request_t *request)
{
    struct peer_op *op = (struct peer_op *)engine_operation_take(comm, &peer_work, call, request);
    if (!op)
        return ALNICO_ERROR_MEMORY;
    peer_begin(&op->run, state_of(comm)->peer, op->operation.call, algorithm_of(choice->algorithm));
    plan_rest(op);
    op->ticket = tickets_take(&state_of(comm)->tickets);
    return engine_operation_start(&op->operation, request);
}

/* *out is zeroed where the ranks cannot share memory, as in containers that keep them apart. */
static alnico_status_t share(alnico_comm_t comm, const char *who, alnico_status_t mine,
                             struct segment *out)
{
    struct comm_rendezvous r;
    comm_rendezvous_init(&r, comm, who);
    alnico_status_t status = segment_create(&r.base, mine, peer_bytes(comm->size), out);
    if (status == ALNICO_SUCCESS || r.base.failed || !segment_is_refused(status))
        return status;
    log_write(comm->rank == 0 ? LOG_WARNING : LOG_DEBUG,
              "%s: no shared memory between the ranks, so they send messages: %s", who,
              error_text(who));
    return ALNICO_SUCCESS;
}

static alnico_status_t peer_attach(alnico_comm_t comm, const char *who)
{
    if (comm->hosts > 1 || comm->size < 2 || comm->size > PEER_RANKS ||
        !comm_take_scratch(comm, "peer",
                           segment_part(peer_bytes(comm->size), comm->size, 0) +
                               peer_own_bytes(comm->size)))
        return ALNICO_SUCCESS;
    struct segment segment;
    struct peer_state *state = calloc(1, sizeof *state);
    alnico_status_t status = state ? ALNICO_SUCCESS : error_set(ALNICO_ERROR_MEMORY, "no memory");
    status = share(comm, who, status, &segment);
    if (status != ALNICO_SUCCESS || !segment.base)
        goto free_state;
    state->segment = segment;
    status = peer_create(segment.base, comm->rank, comm->size, &state->peer);
    if (status != ALNICO_SUCCESS)
        goto destroy_segment;
    comm->state[BACKEND_PEER] = state;
    return ALNICO_SUCCESS;
destroy_segment:
    segment_destroy(&segment);
free_state:
    free(state);
    return status;
}

static void peer_detach(alnico_comm_t comm)
{
    struct peer_state *state = state_of(comm);
    if (!state)
        return;
    peer_destroy(state->peer);
    segment_destroy(&state->segment);
    free(state);
    comm->state[BACKEND_PEER] = NULL;
}

static void peer_memory(alnico_comm_t comm, alnico_comm_memory_t *sum)
{
    if (!state_of(comm))
        return;
    size_t own = peer_own_bytes(comm->size),
           part = segment_part(peer_bytes(comm->size), comm->size, comm->rank);
    sum->host += own;
    sum->shared += part;
    sum->scratch += own + part;
}

static bool peer_supports(alnico_comm_t comm, const struct call *call,
                          const struct algorithm *algorithm)
{
    bool sends = comm->inline_stream || comm->transport->concurrent;
    (void)algorithm;
    return state_of(comm) && (!call || sends || call_is_even(call));
}

const struct backend_ops peer_ops = {
    .about = "ranks of one host read what the others have in shared memory",
    .needs = "2 to 64 ranks on one host",
    .supports = peer_supports,
    .memory = peer_memory,
    .attach = peer_attach,
    .detach = peer_detach,
    .start = peer_start,
};
