/* The calls of one contestant on the GPU: ours, or a peer's, eager, in a graph, or beside
 * computation. All enqueue on one stream; only the staged peer blocks, as its name says. Main
 * thread. */
#include "tools/perf/gpu/cuda.h"

#include "base/datatype.h"
#include "tools/common/program.h"
#include "tools/perf/measure.h"

#include <string.h>

#ifdef ALNICO_HAVE_NCCL
#include "tools/perf/gpu/nccl.h"
#endif

void gpu_must(cudaError_t error, const char *what)
{
    if (error != cudaSuccess)
        program_fail("%.*s: %s: %s", (int)strcspn(what, "("), what, cudaGetErrorName(error),
                     cudaGetErrorString(error));
}

/* The input to the host, MPI, and the result back. */
static void call_staged(const struct gpu_side *side)
{
    const struct gpu_bench *gpu = side->gpu;
    struct perf_job job = side->job;
    struct perf_input input = job.operation->input(&job);
    size_t element = datatype_bytes(job.type), at = input.at * element;
    const char *from = input.in_recv ? job.recv : job.send;
    char *to = gpu->pinned[input.in_recv];
    if (input.count)
        GPU_MUST(cudaMemcpyAsync(to + at, from + at, input.count * element, cudaMemcpyDeviceToHost,
                                 gpu->stream));
    GPU_MUST(cudaStreamSynchronize(gpu->stream));
    job.send = gpu->pinned[0];
    job.recv = gpu->pinned[1];
    job.operation->mpi(&job, NULL);
    if (side->result)
        GPU_MUST(cudaMemcpyAsync(side->job.recv, gpu->pinned[1], side->result,
                                 cudaMemcpyHostToDevice, gpu->stream));
}

#ifdef ALNICO_HAVE_NCCL
static void call_nccl(const struct gpu_side *side)
{
    const struct gpu_bench *gpu = side->gpu;
    if (!side->compute) {
        nccl_peer_call(gpu->nccl, &side->job, gpu->stream);
        return;
    }
    GPU_MUST(cudaEventRecord(gpu->forked, gpu->stream));
    GPU_MUST(cudaStreamWaitEvent(gpu->side, gpu->forked, 0));
    nccl_peer_call(gpu->nccl, &side->job, gpu->side);
    GPU_MUST(cudaEventRecord(gpu->joined, gpu->side));
}
#else
static void call_nccl(const struct gpu_side *side)
{
    (void)side;
}
#endif

static void compute(struct gpu_side *side)
{
    const struct gpu_bench *gpu = side->gpu;
    gpu_must(gpu_launch_compute(gpu->multiprocessors, side->compute, gpu->stream),
             "a kernel that computes");
}

static alnico_status_t call_ours(struct gpu_side *side)
{
    const struct perf_options *options = &side->gpu->bench->options;
    bool nonblocking = options->nonblocking || side->compute;
    alnico_request_t request = NULL;
    alnico_status_t status = perf_call_ours(&side->job, nonblocking ? &request : NULL);
    if (status != ALNICO_SUCCESS || !nonblocking)
        return status;
    if (side->compute)
        compute(side);
    return alnico_wait(&request);
}

static void next_slot(struct gpu_side *side)
{
    size_t at = pool_offset(&side->layout, side->next);
    side->next = (side->next + 1) % side->layout.slots;
    side->job.recv = side->pool->recv + at;
    side->job.send = side->pool->send + at;
}

static alnico_status_t call_slot(struct gpu_side *side)
{
    if (side->peer == OURS)
        return call_ours(side);
    if (side->peer == PEER_STAGED)
        call_staged(side);
    else
        call_nccl(side);
    if (side->compute) {
        compute(side);
        GPU_MUST(cudaStreamWaitEvent(side->gpu->stream, side->gpu->joined, 0));
    }
    return ALNICO_SUCCESS;
}

alnico_status_t side_call(struct gpu_side *side)
{
    next_slot(side);
    return call_slot(side);
}

double side_host_seconds(struct gpu_side *side)
{
    const struct perf_options *options = &side->gpu->bench->options;
    bool nonblocking = options->nonblocking && side->peer == OURS;
    alnico_request_t request = NULL;
    next_slot(side);
    double start = measure_now();
    alnico_status_t status = nonblocking ? perf_call_ours(&side->job, &request) : call_slot(side);
    double seconds = measure_now() - start;
    if (nonblocking && status == ALNICO_SUCCESS)
        status = alnico_wait(&request);
    program_check(status, options->operation->name);
    return seconds;
}

void side_fill(const struct gpu_side *side, bool in_recv)
{
    const struct bench *bench = side->gpu->bench;
    const struct perf_job *job = &side->job;
    struct perf_input input = job->operation->input(job);
    struct check check = {
        .seed = bench->options.seed, .ranks = bench->ranks, .type = job->type, .op = job->op};
    char *pool = in_recv ? side->pool->recv : side->pool->send;
    if (!input.count || input.in_recv != in_recv)
        return;
    gpu_must(gpu_fill(&check, bench->rank,
                      pool + pool_offset(&side->layout, 0) + input.at * datatype_bytes(job->type),
                      input.count, side->layout.stride, side->layout.slots, side->gpu->stream),
             "the kernel that writes inputs");
}

void side_prepare(void *context)
{
    struct gpu_side *side = context;
    const struct bench *bench = side->gpu->bench;
    if (side->peer == OURS && side->algorithm)
        program_check(alnico_comm_set_algorithm(
                          side->job.comm, bench->options.operation->collective, side->algorithm),
                      "alnico_comm_set_algorithm");
    side_fill(side, true);
    GPU_MUST(cudaStreamSynchronize(side->gpu->stream));
}

static void enqueue(struct gpu_side *side)
{
    if (side->graph_count) {
        GPU_MUST(cudaGraphLaunch(side->graphs[side->next_graph], side->gpu->stream));
        side->next_graph = (side->next_graph + 1) % side->graph_count;
        return;
    }
    program_check(side_call(side), side->gpu->bench->options.operation->name);
}

/* Waits for what was enqueued; an error of ours in flight shows here. */
static void wait_for(const struct gpu_side *side)
{
    if (side->peer == OURS)
        program_check(alnico_synchronize(side->job.comm), "alnico_synchronize");
    GPU_MUST(cudaStreamSynchronize(side->gpu->stream));
}

static void run(struct gpu_side *side, int calls, void (*call)(struct gpu_side *side))
{
    GPU_MUST(cudaEventRecord(side->gpu->begin, side->gpu->stream));
    for (int i = 0; i < calls; i++)
        call(side);
    GPU_MUST(cudaEventRecord(side->gpu->end, side->gpu->stream));
    wait_for(side);
}

void side_run(void *context, int calls)
{
    run(context, calls, enqueue);
}

void side_compute(void *context, int calls)
{
    run(context, calls, compute);
}

double side_seconds(void *context)
{
    const struct gpu_side *side = context;
    float milliseconds;
    GPU_MUST(cudaEventElapsedTime(&milliseconds, side->gpu->begin, side->gpu->end));
    return milliseconds * 1e-3;
}

/* One graph; NULL if ours cannot be captured. */
static cudaGraphExec_t capture(struct gpu_side *side, long calls)
{
    cudaStream_t stream = side->gpu->stream;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t out = NULL;
    alnico_status_t status = ALNICO_SUCCESS;
    GPU_MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (long i = 0; i < calls && status == ALNICO_SUCCESS; i++)
        status = side_call(side);
    cudaError_t error = cudaStreamEndCapture(stream, &graph);
    if (status == ALNICO_SUCCESS) {
        gpu_must(error, "cudaStreamEndCapture");
        GPU_MUST(cudaGraphInstantiateWithFlags(&out, graph, 0));
        GPU_MUST(cudaGraphUpload(out, stream));
    } else if (status != ALNICO_ERROR_UNSUPPORTED) {
        program_check(status, "a captured call");
    }
    cudaGetLastError(); /* of a capture that was given up */
    if (graph)
        GPU_MUST(cudaGraphDestroy(graph));
    return out;
}

bool side_capture(struct gpu_side *side, int count, long calls)
{
    side->next = 0;
    for (int i = 0; i < count; i++) {
        side->graphs[i] = capture(side, calls);
        int refused = !side->graphs[i];
        MPI_Allreduce(MPI_IN_PLACE, &refused, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
        side->graph_count = i + (side->graphs[i] != NULL);
        if (refused) {
            side_drop_graphs(side);
            return false;
        }
    }
    wait_for(side);
    return true;
}

void side_drop_graphs(struct gpu_side *side)
{
    for (int i = 0; i < side->graph_count; i++)
        GPU_MUST(cudaGraphExecDestroy(side->graphs[i]));
    side->graph_count = side->next_graph = 0;
}
