/* The calls of one candidate on the GPU: ours, or a peer's, eager, in a graph, or beside
 * computation. All enqueue on one stream; only the staged peer blocks, as its name says. Main
 * thread. */
#include "tools/perf/gpu/cuda.h"

#include "base/datatype.h"
#include "tools/common/program.h"
#include "tools/common/ranks.h"
#include "tools/perf/measure.h"
#include "tools/perf/mpi.h"

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
static void call_staged(const struct gpu_caller *caller)
{
    const struct gpu_bench *gpu = caller->gpu;
    struct perf_job job = caller->job;
    struct perf_input input = job_input(&job);
    size_t element = datatype_bytes(job.type), at = input.at * element;
    const char *from = input.in_recv ? job.recv : job.send;
    char *to = gpu->pinned[input.in_recv];
    if (input.count)
        GPU_MUST(cudaMemcpyAsync(to + at, from + at, input.count * element, cudaMemcpyDeviceToHost,
                                 gpu->stream));
    GPU_MUST(cudaStreamSynchronize(gpu->stream));
    job.send = gpu->pinned[0];
    job.recv = gpu->pinned[1];
    gpu->bench->mpi->start(&job, false);
    if (caller->result)
        GPU_MUST(cudaMemcpyAsync(caller->job.recv, gpu->pinned[1], caller->result,
                                 cudaMemcpyHostToDevice, gpu->stream));
}

#ifdef ALNICO_HAVE_NCCL
static void call_nccl(const struct gpu_caller *caller)
{
    const struct gpu_bench *gpu = caller->gpu;
    if (!caller->compute) {
        nccl_peer_call(gpu->nccl, &caller->job, gpu->stream);
        return;
    }
    GPU_MUST(cudaEventRecord(gpu->forked, gpu->stream));
    GPU_MUST(cudaStreamWaitEvent(gpu->second, gpu->forked, 0));
    nccl_peer_call(gpu->nccl, &caller->job, gpu->second);
    GPU_MUST(cudaEventRecord(gpu->joined, gpu->second));
}
#endif

static void compute(struct gpu_caller *caller)
{
    const struct gpu_bench *gpu = caller->gpu;
    gpu_must(gpu_launch_compute(gpu->multiprocessors, caller->compute, gpu->stream),
             "a kernel that computes");
}

static alnico_status_t call_ours(struct gpu_caller *caller)
{
    const struct perf_options *options = &caller->gpu->bench->options;
    bool nonblocking = options->nonblocking || caller->compute;
    alnico_request_t request = NULL;
    alnico_status_t status = perf_call_ours(&caller->job, nonblocking ? &request : NULL);
    if (status != ALNICO_SUCCESS || !nonblocking)
        return status;
    if (caller->compute)
        compute(caller);
    return alnico_wait(&request);
}

static void next_slot(struct gpu_caller *caller)
{
    size_t at = pool_offset(&caller->layout, caller->next);
    caller->next = (caller->next + 1) % caller->layout.slots;
    caller->job.recv = caller->pool->recv + at;
    caller->job.send = caller->pool->send + at;
}

static alnico_status_t call_slot(struct gpu_caller *caller)
{
    if (caller->peer == OURS)
        return call_ours(caller);
    if (caller->peer == PEER_STAGED)
        call_staged(caller);
#ifdef ALNICO_HAVE_NCCL
    else
        call_nccl(caller);
#endif
    if (caller->compute) {
        compute(caller);
        GPU_MUST(cudaStreamWaitEvent(caller->gpu->stream, caller->gpu->joined, 0));
    }
    return ALNICO_SUCCESS;
}

alnico_status_t caller_call(struct gpu_caller *caller)
{
    next_slot(caller);
    return call_slot(caller);
}

double caller_host_seconds(struct gpu_caller *caller)
{
    const struct perf_options *options = &caller->gpu->bench->options;
    bool nonblocking = options->nonblocking && caller->peer == OURS;
    alnico_request_t request = NULL;
    next_slot(caller);
    double start = measure_now();
    alnico_status_t status =
        nonblocking ? perf_call_ours(&caller->job, &request) : call_slot(caller);
    double seconds = measure_now() - start;
    if (nonblocking && status == ALNICO_SUCCESS)
        status = alnico_wait(&request);
    program_check(status, options->operation->name);
    return seconds;
}

void caller_fill(const struct gpu_caller *caller, bool in_recv)
{
    const struct bench *bench = caller->gpu->bench;
    const struct perf_job *job = &caller->job;
    struct perf_input input = job_input(job);
    struct check check = {
        .seed = bench->options.seed, .ranks = bench->ranks, .type = job->type, .op = job->op};
    char *pool = in_recv ? caller->pool->recv : caller->pool->send;
    if (!input.count || input.in_recv != in_recv)
        return;
    gpu_must(gpu_fill(&check, bench->rank,
                      pool + pool_offset(&caller->layout, 0) + input.at * datatype_bytes(job->type),
                      input.count, caller->layout.stride, caller->layout.slots,
                      caller->gpu->stream),
             "the kernel that writes inputs");
}

void caller_prepare(void *context)
{
    struct gpu_caller *caller = context;
    const struct bench *bench = caller->gpu->bench;
    if (caller->peer == OURS && caller->algorithm)
        program_check(alnico_comm_set_algorithm(caller->job.comm,
                                                bench->options.operation->collective,
                                                caller->algorithm),
                      "alnico_comm_set_algorithm");
    caller_fill(caller, true);
    GPU_MUST(cudaStreamSynchronize(caller->gpu->stream));
}

static void enqueue(struct gpu_caller *caller)
{
    if (caller->graph_count) {
        GPU_MUST(cudaGraphLaunch(caller->graphs[caller->next_graph], caller->gpu->stream));
        caller->next_graph = (caller->next_graph + 1) % caller->graph_count;
        return;
    }
    program_check(caller_call(caller), caller->gpu->bench->options.operation->name);
}

/* Waits for what was enqueued; an error of ours in flight shows here. */
static void wait_for(const struct gpu_caller *caller)
{
    if (caller->peer == OURS)
        program_check(alnico_synchronize(caller->job.comm), "alnico_synchronize");
    GPU_MUST(cudaStreamSynchronize(caller->gpu->stream));
}

static void run(struct gpu_caller *caller, int calls, void (*call)(struct gpu_caller *caller))
{
    GPU_MUST(cudaEventRecord(caller->gpu->begin, caller->gpu->stream));
    for (int i = 0; i < calls; i++)
        call(caller);
    GPU_MUST(cudaEventRecord(caller->gpu->end, caller->gpu->stream));
    wait_for(caller);
}

void caller_run(void *context, int calls)
{
    run(context, calls, enqueue);
}

void caller_compute(void *context, int calls)
{
    run(context, calls, compute);
}

double caller_seconds(void *context)
{
    const struct gpu_caller *caller = context;
    float milliseconds;
    GPU_MUST(cudaEventElapsedTime(&milliseconds, caller->gpu->begin, caller->gpu->end));
    return milliseconds * 1e-3;
}

/* One graph; NULL if ours cannot be captured. */
static cudaGraphExec_t capture(struct gpu_caller *caller, long calls)
{
    cudaStream_t stream = caller->gpu->stream;
    cudaGraph_t graph = NULL;
    cudaGraphExec_t out = NULL;
    alnico_status_t status = ALNICO_SUCCESS;
    GPU_MUST(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    for (long i = 0; i < calls && status == ALNICO_SUCCESS; i++)
        status = caller_call(caller);
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

bool caller_capture(struct gpu_caller *caller, int count, long calls)
{
    caller->next = 0;
    for (int i = 0; i < count; i++) {
        caller->graphs[i] = capture(caller, calls);
        int refused = !caller->graphs[i];
        program_greatest(&refused, 1);
        caller->graph_count = i + (caller->graphs[i] != NULL);
        if (refused) {
            caller_drop_graphs(caller);
            return false;
        }
    }
    wait_for(caller);
    return true;
}

void caller_drop_graphs(struct gpu_caller *caller)
{
    for (int i = 0; i < caller->graph_count; i++)
        GPU_MUST(cudaGraphExecDestroy(caller->graphs[i]));
    caller->graph_count = caller->next_graph = 0;
}
