/*
 * CUDA as a device: memory of the GPU that is current on the calling thread, the user's
 * cudaStream_t (NULL is the legacy default stream), CUDA's events, and flags that are words in
 * pinned host memory. Any thread may call.
 *
 * A capture that is under way on any thread forbids calls such as cudaEventQuery to all of them,
 * unless the caller is in the relaxed mode: calls that have nothing to do with a capture are made
 * in it.
 */
#include "device/device.h"

#include "base/status.h"
#include "device/cuda/driver.h"
#include "device/cuda/math.h"
#include "device/cuda/parts.h"

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

enum { DEVICES_MOST = 64 };

/* The device of each of the runtime's contexts: asking the driver for the context that is current,
 * and looking it up here, takes a fraction of what cudaGetDevice does. Entries are only added. */
static struct {
    pthread_mutex_t lock;
    atomic_int count;
    struct {
        CUcontext context;
        int device;
    } entries[DEVICES_MOST];
} contexts = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* -1: not among them. */
static int device_of(CUcontext context)
{
    int count = atomic_load_explicit(&contexts.count, memory_order_acquire);
    for (int i = 0; i < count; i++)
        if (contexts.entries[i].context == context)
            return contexts.entries[i].device;
    return -1;
}

static int ask_runtime(void)
{
    int index = 0;
    cudaGetDevice(&index);
    return index;
}

/* A thread without a context gets the one that the runtime would give it at its next call: the
 * driver's functions need it. */
static int cuda_current(void)
{
    CUcontext context = NULL;
    if (!cuda_in_use() || cuda_driver()->cuCtxGetCurrent(&context) != CUDA_SUCCESS)
        return ask_runtime();
    int index = context ? device_of(context) : -1;
    if (index < 0)
        index = ask_runtime();
    if (!context)
        cudaSetDevice(index);
    return index;
}

/* Retained, so that its handle does not become another context's. */
static alnico_status_t learn_context(const struct cuda_driver *driver, int index)
{
    CUdevice device;
    CUcontext context;
    TRY(cuda_driver_status(driver->cuDeviceGet(&device, index), "cuDeviceGet"));
    TRY(cuda_driver_status(driver->cuDevicePrimaryCtxRetain(&context, device),
                           "cuDevicePrimaryCtxRetain"));
    pthread_mutex_lock(&contexts.lock);
    int count = atomic_load(&contexts.count);
    if (device_of(context) < 0 && count < DEVICES_MOST) {
        contexts.entries[count].context = context;
        contexts.entries[count].device = index;
        atomic_store_explicit(&contexts.count, count + 1, memory_order_release);
    }
    pthread_mutex_unlock(&contexts.lock);
    return ALNICO_SUCCESS;
}

static void cuda_identify(char *out, size_t bytes)
{
    if (cudaDeviceGetPCIBusId(out, (int)bytes, cuda_current()) != cudaSuccess)
        *out = '\0';
}

static alnico_status_t cuda_enter(int index)
{
    return cuda_status(cudaSetDevice(index), "cudaSetDevice");
}

/* The driver loads what a copy or an operation on a word needs when it first does it, and may then
 * wait for kernels that spin. So each is done once before any does. What it takes is kept for the
 * process's life, because giving memory back waits as well. */
static alnico_status_t use_once(void)
{
    struct device_flag *flag;
    void *memory, *pinned, *stream;
    TRY(cuda_pinned_reserve());
    TRY(device_cuda.flag_create(&flag));
    TRY(device_cuda.alloc(64, &memory));
    TRY(device_cuda.pinned_alloc(64, &pinned));
    TRY(device_cuda.stream_create(&stream));
    memset(pinned, 0, 64);
    alnico_status_t status = device_cuda.copy(memory, pinned, 64, stream);
    if (status == ALNICO_SUCCESS)
        status = device_cuda.copy(pinned, memory, 64, stream);
    if (status == ALNICO_SUCCESS)
        status = device_cuda.stream_raise(stream, flag, 1);
    if (status == ALNICO_SUCCESS)
        status = device_cuda.stream_await(stream, flag, 1);
    if (status == ALNICO_SUCCESS)
        status = device_cuda.stream_synchronize(stream);
    device_cuda.stream_destroy(stream);
    device_cuda.flag_destroy(flag);
    return status;
}

/* Once for each device; a second thread may do it again, without harm. */
static alnico_status_t cuda_prepare(void)
{
    static atomic_bool prepared[DEVICES_MOST];
    int index = cuda_current();
    if (index < DEVICES_MOST && atomic_load(&prepared[index]))
        return ALNICO_SUCCESS;
    const struct cuda_driver *driver = cuda_driver();
    if (!driver)
        return ALNICO_ERROR_UNSUPPORTED;
    int error;
    RELAXED(error, math_cuda_load());
    TRY(cuda_status((cudaError_t)error, "loading the kernels of reductions"));
    RELAXED(error, flag_cuda_load());
    TRY(cuda_status((cudaError_t)error, "loading the kernels of flags"));
    TRY(use_once());
    TRY(learn_context(driver, index));
    if (index < DEVICES_MOST)
        atomic_store(&prepared[index], true);
    return ALNICO_SUCCESS;
}

static alnico_status_t cuda_check_memory(const void *memory, const char *name, const char *who)
{
    struct cuda_pointer pointer;
    int here = cuda_current();
    if (!cuda_driver())
        return ALNICO_ERROR_UNSUPPORTED;
    CUresult result = cuda_pointer_find(memory, &pointer);
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE)
        return cuda_driver_status(result, "cuPointerGetAttributes");
    if (result != CUDA_SUCCESS || (pointer.type != CU_MEMORYTYPE_DEVICE && !pointer.managed))
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "%s: %s %p is host memory, and the communicator is on CUDA", who, name,
                         memory);
    if (!pointer.managed && pointer.owner != here)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "%s: %s %p is memory of GPU %d, and the communicator is on GPU %d", who,
                         name, memory, pointer.owner, here);
    return ALNICO_SUCCESS;
}

static bool cuda_extent(const void *memory, uintptr_t *from, size_t *bytes)
{
    const struct cuda_driver *driver = cuda_driver();
    CUdeviceptr base = 0;
    if (!driver || driver->cuMemGetAddressRange(&base, bytes, (CUdeviceptr)(uintptr_t)memory))
        return false;
    *from = (uintptr_t)base;
    return true;
}

/* If a capture elsewhere forbids to use the stream at all (the legacy one), the use itself says so. */
static uint64_t cuda_capturing(void *stream)
{
    enum cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    unsigned long long number = 0;
#if CUDART_VERSION >= 13000
    cudaError_t error = cudaStreamGetCaptureInfo(stream, &status, &number, NULL, NULL, NULL, NULL);
#else
    cudaError_t error = cudaStreamGetCaptureInfo(stream, &status, &number, NULL, NULL, NULL);
#endif
    if (error != cudaSuccess) {
        cudaGetLastError();
        return 0;
    }
    if (status == cudaStreamCaptureStatusNone)
        return 0;
    return number ? number : UINT64_MAX; /* a capture that is broken has none */
}

static alnico_status_t cuda_check_stream(void *stream, const char *who)
{
    int owner = -1, here = cuda_current();
    if (!stream || stream == cudaStreamLegacy || stream == cudaStreamPerThread)
        return ALNICO_SUCCESS;
    if (cuda_capturing(stream)) /* the driver does not name its GPU meanwhile */
        return ALNICO_SUCCESS;
    cudaError_t error = cudaStreamGetDevice(stream, &owner);
    if (error != cudaSuccess) {
        cudaGetLastError();
        return error_set(ALNICO_ERROR_ARGUMENT, "%s: stream %p is not a CUDA stream: %s", who,
                         stream, cudaGetErrorString(error));
    }
    if (owner != here)
        return error_set(ALNICO_ERROR_ARGUMENT,
                         "%s: stream %p is of GPU %d, and GPU %d is the calling thread's", who,
                         stream, owner, here);
    return ALNICO_SUCCESS;
}

static alnico_status_t cuda_copy(void *dst, const void *src, size_t bytes, void *stream)
{
    if (bytes == 0)
        return ALNICO_SUCCESS;
    return cuda_status(cudaMemcpyAsync(dst, src, bytes, cudaMemcpyDefault, stream),
                       "cudaMemcpyAsync");
}

static alnico_status_t cuda_clear(void *memory, size_t bytes, void *stream)
{
    if (bytes == 0)
        return ALNICO_SUCCESS;
    return cuda_status(cudaMemsetAsync(memory, 0, bytes, stream), "cudaMemsetAsync");
}

static alnico_status_t cuda_stamp(uint64_t *out, void *stream)
{
    return cuda_status((cudaError_t)flag_cuda_stamp(out, stream), "launching a stamp");
}

static alnico_status_t cuda_reduce(void *dst, const void *a, const void *b, size_t count,
                                   alnico_datatype_t type, alnico_op_t op, void *stream)
{
    return cuda_status((cudaError_t)math_cuda_reduce(dst, a, b, count, (int)type, (int)op, stream),
                       "launching a reduction");
}

static alnico_status_t cuda_divide(void *dst, const void *src, size_t count, alnico_datatype_t type,
                                   int ranks, void *stream)
{
    return cuda_status((cudaError_t)math_cuda_divide(dst, src, count, (int)type, ranks, stream),
                       "launching a division");
}

static alnico_status_t cuda_scale(void *dst, const void *src, size_t count, alnico_datatype_t type,
                                  const struct device_scalar *factor, void *stream)
{
    return cuda_status(
        (cudaError_t)math_cuda_scale(dst, src, count, (int)type, factor->bits, factor->at, stream),
        "launching a product");
}

static alnico_status_t cuda_stream_alloc(size_t bytes, void **out, void *stream)
{
    *out = NULL;
    return cuda_status(cudaMallocAsync(out, bytes, stream), "cudaMallocAsync");
}

static void cuda_stream_free(void *memory, void *stream)
{
    cudaFreeAsync(memory, stream);
}

static alnico_status_t cuda_graph_begin(void *stream)
{
    return cuda_status(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal),
                       "cudaStreamBeginCapture");
}

static alnico_status_t cuda_graph_end(void *stream, struct device_graph **out)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t ready = NULL;
    cudaError_t error = cudaStreamEndCapture(stream, &graph);
    if (!out) { /* what was captured is not wanted, not even why it failed */
        cudaGetLastError();
        if (graph)
            cudaGraphDestroy(graph);
        return ALNICO_SUCCESS;
    }
    *out = NULL;
    if (error != cudaSuccess)
        return cuda_status(error, "cudaStreamEndCapture");
    error = cudaGraphInstantiate(&ready, graph, cudaGraphInstantiateFlagUseNodePriority);
    cudaGraphDestroy(graph);
    if (error == cudaSuccess)
        error = cudaGraphUpload(ready, stream);
    if (error != cudaSuccess && ready)
        cudaGraphExecDestroy(ready);
    if (error == cudaSuccess)
        *out = (struct device_graph *)ready;
    return cuda_status(error, "instantiating a graph");
}

static alnico_status_t cuda_graph_launch(struct device_graph *graph, void *stream)
{
    return cuda_status(cudaGraphLaunch((cudaGraphExec_t)graph, stream), "cudaGraphLaunch");
}

static void cuda_graph_destroy(struct device_graph *graph)
{
    if (graph)
        cudaGraphExecDestroy((cudaGraphExec_t)graph);
}

static alnico_status_t create_stream(bool urgent, void **out)
{
    int least = 0, greatest = 0;
    cudaStream_t stream = NULL;
    *out = NULL;
    TRY(cuda_status(cudaDeviceGetStreamPriorityRange(&least, &greatest),
                    "cudaDeviceGetStreamPriorityRange"));
    const int priority = urgent ? greatest : least > greatest + 1 ? least - 1 : least;
    cudaError_t error;
    RELAXED(error, cudaStreamCreateWithPriority(&stream, cudaStreamNonBlocking, priority));
    TRY(cuda_status(error, "cudaStreamCreateWithPriority"));
    *out = stream;
    return ALNICO_SUCCESS;
}

static alnico_status_t cuda_stream_create(void **out)
{
    return create_stream(true, out);
}

static alnico_status_t cuda_work_stream_create(void **out)
{
    return create_stream(false, out);
}

static void cuda_stream_destroy(void *stream)
{
    if (stream)
        cudaStreamDestroy(stream);
}

static alnico_status_t cuda_stream_synchronize(void *stream)
{
    return cuda_status(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
}

static cudaEvent_t event_of(struct device_event *event)
{
    return (cudaEvent_t)event;
}

static alnico_status_t cuda_event_create(struct device_event **out)
{
    cudaEvent_t event = NULL;
    cudaError_t error;
    RELAXED(error, cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    *out = (struct device_event *)event;
    return cuda_status(error, "cudaEventCreateWithFlags");
}

static void cuda_event_destroy(struct device_event *event)
{
    if (event)
        cudaEventDestroy(event_of(event));
}

static alnico_status_t cuda_event_record(struct device_event *event, void *stream)
{
    return cuda_status(cudaEventRecord(event_of(event), stream), "cudaEventRecord");
}

/* One that failed is over: event_synchronize says how. */
static bool cuda_event_complete(struct device_event *event)
{
    cudaError_t error;
    RELAXED(error, cudaEventQuery(event_of(event)));
    if (error != cudaSuccess)
        cudaGetLastError();
    return error != cudaErrorNotReady;
}

static alnico_status_t cuda_event_synchronize(struct device_event *event)
{
    cudaError_t error;
    RELAXED(error, cudaEventSynchronize(event_of(event)));
    return cuda_status(error, "cudaEventSynchronize");
}

static alnico_status_t cuda_stream_wait(void *stream, struct device_event *event)
{
    return cuda_status(cudaStreamWaitEvent(stream, event_of(event), 0), "cudaStreamWaitEvent");
}

const struct device_ops device_cuda = {
    .name = "cuda",
    .kind = ALNICO_DEVICE_CUDA,
    .host_accessible = false,
    .probe = cuda_probe,
    .prepare = cuda_prepare,
    .current = cuda_current,
    .enter = cuda_enter,
    .identify = cuda_identify,
    .check_memory = cuda_check_memory,
    .check_stream = cuda_check_stream,
    .extent = cuda_extent,
    .capturing = cuda_capturing,
    .copy_raise = cuda_copy_raise,
    .await_copy = cuda_await_copy,
    .alloc = cuda_alloc,
    .free = cuda_free,
    .memory = cuda_memory,
    .pinned_alloc = cuda_pinned_alloc,
    .pinned_free = cuda_pinned_free,
    .copy = cuda_copy,
    .clear = cuda_clear,
    .stamp = cuda_stamp,
    .reduce = cuda_reduce,
    .divide = cuda_divide,
    .scale = cuda_scale,
    .stream_alloc = cuda_stream_alloc,
    .stream_free = cuda_stream_free,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .work_stream_create = cuda_work_stream_create,
    .graph_begin = cuda_graph_begin,
    .graph_end = cuda_graph_end,
    .graph_launch = cuda_graph_launch,
    .graph_destroy = cuda_graph_destroy,
    .stream_synchronize = cuda_stream_synchronize,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .event_record = cuda_event_record,
    .event_complete = cuda_event_complete,
    .event_synchronize = cuda_event_synchronize,
    .stream_wait = cuda_stream_wait,
    .flag_create = cuda_flag_create,
    .flag_destroy = cuda_flag_destroy,
    .flag_raise = cuda_flag_raise,
    .flag_read = cuda_flag_read,
    .flag_wait = cuda_flag_wait,
    .stream_raise = cuda_stream_raise,
    .stream_await = cuda_stream_await,
};
