/*
 * NCCL's own calls where it has them; otherwise its sends and receives, or several calls, in one
 * group, which cannot deadlock. What has no elements is left out on both sides alike. NCCL 2.28's
 * alltoall, gather and scatter are such groups, too, and know neither vectors nor NULL where there
 * is nothing.
 */
#include "comm/backends/nccl/calls.h"

#include "comm/backends/nccl/algorithms.h"
#include "comm/backends/nccl/nccl.h"

#include "base/datatype.h"
#include "base/status.h"

/* 8-bit floats are only moved. */
static const ncclDataType_t types[DATATYPES] = {
    [ALNICO_INT8] = ncclInt8,         [ALNICO_UINT8] = ncclUint8,
    [ALNICO_INT32] = ncclInt32,       [ALNICO_UINT32] = ncclUint32,
    [ALNICO_INT64] = ncclInt64,       [ALNICO_UINT64] = ncclUint64,
    [ALNICO_FLOAT16] = ncclFloat16,   [ALNICO_BFLOAT16] = ncclBfloat16,
    [ALNICO_FLOAT32] = ncclFloat32,   [ALNICO_FLOAT64] = ncclFloat64,
    [ALNICO_FLOAT8_E4M3] = ncclUint8, [ALNICO_FLOAT8_E5M2] = ncclUint8};

/* Up to AVERAGE. NCCL's of integers adds, wrapping, and divides the magnitude, which truncates. */
static const ncclRedOp_t ops[] = {[ALNICO_SUM] = ncclSum,
                                  [ALNICO_PRODUCT] = ncclProd,
                                  [ALNICO_MINIMUM] = ncclMin,
                                  [ALNICO_MAXIMUM] = ncclMax,
                                  [ALNICO_AVERAGE] = ncclAvg};

/* NCCL's minimum and maximum of floats pass over a NaN, which must come through. 8-bit floats it reduces
 * from version 2.24 and compute capability 9 on, in float16, and with an average's factor as short as they
 * are. */
static bool has_operation(const struct call *call)
{
    bool float8 = call->type == ALNICO_FLOAT8_E4M3 || call->type == ALNICO_FLOAT8_E5M2;
    if (call->op > ALNICO_AVERAGE || float8)
        return false;
    bool extreme = call->op == ALNICO_MINIMUM || call->op == ALNICO_MAXIMUM;
    return !extreme || datatype_is_integer(call->type);
}

/* NCCL has no symmetric kernel for other calls, and would silently take a plain one. */
static bool has_symmetric_kernel(const struct call *call)
{
    if (call->collective == ALNICO_ALLGATHER)
        return true;
    return (call->collective == ALNICO_ALLREDUCE || call->collective == ALNICO_REDUCE_SCATTER) &&
           call->op == ALNICO_SUM &&
           (call->type == ALNICO_FLOAT32 || call->type == ALNICO_FLOAT16 ||
            call->type == ALNICO_BFLOAT16);
}

/*
 * Its symmetric kernels load elements of one and two bytes wrongly from where they begin within 4
 * bytes, seen with 2.28.3 and 2.28.9; and before 2.28.7 they move wrong bytes where the blocks of the
 * others begin or end within 8, seen with 2.28.3. All ranks must decide alike, and do not know where
 * another has its own block.
 */
static bool is_right(const struct call *call)
{
    enum { WORD = 4, BLOCKS_SINCE = 22807 };
    size_t element = datatype_bytes(call->type);
    bool vector = element >= WORD || (uintptr_t)call->send % WORD == 0;
    bool blocks = element >= WORD || (vector && call->collective == ALNICO_REDUCE_SCATTER &&
                                      call->count * element % WORD == 0);
    if (call->collective == ALNICO_ALLREDUCE)
        return vector;
    return blocks && nccl_version() >= BLOCKS_SINCE;
}

static bool in_windows(const struct alnico_comm *comm, const struct call *call)
{
    struct side reads = call_reads(call, comm->rank, comm->size),
                writes = call_writes(call, comm->rank, comm->size);
    size_t element = datatype_bytes(call->type);
    return nccl_in_window(comm, call->send, side_extent(&reads) * element) &&
           nccl_in_window(comm, call->recv, side_extent(&writes) * element);
}

/* NCCL moves in place only what no other rank writes to. */
static bool is_in_place(const struct call *call)
{
    bool alltoall = call->collective == ALNICO_ALLTOALL || call->collective == ALNICO_ALLTOALLV;
    return alltoall && call->send && call->send == call->recv;
}

bool nccl_can(const struct alnico_comm *comm, const struct call *call,
              const struct algorithm *algorithm)
{
    bool alone = comm->size == 1; /* which only copies */
    if (call_reduces(call) && !alone && !has_operation(call))
        return false;
    if (algorithm == &algorithm_nccl_symmetric)
        return has_symmetric_kernel(call) && is_right(call) && in_windows(comm, call);
    return (alone || !is_in_place(call)) && call_own_messages_meet(call, comm->rank);
}

struct job {
    const struct call *call;
    int rank, size;
    size_t element;
    ncclDataType_t type;
    ncclComm_t nccl;
    cudaStream_t stream;
    const char *function; /* NCCL's that was called last */
};

static struct job describe(const struct alnico_comm *comm, const struct call *call, ncclComm_t nccl,
                           void *stream)
{
    return (struct job){.call = call,
                        .rank = comm->rank,
                        .size = comm->size,
                        .element = datatype_bytes(call->type),
                        .type = types[call->type],
                        .nccl = nccl,
                        .stream = stream};
}

static const char *read_at(const struct job *job, size_t at)
{
    return (const char *)job->call->send + at * job->element;
}

static char *written_at(const struct job *job, size_t at)
{
    return (char *)job->call->recv + at * job->element;
}

/* A call of NCCL, whose name an error then has. */
#define CALL(job, name, ...)                                                                       \
    ((job)->function = #name, nccl_library()->name(__VA_ARGS__, (job)->nccl, (job)->stream))

static ncclResult_t send_to(struct job *job, int to, size_t at, size_t count)
{
    return count ? CALL(job, ncclSend, read_at(job, at), count, job->type, to) : ncclSuccess;
}

static ncclResult_t receive_from(struct job *job, int from, size_t at, size_t count)
{
    return count ? CALL(job, ncclRecv, written_at(job, at), count, job->type, from) : ncclSuccess;
}

/* Own blocks that are in place stay where they are. */
static bool stays(const struct job *job, const struct side *reads, const struct side *writes)
{
    struct walk read = {0}, write = {0};
    for (int b = 0; b <= (reads->blocks > 1 ? job->rank : 0); b++)
        if (!side_block(reads, b, &read))
            return false;
    for (int b = 0; b <= (writes->blocks > 1 ? job->rank : 0); b++)
        if (!side_block(writes, b, &write))
            return false;
    return read_at(job, read.at) == written_at(job, write.at);
}

/* One block goes to all ranks, or to or from the root where there is one; of all blocks each goes to
 * its rank, or comes from it. */
static ncclResult_t move_blocks(struct job *job, const struct side *side, bool sends, bool stay)
{
    const struct call *call = job->call;
    ncclResult_t result = ncclSuccess;
    struct walk block = {0};
    for (int r = 0; r < job->size && result == ncclSuccess && side->blocks; r++) {
        if (r == 0 || side->blocks > 1)
            side_block(side, r, &block);
        bool to_all = sends && !call_has_root(call);
        if ((side->blocks == 1 && !to_all && r != call->root) || (stay && r == job->rank))
            continue;
        result = sends ? send_to(job, r, block.at, block.count)
                       : receive_from(job, r, block.at, block.count);
    }
    return result;
}

static ncclResult_t move_both_sides(struct job *job)
{
    struct side reads = call_reads(job->call, job->rank, job->size),
                writes = call_writes(job->call, job->rank, job->size);
    bool stay = stays(job, &reads, &writes);
    ncclResult_t result = move_blocks(job, &reads, true, stay);
    return result == ncclSuccess ? move_blocks(job, &writes, false, stay) : result;
}

static ncclResult_t move_messages(struct job *job)
{
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < job->call->messages_count && result == ncclSuccess; i++) {
        const struct exchange *x = &job->call->messages[i];
        result = x->to >= 0 ? send_to(job, x->to, x->send.at, x->send.len)
                            : receive_from(job, x->from, x->recv.at, x->recv.len);
    }
    return result;
}

/* A reduction to each rank of its block. */
static ncclResult_t reduce_blocks(struct job *job)
{
    const struct call *call = job->call;
    struct side reads = call_reads(call, job->rank, job->size);
    struct walk block = {0};
    ncclResult_t result = ncclSuccess;
    for (int root = 0; result == ncclSuccess && side_block(&reads, root, &block); root++)
        if (block.count)
            result = CALL(job, ncclReduce, read_at(job, block.at), call->recv, block.count,
                          job->type, ops[call->op], root);
    return result;
}

static ncclResult_t run_group(struct job *job)
{
    job->function = "ncclGroupStart";
    ncclResult_t result = nccl_library()->ncclGroupStart();
    if (result != ncclSuccess)
        return result;
    result = job->call->collective == ALNICO_SENDRECV          ? move_messages(job)
             : job->call->collective == ALNICO_REDUCE_SCATTERV ? reduce_blocks(job)
                                                               : move_both_sides(job);
    ncclResult_t end = nccl_library()->ncclGroupEnd();
    if (result != ncclSuccess)
        return result;
    job->function = "ncclGroupEnd";
    return end;
}

static ncclResult_t run_native(struct job *job, void *scratch)
{
    const struct call *c = job->call;
    const void *input = c->send ? c->send : c->recv; /* a broadcast's, which only the root reads */
    switch (c->collective) {
    case ALNICO_BARRIER:
        return CALL(job, ncclAllReduce, scratch, scratch, 1, ncclFloat32, ncclSum);
    case ALNICO_ALLREDUCE:
        return CALL(job, ncclAllReduce, c->send, c->recv, c->count, job->type, ops[c->op]);
    case ALNICO_REDUCE:
        return CALL(job, ncclReduce, c->send, c->recv, c->count, job->type, ops[c->op], c->root);
    case ALNICO_BROADCAST:
        return CALL(job, ncclBroadcast, input, c->recv ? c->recv : (void *)input, c->count,
                    job->type, c->root);
    case ALNICO_ALLGATHER:
        return CALL(job, ncclAllGather, c->send, c->recv, c->count, job->type);
    case ALNICO_REDUCE_SCATTER:
        return CALL(job, ncclReduceScatter, c->send, c->recv, c->count, job->type, ops[c->op]);
    default:
        return run_group(job);
    }
}

alnico_status_t nccl_enqueue(const struct alnico_comm *comm, const struct call *call,
                             ncclComm_t nccl, void *scratch, void *stream)
{
    struct job job = describe(comm, call, nccl, stream);
    /* In a vector form `count` is only this rank's. */
    if (call->count == 0 && call_is_even(call) && !call_is_vector(call))
        return ALNICO_SUCCESS;
    ncclResult_t result = run_native(&job, scratch);
    return nccl_status(result, nccl, job.function);
}

static alnico_status_t copy(const struct alnico_comm *comm, char *to, const char *from,
                            size_t bytes, void *stream)
{
    return bytes == 0 || to == from ? ALNICO_SUCCESS : comm->device->copy(to, from, bytes, stream);
}

/* Sends and receives are paired in their order. */
static alnico_status_t copy_messages(const struct alnico_comm *comm, const struct call *call,
                                     void *stream)
{
    int received = -1;
    for (int i = 0; i < call->messages_count; i++) {
        const struct span *sent = &call->messages[i].send;
        if (call->messages[i].to < 0)
            continue;
        do
            received++;
        while (received < call->messages_count && call->messages[received].from < 0);
        const struct span *to = &call->messages[received].recv;
        if (to->len != sent->len)
            return error_set(ALNICO_ERROR_MISMATCH,
                             "a message of %zu bytes from rank 0 to itself, which receives %zu",
                             sent->len, to->len);
        TRY(copy(comm, (char *)call->recv + to->at, (const char *)call->send + sent->at, sent->len,
                 stream));
    }
    return ALNICO_SUCCESS;
}

alnico_status_t nccl_copy_alone(const struct alnico_comm *comm, const struct call *call,
                                void *stream)
{
    struct side reads = call_reads(call, 0, 1), writes = call_writes(call, 0, 1);
    struct walk read = {0}, write = {0};
    struct job job = describe(comm, call, NULL, stream);
    if (call->collective == ALNICO_SENDRECV)
        return copy_messages(comm, call, stream);
    if (!side_block(&reads, 0, &read) || !side_block(&writes, 0, &write))
        return ALNICO_SUCCESS;
    return copy(comm, written_at(&job, write.at), read_at(&job, read.at), read.count * job.element,
                stream);
}
