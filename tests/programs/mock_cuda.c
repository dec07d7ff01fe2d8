/* CUDA, NCCL and the kernels of alnico-perf on the CPU: memory is the host's, streams run at once,
 * a graph is a list of calls. With it the logic of alnico-perf on GPUs runs, and is seen to find
 * wrong results, where there is no GPU. Our communicators become ones on the CPU.
 * MOCK_FAULT=value|after|before|bits spoils what an eager call of ours wrote. */
#include "tests/programs/mock_cuda.h"

#include "tools/perf/gpu/gpu.h"
#include "tools/perf/operations.h"
#include "tools/perf/values.h"

#include <alnico/mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#pragma GCC diagnostic ignored "-Wunused-parameter"

enum { CALLS = 1024 };

/* One of ours, a collective of NCCL's, a message or the end of a group of them. */
struct call {
    enum { OURS, COLLECTIVE, SEND, RECV, GROUP_END } what;
    struct perf_job job; /* of ours */
    int id;              /* PERF_ of a collective */
    const void *send;
    void *recv;
    size_t count, element;
    int other; /* the root, or the other rank of a message */
};

struct graph {
    int count;
    struct call calls[CALLS];
};

static struct graph *capturing;
static bool grouped; /* between ncclGroupStart and ncclGroupEnd */

/* What is no part of a capture must not be called in one. */
static void refuse_capture(const char *what)
{
    if (!capturing)
        return;
    fprintf(stderr, "mock: %s in a capture\n", what);
    abort();
}

/* ---- Memory, streams, events ---- */

cudaError_t cudaMalloc(void **out, size_t bytes)
{
    refuse_capture("cudaMalloc");
    *out = aligned_alloc(4096, (bytes + 4095) / 4096 * 4096);
    return *out ? cudaSuccess : cudaErrorMemoryAllocation;
}

cudaError_t cudaFree(void *memory)
{
    free(memory);
    return cudaSuccess;
}

cudaError_t cudaMallocHost(void **out, size_t bytes)
{
    return cudaMalloc(out, bytes);
}

cudaError_t cudaFreeHost(void *memory)
{
    return cudaFree(memory);
}

cudaError_t cudaMemset(void *memory, int value, size_t bytes)
{
    memset(memory, value, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemsetAsync(void *memory, int value, size_t bytes, cudaStream_t stream)
{
    refuse_capture("cudaMemsetAsync");
    return cudaMemset(memory, value, bytes);
}

cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind)
{
    memcpy(to, from, bytes);
    return cudaSuccess;
}

cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, enum cudaMemcpyKind kind,
                            cudaStream_t stream)
{
    refuse_capture("cudaMemcpyAsync");
    return cudaMemcpy(to, from, bytes, kind);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned flags)
{
    *out = malloc(1);
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    free(stream);
    return cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    refuse_capture("cudaStreamSynchronize");
    return cudaSuccess;
}

cudaError_t cudaDeviceSynchronize(void)
{
    refuse_capture("cudaDeviceSynchronize");
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned flags)
{
    return cudaSuccess;
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    *out = calloc(1, sizeof(struct timespec));
    return cudaSuccess;
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned flags)
{
    return cudaEventCreate(out);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    free(event);
    return cudaSuccess;
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    clock_gettime(CLOCK_MONOTONIC, (struct timespec *)event);
    return cudaSuccess;
}

cudaError_t cudaEventElapsedTime(float *milliseconds, cudaEvent_t begin, cudaEvent_t end)
{
    const struct timespec *a = (struct timespec *)begin, *b = (struct timespec *)end;
    *milliseconds =
        (float)((double)(b->tv_sec - a->tv_sec) * 1e3 + (double)(b->tv_nsec - a->tv_nsec) * 1e-6);
    return cudaSuccess;
}

/* ---- The device: four of them, with a small cache, so that few slots are used ---- */

cudaError_t cudaGetDeviceCount(int *count)
{
    *count = 4;
    return cudaSuccess;
}

cudaError_t cudaSetDevice(int device)
{
    return cudaSuccess;
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *out, int device)
{
    *out = (struct cudaDeviceProp){.name = "Mock", .multiProcessorCount = 2, .l2CacheSize = 65536};
    return cudaSuccess;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetLastError(void)
{
    return cudaSuccess;
}

/* ---- Calls and graphs ---- */

alnico_status_t __real_perf_call_ours(const struct perf_job *, alnico_request_t *);
alnico_status_t __wrap_perf_call_ours(const struct perf_job *, alnico_request_t *);
alnico_status_t __real_alnico_comm_set_algorithm(alnico_comm_t, alnico_collective_t, const char *);
alnico_status_t __wrap_alnico_comm_set_algorithm(alnico_comm_t, alnico_collective_t, const char *);
alnico_status_t __real_alnico_comm_create_mpi(MPI_Comm, alnico_device_t, void *, alnico_comm_t *);
alnico_status_t __wrap_alnico_comm_create_mpi(MPI_Comm, alnico_device_t, void *, alnico_comm_t *);

alnico_status_t __real_alnico_comm_create(const alnico_bootstrap_t *, alnico_device_t, void *,
                                          alnico_comm_t *);
alnico_status_t __wrap_alnico_comm_create(const alnico_bootstrap_t *, alnico_device_t, void *,
                                          alnico_comm_t *);

/* NCCL moves its data by MPI, which alnico-perf initialises only where it compares with it. */
__attribute__((constructor)) static void begin_mpi(void)
{
    int level;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &level);
}

void __real_program_ranks_close(void);
void __wrap_program_ranks_close(void);

void __wrap_program_ranks_close(void)
{
    __real_program_ranks_close();
    MPI_Finalize();
}

/* NCCL adds float32 and moves anything, by MPI. */
static void run_collective(const struct call *c)
{
    int rank, count = (int)c->count, bytes = (int)(c->count * c->element);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    const void *send = c->send == c->recv ? MPI_IN_PLACE : c->send;
    switch (c->id) {
    case ALNICO_ALLREDUCE:
        MPI_Allreduce(send, c->recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        return;
    case ALNICO_REDUCE:
        MPI_Reduce(rank == c->other ? send : c->send, c->recv, count, MPI_FLOAT, MPI_SUM, c->other,
                   MPI_COMM_WORLD);
        return;
    case ALNICO_BROADCAST:
        MPI_Bcast(c->recv, bytes, MPI_BYTE, c->other, MPI_COMM_WORLD);
        return;
    case ALNICO_ALLGATHER:
        send = c->send == (char *)c->recv + rank * bytes ? MPI_IN_PLACE : c->send;
        MPI_Allgather(send, bytes, MPI_BYTE, c->recv, bytes, MPI_BYTE, MPI_COMM_WORLD);
        return;
    case ALNICO_GATHER:
        send = c->send == (char *)c->recv + rank * bytes ? MPI_IN_PLACE : c->send;
        MPI_Gather(rank == c->other ? send : c->send, bytes, MPI_BYTE, c->recv, bytes, MPI_BYTE,
                   c->other, MPI_COMM_WORLD);
        return;
    case ALNICO_SCATTER:
        MPI_Scatter(c->send, bytes, MPI_BYTE,
                    c->recv == (const char *)c->send + rank * bytes ? MPI_IN_PLACE : c->recv, bytes,
                    MPI_BYTE, c->other, MPI_COMM_WORLD);
        return;
    case ALNICO_ALLTOALL:
        MPI_Alltoall(c->send, bytes, MPI_BYTE, c->recv, bytes, MPI_BYTE, MPI_COMM_WORLD);
        return;
    default: { /* a reduce_scatter's recv may be a block of its send */
        int ranks;
        MPI_Comm_size(MPI_COMM_WORLD, &ranks);
        float *copy = malloc((size_t)(ranks * bytes));
        memcpy(copy, c->send, (size_t)(ranks * bytes));
        MPI_Reduce_scatter_block(copy, c->recv, count, MPI_FLOAT, MPI_SUM, MPI_COMM_WORLD);
        free(copy);
    }
    }
}

/* Messages stay open until the end of their group; one by itself is such a group. */
static bool run_call(const struct call *c)
{
    static MPI_Request open[CALLS];
    static MPI_Status statuses[CALLS];
    static int count;
    int bytes = (int)(c->count * c->element);
    if (c->what == OURS)
        return __real_perf_call_ours(&c->job, NULL) == ALNICO_SUCCESS;
    if (c->what == COLLECTIVE)
        run_collective(c);
    if (c->what == SEND)
        MPI_Isend(c->send, bytes, MPI_BYTE, c->other, 1, MPI_COMM_WORLD, &open[count++]);
    if (c->what == RECV)
        MPI_Irecv(c->recv, bytes, MPI_BYTE, c->other, 1, MPI_COMM_WORLD, &open[count++]);
    if (c->what == GROUP_END) {
        MPI_Waitall(count, open, statuses);
        count = 0;
    }
    return true;
}

/* Keeps the call if a graph is captured. */
static bool kept(struct call call)
{
    if (!capturing)
        return false;
    if (capturing->count == CALLS)
        abort();
    capturing->calls[capturing->count++] = call;
    return true;
}

static void spoil(const char *fault, const struct perf_job *job)
{
    char *recv = job->recv;
    size_t bytes = job_result_count(job) * value_bytes(job->type);
    if (strcmp(fault, "value") == 0 && bytes)
        recv[bytes - 1] ^= 1;
    if (strcmp(fault, "after") == 0)
        recv[bytes] = 0;
    if (strcmp(fault, "before") == 0)
        recv[-1] = 0;
    if (strcmp(fault, "bits") == 0 && job->rank == 1)
        recv[0] ^= 1;
}

alnico_status_t __wrap_perf_call_ours(const struct perf_job *job, alnico_request_t *request)
{
    if (kept((struct call){.what = OURS, .job = *job}))
        return ALNICO_SUCCESS;
    alnico_status_t status = __real_perf_call_ours(job, request);
    if (getenv("MOCK_FAULT"))
        spoil(getenv("MOCK_FAULT"), job);
    return status;
}

/* The CPU does not know a GPU's algorithms. */
alnico_status_t __wrap_alnico_comm_set_algorithm(alnico_comm_t comm, alnico_collective_t collective,
                                                 const char *name)
{
    alnico_status_t status = __real_alnico_comm_set_algorithm(comm, collective, name);
    return status == ALNICO_ERROR_ARGUMENT ? ALNICO_ERROR_UNSUPPORTED : status;
}

alnico_status_t __wrap_alnico_comm_create_mpi(MPI_Comm mpi, alnico_device_t device, void *stream,
                                              alnico_comm_t *out)
{
    return __real_alnico_comm_create_mpi(mpi, ALNICO_DEVICE_CPU, NULL, out);
}

alnico_status_t __wrap_alnico_comm_create(const alnico_bootstrap_t *ranks, alnico_device_t device,
                                          void *stream, alnico_comm_t *out)
{
    return __real_alnico_comm_create(ranks, ALNICO_DEVICE_CPU, NULL, out);
}

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, enum cudaStreamCaptureMode mode)
{
    refuse_capture("cudaStreamBeginCapture");
    capturing = calloc(1, sizeof *capturing);
    return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t *out)
{
    *out = (cudaGraph_t)capturing;
    capturing = NULL;
    return cudaSuccess;
}

cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t *out, cudaGraph_t graph,
                                          unsigned long long flags)
{
    *out = malloc(sizeof(struct graph));
    memcpy(*out, graph, sizeof(struct graph));
    return cudaSuccess;
}

cudaError_t cudaGraphUpload(cudaGraphExec_t graph, cudaStream_t stream)
{
    return cudaSuccess;
}

cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t stream)
{
    const struct graph *graph = (struct graph *)handle;
    for (int i = 0; i < graph->count; i++)
        if (!run_call(&graph->calls[i]))
            return cudaErrorUnknown;
    return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph)
{
    free(graph);
    return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t graph)
{
    free(graph);
    return cudaSuccess;
}

/* ---- NCCL ---- */

/* Its header has no prototypes of these. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

ncclResult_t ncclGetUniqueId(ncclUniqueId *id)
{
    memset(id, 0, sizeof *id);
    return ncclSuccess;
}

ncclResult_t ncclCommInitRank(ncclComm_t *comm, int ranks, ncclUniqueId id, int rank)
{
    *comm = malloc(1);
    return ncclSuccess;
}

ncclResult_t ncclCommDestroy(ncclComm_t comm)
{
    free(comm);
    return ncclSuccess;
}

ncclResult_t ncclMemAlloc(void **out, size_t bytes)
{
    return cudaMalloc(out, bytes) == cudaSuccess ? ncclSuccess : ncclSystemError;
}

ncclResult_t ncclMemFree(void *memory)
{
    free(memory);
    return ncclSuccess;
}

ncclResult_t ncclCommWindowRegister(ncclComm_t comm, void *memory, size_t bytes,
                                    ncclWindow_t *window, int flags)
{
    *window = malloc(1);
    return ncclSuccess;
}

ncclResult_t ncclCommWindowDeregister(ncclComm_t comm, ncclWindow_t window)
{
    free(window);
    return ncclSuccess;
}

static size_t element_of(ncclDataType_t type)
{
    static const size_t bytes[] = {1, 1, 4, 4, 8, 8, 2, 4, 8, 2};
    return bytes[type];
}

static ncclResult_t keep_or_run(struct call call)
{
    if (!kept(call))
        run_call(&call);
    return ncclSuccess;
}

static ncclResult_t collective(int id, const void *send, void *recv, size_t count,
                               ncclDataType_t type, int root)
{
    return keep_or_run((struct call){.what = COLLECTIVE,
                                     .id = id,
                                     .send = send,
                                     .recv = recv,
                                     .count = count,
                                     .element = element_of(type),
                                     .other = root});
}

ncclResult_t ncclAllReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return collective(ALNICO_ALLREDUCE, send, recv, count, type, 0);
}

ncclResult_t ncclReduce(const void *send, void *recv, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream)
{
    return collective(ALNICO_REDUCE, send, recv, count, type, root);
}

ncclResult_t ncclBroadcast(const void *send, void *recv, size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream)
{
    return collective(ALNICO_BROADCAST, send, recv, count, type, root);
}

ncclResult_t ncclAllGather(const void *send, void *recv, size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream)
{
    return collective(ALNICO_ALLGATHER, send, recv, count, type, 0);
}

ncclResult_t ncclReduceScatter(const void *send, void *recv, size_t count, ncclDataType_t type,
                               ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream)
{
    return collective(ALNICO_REDUCE_SCATTER, send, recv, count, type, 0);
}

ncclResult_t ncclGather(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                        ncclComm_t comm, cudaStream_t stream)
{
    return collective(ALNICO_GATHER, send, recv, count, type, root);
}

ncclResult_t ncclScatter(const void *send, void *recv, size_t count, ncclDataType_t type, int root,
                         ncclComm_t comm, cudaStream_t stream)
{
    return collective(ALNICO_SCATTER, send, recv, count, type, root);
}

ncclResult_t ncclAlltoAll(const void *send, void *recv, size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream)
{
    return collective(ALNICO_ALLTOALL, send, recv, count, type, 0);
}

ncclResult_t ncclGroupStart(void)
{
    grouped = true;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd(void)
{
    grouped = false;
    return keep_or_run((struct call){.what = GROUP_END});
}

ncclResult_t ncclSend(const void *send, size_t count, ncclDataType_t type, int to, ncclComm_t comm,
                      cudaStream_t stream)
{
    keep_or_run((struct call){
        .what = SEND, .send = send, .count = count, .element = element_of(type), .other = to});
    return grouped ? ncclSuccess : keep_or_run((struct call){.what = GROUP_END});
}

ncclResult_t ncclRecv(void *recv, size_t count, ncclDataType_t type, int from, ncclComm_t comm,
                      cudaStream_t stream)
{
    keep_or_run((struct call){
        .what = RECV, .recv = recv, .count = count, .element = element_of(type), .other = from});
    return grouped ? ncclSuccess : keep_or_run((struct call){.what = GROUP_END});
}

/* ---- The kernels ---- */

cudaError_t gpu_fill(const struct check *check, int rank, void *out, size_t count, size_t stride,
                     int slots, cudaStream_t stream)
{
    refuse_capture("gpu_fill");
    for (int slot = 0; slot < slots; slot++)
        check_fill(check, rank, (char *)out + (size_t)slot * stride, count);
    return cudaSuccess;
}

cudaError_t gpu_hash(const void *memory, size_t bytes, struct gpu_findings *findings,
                     cudaStream_t stream)
{
    findings->hash += check_hash(memory, bytes);
    return cudaSuccess;
}

cudaError_t gpu_compare(const struct check *check, const void *result, size_t at, size_t count,
                        struct gpu_findings *findings, cudaStream_t stream)
{
    struct check_fault fault;
    size_t wrong = check_compare(check, (const char *)result + at * value_bytes(check->type), 0,
                                 count, &fault);
    findings->wrong += wrong;
    if (wrong && at + fault.index < findings->first)
        findings->first = at + fault.index;
    return cudaSuccess;
}

cudaError_t gpu_count_overruns(const void *guard, size_t bytes, struct gpu_findings *findings,
                               cudaStream_t stream)
{
    for (size_t i = 0; i < bytes; i++)
        findings->overruns += ((const unsigned char *)guard)[i] != GPU_POISON;
    return cudaSuccess;
}

cudaError_t gpu_launch_empty(cudaStream_t stream)
{
    return cudaSuccess;
}

cudaError_t gpu_launch_compute(int blocks, long steps, cudaStream_t stream)
{
    volatile double sink = 1;
    for (long i = 0; i < steps; i++)
        sink = sink * 0.999 + 1e-3;
    return cudaSuccess;
}
