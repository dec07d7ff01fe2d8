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

/* NCCL reduces 8-bit floats from 2.24 on. */
#if defined(NCCL_VERSION_CODE) && NCCL_VERSION_CODE >= 22400
#define HAS_FLOAT8 1
#define NCCL_E4M3 ncclFloat8e4m3
#define NCCL_E5M2 ncclFloat8e5m2
#else
#define HAS_FLOAT8 0
#define NCCL_E4M3 ncclUint8
#define NCCL_E5M2 ncclUint8
#endif

/* The arguments of a call of NCCL. In place, send and recv are the addresses that NCCL wants. */
struct nccl_arguments {
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
        [ALNICO_INT8] = ncclInt8,         [ALNICO_UINT8] = ncclUint8,
        [ALNICO_INT32] = ncclInt32,       [ALNICO_UINT32] = ncclUint32,
        [ALNICO_INT64] = ncclInt64,       [ALNICO_UINT64] = ncclUint64,
        [ALNICO_FLOAT16] = ncclFloat16,   [ALNICO_BFLOAT16] = ncclBfloat16,
        [ALNICO_FLOAT32] = ncclFloat32,   [ALNICO_FLOAT64] = ncclFloat64,
        [ALNICO_FLOAT8_E4M3] = NCCL_E4M3, [ALNICO_FLOAT8_E5M2] = NCCL_E5M2};
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

/* The offset of a rank's block in bytes. */
static size_t place_of(const struct nccl_arguments *c, int rank)
{
    return c->job->blocks->at[rank] * c->element;
}

/* A function of `c`: the call of NCCL that is named. */
#define OPERATION(name, function, ...)                                                             \
    static void name(const struct nccl_arguments *c)                                               \
    {                                                                                              \
        nccl_must(function(__VA_ARGS__, c->comm, c->stream), #function);                           \
    }

OPERATION(nccl_allreduce, ncclAllReduce, c->send, c->recv, c->job->count, c->type, c->op)
OPERATION(nccl_reduce, ncclReduce, c->send, c->recv, c->job->count, c->type, c->op, c->job->root)
OPERATION(nccl_broadcast, ncclBroadcast, c->recv, c->recv, c->job->count, c->type, c->job->root)
OPERATION(nccl_allgather, ncclAllGather, c->send, c->recv, c->job->count, c->type)
OPERATION(nccl_reduce_scatter, ncclReduceScatter, c->send, c->recv, c->job->count, c->type, c->op)
#if HAS_BLOCKS
OPERATION(nccl_gather, ncclGather, c->send, c->recv, c->job->count, c->type, c->job->root)
OPERATION(nccl_scatter, ncclScatter, c->send, c->recv, c->job->count, c->type, c->job->root)
OPERATION(nccl_alltoall, ncclAlltoAll, c->send, c->recv, c->job->count, c->type)
#else
#define nccl_gather nccl_blocks
#define nccl_scatter nccl_blocks
#define nccl_alltoall nccl_blocks
#endif

static void send_to(const struct nccl_arguments *c, const char *from, size_t count, int to)
{
    if (count)
        NCCL_MUST(ncclSend(from, count, c->type, to, c->comm, c->stream));
}

static void recv_from(const struct nccl_arguments *c, char *to, size_t count, int from)
{
    if (count)
        NCCL_MUST(ncclRecv(to, count, c->type, from, c->comm, c->stream));
}

/* A message for each pair of ranks of which one sends and one receives. */
static void nccl_blocks(const struct nccl_arguments *c)
{
    const struct perf_job *job = c->job;
    const struct collective *kind = &collectives[job->operation->collective];
    bool reads_all = kind->reads == ALL_BLOCKS, writes_all = kind->writes == ALL_BLOCKS;
    bool root = job->rank == job->root;
    NCCL_MUST(ncclGroupStart());
    for (int b = 0; b < job->ranks; b++) {
        bool partner_is_root = b == job->root;
        if (b == job->rank && job->in_place)
            continue;
        if ((root || !kind->reads_at_root) && (partner_is_root || !kind->writes_at_root))
            send_to(c, c->send + (reads_all ? place_of(c, b) : 0),
                    job->blocks->counts[reads_all ? b : job->rank], b);
        if ((root || !kind->writes_at_root) && (partner_is_root || !kind->reads_at_root))
            recv_from(c, c->recv + (writes_all ? place_of(c, b) : 0),
                      job->blocks->counts[writes_all ? b : job->rank], b);
    }
    NCCL_MUST(ncclGroupEnd());
}

static void nccl_reduce_scatterv(const struct nccl_arguments *c)
{
    const struct perf_job *job = c->job;
    NCCL_MUST(ncclGroupStart());
    for (int b = 0; b < job->ranks; b++)
        if (job->blocks->counts[b])
            NCCL_MUST(ncclReduce(c->send + place_of(c, b), c->recv, job->blocks->counts[b], c->type,
                                 c->op, b, c->comm, c->stream));
    NCCL_MUST(ncclGroupEnd());
}

static void nccl_sendrecv(const struct nccl_arguments *c)
{
    const struct perf_job *job = c->job;
    NCCL_MUST(ncclGroupStart());
    send_to(c, c->send, job->count, job_neighbour(job, 1));
    recv_from(c, c->recv, job->count, job_neighbour(job, -1));
    NCCL_MUST(ncclGroupEnd());
}

/* In the order of perf/calls.c, for the same reason. */
static void nccl_exchange(const struct nccl_arguments *c)
{
    const struct perf_job *job = c->job;
    int left = job_neighbour(job, -1), right = job_neighbour(job, 1);
    size_t bytes = job->count * c->element;
    NCCL_MUST(ncclGroupStart());
    recv_from(c, c->recv + bytes, job->count, right);
    recv_from(c, c->recv, job->count, left);
    send_to(c, c->send, job->count, left);
    send_to(c, c->send + bytes, job->count, right);
    NCCL_MUST(ncclGroupEnd());
}

static void nccl_pingpong(const struct nccl_arguments *c)
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

/* An operation without a call is not NCCL's. */
static const struct {
    void (*call)(const struct nccl_arguments *c);
    bool native;
} calls[PERF_OPERATIONS] = {
    [ALNICO_ALLREDUCE] = {nccl_allreduce, true},
    [ALNICO_REDUCE] = {nccl_reduce, true},
    [ALNICO_BROADCAST] = {nccl_broadcast, true},
    [ALNICO_ALLGATHER] = {nccl_allgather, true},
    [ALNICO_ALLGATHERV] = {nccl_blocks, false},
    [ALNICO_REDUCE_SCATTER] = {nccl_reduce_scatter, true},
    [ALNICO_REDUCE_SCATTERV] = {nccl_reduce_scatterv, false},
    [ALNICO_GATHER] = {nccl_gather, HAS_BLOCKS},
    [ALNICO_GATHERV] = {nccl_blocks, false},
    [ALNICO_SCATTER] = {nccl_scatter, HAS_BLOCKS},
    [ALNICO_SCATTERV] = {nccl_blocks, false},
    [ALNICO_ALLTOALL] = {nccl_alltoall, HAS_BLOCKS},
    [ALNICO_ALLTOALLV] = {nccl_blocks, false},
    [ALNICO_SENDRECV] = {nccl_sendrecv, false},
    [PERF_EXCHANGE] = {nccl_exchange, false},
    [PERF_PINGPONG] = {nccl_pingpong, false},
};

bool nccl_peer_can(const struct perf_job *job, bool in_place, bool windows)
{
    int id = perf_operation_id(job->operation);
    bool alltoall = id == ALNICO_ALLTOALL || id == ALNICO_ALLTOALLV; /* never in place */
    bool has_type = HAS_FLOAT8 || job->type < ALNICO_FLOAT8_E4M3;
    return calls[id].call && (calls[id].native || !windows) && !(alltoall && in_place) &&
           (!collectives[job->operation->collective].reduces ||
            (has_type && job->op <= ALNICO_AVERAGE));
}

/* In place NCCL wants a block where it stands: what is sent of a gather, what is received of a
 * scatter. */
static void resolve_place(struct nccl_arguments *c)
{
    const struct perf_job *job = c->job;
    const struct collective *kind = &collectives[job->operation->collective];
    c->send = (const char *)job->recv + job_input(job).at * c->element;
    if (kind->reads == ALL_BLOCKS && kind->writes == OWN_BLOCK)
        c->recv += place_of(c, job->rank);
}

void nccl_peer_call(struct nccl_peer *peer, const struct perf_job *job, cudaStream_t stream)
{
    struct nccl_arguments c = {.job = job,
                               .send = job->send,
                               .recv = job->recv,
                               .type = type_of(job->type),
                               .op = op_of(job->op <= ALNICO_AVERAGE ? job->op : ALNICO_SUM),
                               .element = datatype_bytes(job->type),
                               .comm = peer->comm,
                               .stream = stream};
    if (job->in_place)
        resolve_place(&c);
    calls[perf_operation_id(job->operation)].call(&c);
}
