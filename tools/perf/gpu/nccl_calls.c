/* NCCL's calls, one function an operation: its own, or sends and receives in a group, without those
 * of no elements. All enqueue on the stream. Main thread. */
#include "base/datatype.h"
#include "tools/perf/gpu/nccl.h"

/* ncclAlltoAll, ncclGather and ncclScatter came with NCCL 2.28. */
#if defined(NCCL_VERSION_CODE) && NCCL_VERSION_CODE >= 22803
#define HAS_BLOCKS 1
#else
#define HAS_BLOCKS 0
#endif

/* What every call needs besides the job. Where a buffer begins, in place resolved to the addresses
 * that NCCL wants. */
struct call {
    const struct perf_job *job;
    const char *send;
    char *recv;
    ncclDataType_t type;
    ncclRedOp_t op;
    size_t element;
    ncclComm_t comm;
    cudaStream_t stream;
};

static ncclDataType_t type_of(alnico_datatype_t type)
{
    static const ncclDataType_t types[] = {
        [ALNICO_INT8] = ncclInt8,       [ALNICO_UINT8] = ncclUint8,
        [ALNICO_INT32] = ncclInt32,     [ALNICO_UINT32] = ncclUint32,
        [ALNICO_INT64] = ncclInt64,     [ALNICO_UINT64] = ncclUint64,
        [ALNICO_FLOAT16] = ncclFloat16, [ALNICO_BFLOAT16] = ncclBfloat16,
        [ALNICO_FLOAT32] = ncclFloat32, [ALNICO_FLOAT64] = ncclFloat64};
    return types[type];
}

static ncclRedOp_t op_of(alnico_op_t op)
{
    static const ncclRedOp_t ops[] = {[ALNICO_SUM] = ncclSum,
                                      [ALNICO_PRODUCT] = ncclProd,
                                      [ALNICO_MINIMUM] = ncclMin,
                                      [ALNICO_MAXIMUM] = ncclMax,
                                      [ALNICO_AVERAGE] = ncclAvg};
    return ops[op];
}

/* Where a rank's block begins, in bytes. */
static size_t block_at(const struct call *c, int rank)
{
    return c->job->blocks->at[rank] * c->element;
}

/* ---- Vectors ---- */

static void nccl_allreduce(const struct call *c)
{
    nccl_must(ncclAllReduce(c->send, c->recv, c->job->count, c->type, c->op, c->comm, c->stream),
              "ncclAllReduce");
}

static void nccl_reduce(const struct call *c)
{
    nccl_must(ncclReduce(c->send, c->recv, c->job->count, c->type, c->op, c->job->root, c->comm,
                         c->stream),
              "ncclReduce");
}

static void nccl_broadcast(const struct call *c)
{
    nccl_must(
        ncclBroadcast(c->recv, c->recv, c->job->count, c->type, c->job->root, c->comm, c->stream),
        "ncclBroadcast");
}

/* ---- Blocks ---- */

static void nccl_allgather(const struct call *c)
{
    nccl_must(ncclAllGather(c->send, c->recv, c->job->count, c->type, c->comm, c->stream),
              "ncclAllGather");
}

static void nccl_reduce_scatter(const struct call *c)
{
    nccl_must(
        ncclReduceScatter(c->send, c->recv, c->job->count, c->type, c->op, c->comm, c->stream),
        "ncclReduceScatter");
}

static void begin(void)
{
    nccl_must(ncclGroupStart(), "ncclGroupStart");
}

static void end(void)
{
    nccl_must(ncclGroupEnd(), "ncclGroupEnd");
}

static void send_to(const struct call *c, const char *from, size_t count, int to)
{
    if (count)
        nccl_must(ncclSend(from, count, c->type, to, c->comm, c->stream), "ncclSend");
}

static void recv_from(const struct call *c, char *to, size_t count, int from)
{
    if (count)
        nccl_must(ncclRecv(to, count, c->type, from, c->comm, c->stream), "ncclRecv");
}

/* Every rank but, in place, the own one. */
static bool is_partner(const struct call *c, int rank)
{
    return rank != c->job->rank || !c->job->in_place;
}

static void nccl_allgatherv(const struct call *c)
{
    const struct perf_job *job = c->job;
    begin();
    for (int b = 0; b < job->ranks; b++) {
        if (!is_partner(c, b))
            continue;
        send_to(c, c->send, job->blocks->counts[job->rank], b);
        recv_from(c, c->recv + block_at(c, b), job->blocks->counts[b], b);
    }
    end();
}

static void nccl_reduce_scatterv(const struct call *c)
{
    const struct perf_job *job = c->job;
    begin();
    for (int b = 0; b < job->ranks; b++)
        if (job->blocks->counts[b])
            nccl_must(ncclReduce(c->send + block_at(c, b), c->recv, job->blocks->counts[b], c->type,
                                 c->op, b, c->comm, c->stream),
                      "ncclReduce");
    end();
}

static void nccl_gatherv(const struct call *c)
{
    const struct perf_job *job = c->job;
    begin();
    if (is_partner(c, job->root))
        send_to(c, c->send, job->blocks->counts[job->rank], job->root);
    for (int b = 0; b < job->ranks && job->rank == job->root; b++)
        if (is_partner(c, b))
            recv_from(c, c->recv + block_at(c, b), job->blocks->counts[b], b);
    end();
}

static void nccl_scatterv(const struct call *c)
{
    const struct perf_job *job = c->job;
    begin();
    for (int b = 0; b < job->ranks && job->rank == job->root; b++)
        if (is_partner(c, b))
            send_to(c, c->send + block_at(c, b), job->blocks->counts[b], b);
    if (is_partner(c, job->root))
        recv_from(c, c->recv, job->blocks->counts[job->rank], job->root);
    end();
}

static void nccl_alltoallv(const struct call *c)
{
    const struct perf_job *job = c->job;
    begin();
    for (int b = 0; b < job->ranks; b++) {
        send_to(c, c->send + block_at(c, b), job->blocks->counts[b], b);
        recv_from(c, c->recv + block_at(c, b), job->blocks->counts[b], b);
    }
    end();
}

#if HAS_BLOCKS
static void nccl_gather(const struct call *c)
{
    nccl_must(
        ncclGather(c->send, c->recv, c->job->count, c->type, c->job->root, c->comm, c->stream),
        "ncclGather");
}

static void nccl_scatter(const struct call *c)
{
    nccl_must(
        ncclScatter(c->send, c->recv, c->job->count, c->type, c->job->root, c->comm, c->stream),
        "ncclScatter");
}

static void nccl_alltoall(const struct call *c)
{
    nccl_must(ncclAlltoAll(c->send, c->recv, c->job->count, c->type, c->comm, c->stream),
              "ncclAlltoAll");
}
#else
#define nccl_gather nccl_gatherv
#define nccl_scatter nccl_scatterv
#define nccl_alltoall nccl_alltoallv
#endif

/* ---- Messages ---- */

static void nccl_sendrecv(const struct call *c)
{
    const struct perf_job *job = c->job;
    begin();
    send_to(c, c->send, job->count, (job->rank + 1) % job->ranks);
    recv_from(c, c->recv, job->count, (job->rank + job->ranks - 1) % job->ranks);
    end();
}

/* In the order of perf/calls.c, for the same reason. */
static void nccl_exchange(const struct call *c)
{
    const struct perf_job *job = c->job;
    int left = (job->rank + job->ranks - 1) % job->ranks, right = (job->rank + 1) % job->ranks;
    size_t bytes = job->count * c->element;
    begin();
    recv_from(c, c->recv + bytes, job->count, right);
    recv_from(c, c->recv, job->count, left);
    send_to(c, c->send, job->count, left);
    send_to(c, c->send + bytes, job->count, right);
    end();
}

static void nccl_pingpong(const struct call *c)
{
    const struct perf_job *job = c->job;
    if (job->rank > 1)
        return;
    if (job->rank == 0)
        send_to(c, c->send, job->count, 1);
    recv_from(c, c->recv, job->count, 1 - job->rank);
    if (job->rank == 1)
        send_to(c, c->send, job->count, 0);
}

/* ---- The table ---- */

/* An operation without a call is not NCCL's. */
static const struct {
    void (*call)(const struct call *c);
    bool native;
} calls[PERF_OPERATIONS] = {
    [PERF_ALLREDUCE] = {nccl_allreduce, true},
    [PERF_REDUCE] = {nccl_reduce, true},
    [PERF_BROADCAST] = {nccl_broadcast, true},
    [PERF_ALLGATHER] = {nccl_allgather, true},
    [PERF_ALLGATHERV] = {nccl_allgatherv, false},
    [PERF_REDUCE_SCATTER] = {nccl_reduce_scatter, true},
    [PERF_REDUCE_SCATTERV] = {nccl_reduce_scatterv, false},
    [PERF_GATHER] = {nccl_gather, HAS_BLOCKS},
    [PERF_GATHERV] = {nccl_gatherv, false},
    [PERF_SCATTER] = {nccl_scatter, HAS_BLOCKS},
    [PERF_SCATTERV] = {nccl_scatterv, false},
    [PERF_ALLTOALL] = {nccl_alltoall, HAS_BLOCKS},
    [PERF_ALLTOALLV] = {nccl_alltoallv, false},
    [PERF_SENDRECV] = {nccl_sendrecv, false},
    [PERF_EXCHANGE] = {nccl_exchange, false},
    [PERF_PINGPONG] = {nccl_pingpong, false},
};

bool nccl_peer_can(const struct perf_job *job, bool in_place, bool windows)
{
    int id = job->operation->id;
    bool alltoall = id == PERF_ALLTOALL || id == PERF_ALLTOALLV; /* never in place */
    return calls[id].call && (calls[id].native || !windows) && !(alltoall && in_place) &&
           (!job->operation->reduces || job->op <= ALNICO_AVERAGE);
}

/* In place NCCL wants a block where it stands: what is sent of a gather, what is received of a
 * scatter. */
static void resolve_place(struct call *c)
{
    const struct perf_job *job = c->job;
    struct perf_input input = job->operation->input(job);
    bool to_block = job->operation->id == PERF_REDUCE_SCATTER ||
                    job->operation->id == PERF_REDUCE_SCATTERV ||
                    job->operation->id == PERF_SCATTER || job->operation->id == PERF_SCATTERV;
    c->send = (const char *)job->recv + input.at * c->element;
    if (to_block)
        c->recv += block_at(c, job->rank);
}

void nccl_peer_call(struct nccl_peer *peer, const struct perf_job *job, cudaStream_t stream)
{
    struct call c = {.job = job,
                     .send = job->send,
                     .recv = job->recv,
                     .type = type_of(job->type),
                     .op = op_of(job->op <= ALNICO_AVERAGE ? job->op : ALNICO_SUM),
                     .element = datatype_bytes(job->type),
                     .comm = nccl_peer_comm(peer),
                     .stream = stream};
    if (job->in_place)
        resolve_place(&c);
    calls[job->operation->id].call(&c);
}
