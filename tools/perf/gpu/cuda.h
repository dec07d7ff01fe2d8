/* What measures on GPUs: the state of a rank, and the contestants of a row. gpu/cuda.c opens and
 * closes it, gpu/side.c makes the calls, gpu/cuda_row.c measures and checks. Main thread of every
 * rank. */
#ifndef ALNICO_TOOLS_PERF_GPU_CUDA_H
#define ALNICO_TOOLS_PERF_GPU_CUDA_H

#include "tools/perf/bench.h"
#include "tools/perf/gpu/gpu.h"

enum { OURS = -1, GRAPHS = 4 };

struct nccl_peer;

/* Buffers: a pool of slots for a message each, which calls go through in turn, so that more than the
 * second-level cache lies between two uses of one. Guards of GPU_POISON lie before, between and
 * behind the slots. */
enum { POOL_GUARD = 4096, POOL_SLOTS = 256 };

/* Where the slots of messages of one size lie: the i-th at POOL_GUARD + i * stride. */
struct pool_layout {
    size_t bytes, stride;
    int slots;
};

struct pool_layout pool_layout(size_t bytes, size_t cache);

static inline size_t pool_offset(const struct pool_layout *layout, int slot)
{
    return POOL_GUARD + (size_t)slot * layout->stride;
}

/* Two equal pieces of memory for sending and receiving. */
struct gpu_pool {
    char *send, *recv;
};

struct gpu_bench {
    struct bench *bench;
    int gpu, multiprocessors;
    size_t cache;              /* bytes of the second-level cache */
    cudaStream_t stream, side; /* all contestants' stream, and one for NCCL's overlapped calls */
    cudaEvent_t begin, end, forked, joined;
    alnico_comm_t comm;
    alnico_registration_t registered[2];
    struct nccl_peer *nccl;               /* NULL: no such peer takes part */
    struct gpu_pool ours, plain, windows; /* `plain` may be `ours`; NULLs: not used */
    size_t pool_bytes;
    void *pinned[2]; /* of the staged peer: for sending and receiving */
    struct gpu_verdict *verdict;
};

/* One side of the comparison at one size. */
struct gpu_side {
    struct gpu_bench *gpu;
    int peer;              /* OURS, or who */
    const char *algorithm; /* of ours; NULL: by the table */
    const struct gpu_pool *pool;
    struct pool_layout layout;
    struct perf_job job;
    size_t result; /* bytes of recv that a call writes, or leaves as part of its result */
    int next;      /* slot of the next call */
    long compute;  /* steps of computation between start and wait; 0: none */
    cudaGraphExec_t graphs[GRAPHS];
    int graph_count, next_graph;
};

/* Fails the program unless `error` is cudaSuccess; `what` is the call, named up to a bracket. */
void gpu_must(cudaError_t error, const char *what);
#define GPU_MUST(call) gpu_must((call), #call)

/* ---- gpu/side.c ---- */

/* Writes this rank's inputs into all slots, if they stand in recv as `in_recv` says. */
void side_fill(const struct gpu_side *side, bool in_recv);

/* Makes the inputs anew that a block of calls overwrites, and forces the algorithm. */
void side_prepare(void *context);

/* Enqueues calls, eager or as replays of the side's graphs, and waits for them; how long they took
 * on the GPU. */
void side_run(void *context, int calls);
double side_seconds(void *context);

/* One call on the next slot. UNSUPPORTED, on every rank or none, if ours cannot do it. */
alnico_status_t side_call(struct gpu_side *side);

/* The same; how long the host was in the call: of ours with options.nonblocking in its start,
 * without the wait. */
double side_host_seconds(struct gpu_side *side);

/* Puts `calls` calls into each of `count` graphs, which side_run then replays. False, on every
 * rank, if it cannot. */
bool side_capture(struct gpu_side *side, int count, long calls);
void side_drop_graphs(struct gpu_side *side);

/* Computation only. */
void side_compute(void *context, int calls);

/* ---- gpu/cuda_row.c ---- */

/* A side for calls of `count`, as struct perf_job has it; `peer` is OURS, or who. The bench's
 * blocks become theirs. */
struct gpu_side side_make(struct gpu_bench *gpu, int peer, size_t count, alnico_datatype_t type,
                          alnico_op_t op);

/* Makes its inputs, one call, and with options.graph its graphs. False, on every rank, if ours
 * cannot do it and options.all_algorithms. Afterwards side_drop_graphs. */
bool side_open(struct gpu_side *side);

void gpu_row(struct bench *bench, struct perf_row *row);

#endif
