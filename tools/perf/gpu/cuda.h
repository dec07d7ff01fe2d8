/* Measuring on GPUs: the state of a rank, and the candidates of a row. gpu/cuda.c opens and
 * closes it, gpu/caller.c makes the calls, gpu/cuda_row.c measures and checks. Main thread of every
 * rank. */
#ifndef ALNICO_TOOLS_PERF_GPU_CUDA_H
#define ALNICO_TOOLS_PERF_GPU_CUDA_H

#include "tools/perf/bench.h"
#include "tools/perf/gpu/gpu.h"

enum { OURS = -1, GRAPHS = 4 };

struct nccl_peer;

/* Buffers: a pool of slots for a message each, which calls go through in turn, so that more than
 * the second-level cache lies between two uses of one. Guards of GPU_POISON lie before, between and
 * behind the slots. */
enum { POOL_GUARD = 4096, POOL_SLOTS = 256 };

/* The slots of messages of one size: the i-th lies at POOL_GUARD + i * stride. */
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
    size_t cache;                /* bytes of the second-level cache */
    cudaStream_t stream, second; /* all candidates' stream, and one for NCCL's overlapped calls */
    cudaEvent_t begin, end, forked, joined;
    alnico_comm_t comm;
    alnico_registration_t registered[2];
    struct nccl_peer *nccl;               /* NULL: no such peer takes part */
    struct gpu_pool ours, plain, windows; /* `plain` may be `ours`; NULLs: not used */
    size_t pool_bytes;
    void *pinned[2]; /* of the staged peer: for sending and receiving */
    struct gpu_findings *findings;
};

/* A caller makes the calls of one candidate at one size. */
struct gpu_caller {
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

/* In caller.c. Writes this rank's inputs into all slots, if they stand where `in_recv` says. */
void caller_fill(const struct gpu_caller *caller, bool in_recv);

/* Makes the inputs anew that a block of calls overwrites, and forces the algorithm. */
void caller_prepare(void *context);

/* Enqueues calls, eager or as replays of the caller's graphs, and waits for them; how long they
 * took on the GPU. */
void caller_run(void *context, int calls);
double caller_seconds(void *context);

/* One call on the next slot. UNSUPPORTED, on every rank or none, if ours cannot do it. */
alnico_status_t caller_call(struct gpu_caller *caller);

/* One call on the next slot; returns how long the host was in it: of ours with options.nonblocking
 * in its start, without the wait. */
double caller_host_seconds(struct gpu_caller *caller);

/* Puts `calls` calls into each of `count` graphs, which caller_run then replays. False, on every
 * rank, if it cannot. */
bool caller_capture(struct gpu_caller *caller, int count, long calls);
void caller_drop_graphs(struct gpu_caller *caller);

/* Computation only. */
void caller_compute(void *context, int calls);

/* In cuda_row.c. A caller for calls of `count`, as struct perf_job has it; `peer` is OURS, or who.
 * The bench's blocks become theirs. */
struct gpu_caller caller_make(struct gpu_bench *gpu, int peer, size_t count, alnico_datatype_t type,
                              alnico_op_t op);

/* Makes its inputs, one call, and with options.graph its graphs. False, on every rank, if ours
 * cannot do it and options.all_algorithms. Afterwards caller_drop_graphs. */
bool caller_open(struct gpu_caller *caller);

void gpu_row(struct bench *bench, struct perf_row *row);

#endif
