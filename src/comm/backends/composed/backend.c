/*
 * Composed: collectives out of other captured calls, where no backend has them itself. A reduction is
 * an allreduce into scratch, of which the rank keeps its part; what only moves blocks is a group of
 * messages. Both go by the rows of the tuning table for captured calls. Scratch is memory in the order
 * of the stream, so that a graph has its own. Called on the thread that calls on the communicator.
 */
#include "comm/backends/composed/composed.h"
#include "comm/communicator/comm.h"
#include "comm/operations/stream_operation.h"
#include "comm/tuning/tuning.h"

#include "base/datatype.h"
#include "base/status.h"

#include <stdlib.h>

/* Other GPUs of the process may not reach scratch, which NCCL lets them; of what NCCL reduces, nothing
 * need be composed. */
static bool can_carry(alnico_comm_t comm, const struct call *part, const struct choice *choice)
{
    const struct backend_ops *ops = choice->backend->ops;
    return ops && ops->capturable && !(call_reduces(part) && choice->backend == &backend_nccl) &&
           (!ops->supports || ops->supports(comm, part, choice->algorithm));
}

/* Finds the backend and algorithm for the call that a collective is made of. */
static bool find(alnico_comm_t comm, const struct call *part, struct choice *out)
{
    size_t bytes = call_bytes(part, comm->size);
    const struct tuning_step *step =
        tuning_choose(&comm->tuning, part->collective, MODE_CAPTURED, bytes);
    while (step && !can_carry(comm, part, &step->choice))
        step = tuning_next(step, bytes);
    if (step)
        *out = step->choice;
    return step != NULL;
}

static alnico_status_t launch_part(alnico_comm_t comm, const struct call *part, void *stream)
{
    struct choice choice;
    if (!find(comm, part, &choice))
        return error_set(ALNICO_ERROR_UNSUPPORTED, "nothing can capture %s",
                         collectives[part->collective].name);
    return choice.backend->ops->launch(comm, part, &choice, stream);
}

static alnico_status_t copy(alnico_comm_t comm, char *to, const char *from, size_t bytes,
                            void *stream)
{
    return bytes == 0 || to == from ? ALNICO_SUCCESS : comm->device->copy(to, from, bytes, stream);
}

/* ---- Reductions ---- */

/* Blocks that are reduced stand one behind the other. */
static struct call whole_vector(const struct alnico_comm *comm, const struct call *call)
{
    struct side reads = call_reads(call, comm->rank, comm->size);
    struct call vector = {.collective = ALNICO_ALLREDUCE,
                          .send = call->send,
                          .recv = call->recv,
                          .type = call->type,
                          .op = call->op};
    SIDE_EACH(block, &reads)
    {
        vector.count += block.count;
    }
    return vector;
}

/* The rank's own block of all that were reduced. */
static alnico_status_t keep_own(alnico_comm_t comm, const struct call *call,
                                const struct call *vector, void *stream)
{
    struct side reads = call_reads(call, comm->rank, comm->size);
    size_t element = datatype_bytes(call->type), at = 0;
    struct walk block = {0};
    if (call_has_root(call))
        return ALNICO_SUCCESS;
    for (int b = 0; b <= comm->rank && side_block(&reads, b, &block); b++)
        at += b < comm->rank ? block.count : 0;
    return copy(comm, call->recv, (const char *)vector->recv + at * element, block.count * element,
                stream);
}

/* The root of a reduce keeps all, and needs no scratch. */
static alnico_status_t reduce(alnico_comm_t comm, const struct call *call, void *stream)
{
    struct call vector = whole_vector(comm, call);
    if (vector.count == 0)
        return ALNICO_SUCCESS;
    if (call_has_root(call) && call->root == comm->rank)
        return launch_part(comm, &vector, stream);
    TRY(comm->device->stream_alloc(vector.count * datatype_bytes(call->type), &vector.recv,
                                   stream));
    alnico_status_t status = launch_part(comm, &vector, stream);
    if (status == ALNICO_SUCCESS)
        status = keep_own(comm, call, &vector, stream);
    comm->device->stream_free(vector.recv, stream);
    return status;
}

/* ---- Moves ---- */

/* A group of messages between this rank's blocks and other ranks. */
struct moves {
    const struct call *call;
    int rank, size;
    struct exchange *messages;
    int count;
};

/* True if the only block of a side goes to the rank, or comes from it. */
static bool meets(const struct moves *m, bool sends, int rank)
{
    bool to_all = sends && (!call_has_root(m->call) || m->call->collective == ALNICO_BROADCAST);
    return to_all || rank == m->call->root;
}

static void add_side(struct moves *m, const struct side *side, bool sends)
{
    size_t element = datatype_bytes(m->call->type);
    struct walk block = {0};
    for (int r = 0; side->blocks && r < m->size; r++) {
        if (r == 0 || side->blocks > 1)
            side_block(side, r, &block);
        if (r == m->rank || block.count == 0 || (side->blocks == 1 && !meets(m, sends, r)))
            continue;
        struct span span = {.at = block.at * element, .len = block.count * element};
        m->messages[m->count++] = sends ? (struct exchange){.to = r, .from = -1, .send = span}
                                        : (struct exchange){.to = -1, .from = r, .recv = span};
    }
}

static struct walk own_block(const struct side *side, int rank)
{
    struct walk block = {0};
    for (int b = 0; b <= (side->blocks > 1 ? rank : 0) && side_block(side, b, &block); b++)
        ;
    return block;
}

/* Sends from `from`: the call's buffer or a copy of it. */
static alnico_status_t move_from(alnico_comm_t comm, const struct call *call, const char *from,
                                 void *stream)
{
    struct side reads = call_reads(call, comm->rank, comm->size),
                writes = call_writes(call, comm->rank, comm->size);
    struct walk read = own_block(&reads, comm->rank), write = own_block(&writes, comm->rank);
    size_t element = datatype_bytes(call->type);
    struct moves m = {.call = call, .rank = comm->rank, .size = comm->size};
    m.messages = calloc((size_t)comm->size, 2 * sizeof *m.messages);
    if (!m.messages)
        return error_set(ALNICO_ERROR_MEMORY, "no memory for a group of messages");
    add_side(&m, &reads, true);
    add_side(&m, &writes, false);
    const struct call group = {.collective = ALNICO_SENDRECV,
                               .send = from,
                               .recv = call->recv,
                               .type = ALNICO_UINT8,
                               .messages = m.messages,
                               .messages_count = m.count};
    alnico_status_t status = launch_part(comm, &group, stream);
    free(m.messages);
    if (status != ALNICO_SUCCESS || !reads.blocks || !writes.blocks)
        return status;
    return copy(comm, (char *)call->recv + write.at * element, from + read.at * element,
                write.count * element, stream);
}

/* An alltoall in place would write over blocks that are still to be sent. */
static alnico_status_t move(alnico_comm_t comm, const struct call *call, void *stream)
{
    struct side reads = call_reads(call, comm->rank, comm->size),
                writes = call_writes(call, comm->rank, comm->size);
    size_t bytes = side_extent(&reads) * datatype_bytes(call->type);
    bool in_place = reads.blocks > 1 && writes.blocks > 1 && call->send == call->recv;
    void *scratch;
    if (!in_place || bytes == 0)
        return move_from(comm, call, call->send, stream);
    TRY(comm->device->stream_alloc(bytes, &scratch, stream));
    alnico_status_t status = copy(comm, scratch, call->send, bytes, stream);
    if (status == ALNICO_SUCCESS)
        status = move_from(comm, call, scratch, stream);
    comm->device->stream_free(scratch, stream);
    return status;
}

/* ---- The backend ---- */

static const struct call any_messages = {.collective = ALNICO_SENDRECV, .type = ALNICO_UINT8};

static bool composed_supports(alnico_comm_t comm, const struct call *call,
                              const struct algorithm *algorithm)
{
    struct call part = any_messages;
    struct choice choice;
    if (comm->size < 2)
        return false;
    if (algorithm == &composed_allreduce)
        part = call ? whole_vector(comm, call)
                    : (struct call){.collective = ALNICO_ALLREDUCE, .type = ALNICO_UINT8};
    return find(comm, &part, &choice);
}

/* Messages may need preparation; allreduces that are taken here need none. */
static bool finds_unprepared(alnico_comm_t comm, const struct algorithm *algorithm,
                             struct choice *out)
{
    return algorithm == &composed_messages && find(comm, &any_messages, out) &&
           out->backend->ops->prepared && !out->backend->ops->prepared(comm, out->algorithm);
}

static bool composed_prepared(alnico_comm_t comm, const struct algorithm *algorithm)
{
    struct choice choice;
    return !finds_unprepared(comm, algorithm, &choice);
}

static alnico_status_t composed_prepare(alnico_comm_t comm, const struct algorithm *algorithm,
                                        const char *who)
{
    struct choice choice;
    return finds_unprepared(comm, algorithm, &choice)
               ? choice.backend->ops->prepare(comm, choice.algorithm, who)
               : ALNICO_SUCCESS;
}

static alnico_status_t composed_launch(alnico_comm_t comm, const struct call *call,
                                       const struct choice *choice, void *stream)
{
    return choice->algorithm == &composed_allreduce ? reduce(comm, call, stream)
                                                    : move(comm, call, stream);
}

const struct backend_ops composed_ops = {
    .about = "collectives that are captured and that no other backend has, out of several calls",
    .needs = "2 ranks or more, and an allreduce or messages that can be captured between them",
    .capturable = true,
    .supports = composed_supports,
    .prepared = composed_prepared,
    .prepare = composed_prepare,
    .start = stream_operation_start,
    .launch = composed_launch,
};
