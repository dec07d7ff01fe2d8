/*
 * What launching a kernel costs the host, and how fast launches follow each other: by the runtime's
 * and the driver's functions, with and without the attribute that lets a kernel be launched while
 * the one before it ends, for parameters of several sizes, and as a graph; and what the library's
 * other steps of a call cost. Kernels do nothing.
 *
 * launch_cost [--processes N] [--json FILE]
 *
 * Each process has a GPU of its own and measures at the same time as the others; the figures are
 * process 0's, and the slowest one's. `host` is the median of single launches with a few in the
 * stream's queue, `period` a launch's share of 2000 back to back, the longer of the host's and the
 * stream's time. Needs no MPI. Less than 15 s.
 */
#include "benchmarks/launch_cost.h"

#include "base/replace.h"
#include "tools/common/program.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime_api.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
    PROCESSES = 8,
    ROWS = 64,
    DEPTH = 8, /* launches between two looks at the stream, for the host's time */
    SAMPLES = 2000,
    BACK_TO_BACK = 2000,
    REPEATS = 5,
    STEP_CALLS = 20000
};

/* ---- What all processes see ---- */

struct row {
    char what[72];
    bool step; /* nanoseconds of a call that is not a launch */
    double host[PROCESSES], period[PROCESSES];
};

static struct shared {
    pthread_barrier_t barrier;
    struct row rows[ROWS];
    int count;
    char gpu[256], driver[32];
} * shared;

static int process, processes = 1;

static void together(void)
{
    pthread_barrier_wait(&shared->barrier);
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* ---- The driver ---- */

#define FUNCTIONS(F)                                                                               \
    F(cuLaunchKernel, 4000)                                                                        \
    F(cuLaunchKernelEx, 11060)                                                                     \
    F(cuCtxGetCurrent, 4000)                                                                       \
    F(cuStreamIsCapturing, 10000)                                                                  \
    F(cuPointerGetAttribute, 4000)                                                                 \
    F(cuPointerGetAttributes, 7000)                                                                \
    F(cuMemGetAddressRange, 3020)                                                                  \
    F(cuGraphLaunch, 10000)

#define MEMBER(name, version) PFN_##name##_v##version name;
static struct {
    FUNCTIONS(MEMBER)
} driver;

static void must(int error, const char *what)
{
    if (!error)
        return;
    fprintf(stderr, "process %d: %s: error %d (%s)\n", process, what, error,
            cudaGetErrorString((cudaError_t)error));
    _exit(1);
}

static void find_driver(void)
{
    void *function;
    enum cudaDriverEntryPointQueryResult found;
#define FIND(name, version)                                                                        \
    must(cudaGetDriverEntryPointByVersion(#name, &function, version, cudaEnableDefault, &found),   \
         #name);                                                                                   \
    must(found != cudaDriverEntryPointSuccess, #name);                                             \
    memcpy(&driver.name, &function, sizeof function);
    FUNCTIONS(FIND)
}

/* ---- Ways to launch ---- */

enum way {
    RUNTIME,
    RUNTIME_EX,
    DRIVER,
    DRIVER_EX,
    DRIVER_EX_KERNEL, /* by the handle that is of no context */
    DRIVER_PACKED,    /* parameters as one buffer */
    GRAPH,
    GRAPH_UPDATED
};

struct launch {
    enum way way;
    bool dependent;
    const void *symbol;
    int parameters, bytes; /* each */
    cudaStream_t stream;
    CUfunction function;
    CUfunction kernel;
    cudaGraphExec_t graph;
    cudaGraphNode_t node;
    char values[512];
    void *pointers[8];
};

static CUlaunchConfig driver_config(const struct launch *l, CUlaunchAttribute *attribute)
{
    *attribute = (CUlaunchAttribute){.id = CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION,
                                     .value.programmaticStreamSerializationAllowed = 1};
    return (CUlaunchConfig){.gridDimX = 1,
                            .gridDimY = 1,
                            .gridDimZ = 1,
                            .blockDimX = 32,
                            .blockDimY = 1,
                            .blockDimZ = 1,
                            .hStream = l->stream,
                            .attrs = attribute,
                            .numAttrs = l->dependent};
}

static int launch_runtime_ex(struct launch *l)
{
    cudaLaunchAttribute attribute = {.id = cudaLaunchAttributeProgrammaticStreamSerialization,
                                     .val.programmaticStreamSerializationAllowed = 1};
    cudaLaunchConfig_t config = {.gridDim = {1, 1, 1},
                                 .blockDim = {32, 1, 1},
                                 .stream = l->stream,
                                 .attrs = &attribute,
                                 .numAttrs = l->dependent};
    return (int)cudaLaunchKernelExC(&config, l->symbol, l->pointers);
}

static int launch_packed(struct launch *l)
{
    size_t bytes = (size_t)(l->parameters * l->bytes);
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, l->values, CU_LAUNCH_PARAM_BUFFER_SIZE, &bytes,
                     CU_LAUNCH_PARAM_END};
    CUlaunchAttribute attribute;
    CUlaunchConfig config = driver_config(l, &attribute);
    return (int)driver.cuLaunchKernelEx(&config, l->function, NULL, extra);
}

static int launch_graph(struct launch *l)
{
    struct cudaKernelNodeParams node = {.func = (void *)(size_t)l->symbol,
                                        .gridDim = {1, 1, 1},
                                        .blockDim = {32, 1, 1},
                                        .kernelParams = l->pointers};
    if (l->way == GRAPH_UPDATED) {
        cudaError_t error = cudaGraphExecKernelNodeSetParams(l->graph, l->node, &node);
        if (error != cudaSuccess)
            return (int)error;
    }
    return (int)driver.cuGraphLaunch(l->graph, l->stream);
}

static int launch(struct launch *l)
{
    CUlaunchAttribute attribute;
    CUlaunchConfig config;
    switch (l->way) {
    case RUNTIME:
        return (int)cudaLaunchKernel(l->symbol, (dim3){1, 1, 1}, (dim3){32, 1, 1}, l->pointers, 0,
                                     l->stream);
    case RUNTIME_EX:
        return launch_runtime_ex(l);
    case DRIVER:
        return (int)driver.cuLaunchKernel(l->function, 1, 1, 1, 32, 1, 1, 0, l->stream, l->pointers,
                                          NULL);
    case DRIVER_EX:
    case DRIVER_EX_KERNEL:
        config = driver_config(l, &attribute);
        return (int)driver.cuLaunchKernelEx(&config, l->way == DRIVER_EX ? l->function : l->kernel,
                                            l->pointers, NULL);
    case DRIVER_PACKED:
        return launch_packed(l);
    default:
        return launch_graph(l);
    }
}

static void make_graph(struct launch *l)
{
    cudaGraph_t graph;
    size_t one = 1;
    must(cudaStreamBeginCapture(l->stream, cudaStreamCaptureModeThreadLocal), "begin of capture");
    must(cudaLaunchKernel(l->symbol, (dim3){1, 1, 1}, (dim3){32, 1, 1}, l->pointers, 0, l->stream),
         "a captured launch");
    must(cudaStreamEndCapture(l->stream, &graph), "end of capture");
    must(cudaGraphGetNodes(graph, &l->node, &one), "cudaGraphGetNodes");
    must(cudaGraphInstantiateWithFlags(&l->graph, graph, 0), "cudaGraphInstantiateWithFlags");
    must(cudaGraphUpload(l->graph, l->stream), "cudaGraphUpload");
}

static void open_launch(struct launch *l)
{
    cudaFunction_t function;
    cudaKernel_t kernel;
    for (int i = 0; i < l->parameters; i++)
        l->pointers[i] = l->values + i * l->bytes;
    must(cudaGetFuncBySymbol(&function, l->symbol), "cudaGetFuncBySymbol");
    must(cudaGetKernel(&kernel, l->symbol), "cudaGetKernel");
    l->function = function;
    l->kernel = (CUfunction)(void *)kernel;
    if (l->way == GRAPH || l->way == GRAPH_UPDATED)
        make_graph(l);
    for (int i = 0; i < 100; i++)
        must(launch(l), "the first launches");
    must(cudaStreamSynchronize(l->stream), "the first launches");
}

/* ---- Times ---- */

static int compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static double median(double *values, int count)
{
    qsort(values, (size_t)count, sizeof *values, compare);
    return values[count / 2];
}

static double time_host(struct launch *l)
{
    static double samples[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        if (i % DEPTH == 0)
            must(cudaStreamSynchronize(l->stream), "cudaStreamSynchronize");
        double start = now();
        must(launch(l), "a launch");
        samples[i] = (now() - start) * 1e6;
    }
    must(cudaStreamSynchronize(l->stream), "cudaStreamSynchronize");
    return median(samples, SAMPLES);
}

static double time_period(struct launch *l)
{
    double periods[REPEATS];
    for (int k = 0; k < REPEATS; k++) {
        together();
        double start = now();
        for (int i = 0; i < BACK_TO_BACK; i++)
            must(launch(l), "a launch");
        must(cudaStreamSynchronize(l->stream), "cudaStreamSynchronize");
        periods[k] = (now() - start) * 1e6 / BACK_TO_BACK;
    }
    return median(periods, REPEATS);
}

/* All processes add the same rows in the same order. */
static struct row *add_row(const char *what, bool step)
{
    static int mine;
    struct row *row = &shared->rows[mine++];
    if (process == 0) {
        snprintf(row->what, sizeof row->what, "%s", what);
        row->step = step;
        shared->count = mine;
    }
    return row;
}

static void measure(const char *what, struct launch l)
{
    struct row *row = add_row(what, false);
    open_launch(&l);
    together();
    row->host[process] = time_host(&l);
    row->period[process] = time_period(&l);
    if (l.graph)
        must(cudaGraphExecDestroy(l.graph), "cudaGraphExecDestroy");
}

/* ---- Launches ---- */

static void measure_ways(cudaStream_t stream)
{
    static const struct {
        const char *what;
        enum way way;
        bool dependent;
    } ways[] = {{"cudaLaunchKernel", RUNTIME, false},
                {"cudaLaunchKernelExC", RUNTIME_EX, false},
                {"cudaLaunchKernelExC, dependent", RUNTIME_EX, true},
                {"cuLaunchKernel", DRIVER, false},
                {"cuLaunchKernelEx", DRIVER_EX, false},
                {"cuLaunchKernelEx, dependent", DRIVER_EX, true},
                {"cuLaunchKernelEx of a CUkernel, dependent", DRIVER_EX_KERNEL, true},
                {"cuLaunchKernelEx of one buffer, dependent", DRIVER_PACKED, true},
                {"cuGraphLaunch of one node", GRAPH, false},
                {"the same after cudaGraphExecKernelNodeSetParams", GRAPH_UPDATED, false}};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++)
        measure(ways[i].what, (struct launch){.way = ways[i].way,
                                              .dependent = ways[i].dependent,
                                              .symbol = launch_cost_struct(320),
                                              .parameters = 1,
                                              .bytes = 320,
                                              .stream = stream});
    measure("cuLaunchKernelEx, dependent, legacy stream",
            (struct launch){.way = DRIVER_EX,
                            .dependent = true,
                            .symbol = launch_cost_struct(320),
                            .parameters = 1,
                            .bytes = 320});
}

static void measure_parameters(cudaStream_t stream)
{
    static const int bytes[] = {8, 64, 128, 192, 256, 320, 512}, counts[] = {1, 2, 4, 8};
    char what[64];
    for (size_t i = 0; i < sizeof bytes / sizeof *bytes; i++)
        for (int dependent = 0; dependent < 2; dependent++) {
            snprintf(what, sizeof what, "cuLaunchKernelEx, one parameter of %d bytes%s", bytes[i],
                     dependent ? ", dependent" : "");
            measure(what, (struct launch){.way = DRIVER_EX,
                                          .dependent = dependent,
                                          .symbol = launch_cost_struct(bytes[i]),
                                          .parameters = 1,
                                          .bytes = bytes[i],
                                          .stream = stream});
        }
    for (size_t i = 0; i < sizeof counts / sizeof *counts; i++) {
        snprintf(what, sizeof what, "cuLaunchKernelEx, %d pointers, dependent", counts[i]);
        measure(what, (struct launch){.way = DRIVER_EX,
                                      .dependent = true,
                                      .symbol = launch_cost_pointers(counts[i]),
                                      .parameters = counts[i],
                                      .bytes = 8,
                                      .stream = stream});
    }
}

/* ---- Steps ---- */

/* Nanoseconds of CALL, median of a few loops. */
#define STEP(WHAT, CALL)                                                                           \
    do {                                                                                           \
        struct row *row_ = add_row(WHAT, true);                                                    \
        double times_[REPEATS];                                                                    \
        together();                                                                                \
        for (int k_ = 0; k_ < REPEATS; k_++) {                                                     \
            double start_ = now();                                                                 \
            for (int i_ = 0; i_ < STEP_CALLS; i_++)                                                \
                must((int)(CALL), WHAT);                                                           \
            times_[k_] = (now() - start_) * 1e9 / STEP_CALLS;                                      \
        }                                                                                          \
        row_->host[process] = median(times_, REPEATS);                                             \
    } while (0)

static void measure_steps(cudaStream_t stream)
{
    enum cudaStreamCaptureStatus capture;
    CUstreamCaptureStatus captured;
    CUcontext context;
    void *memory;
    int device, ordinal, managed;
    CUmemorytype type;
    CUdeviceptr at, base;
    size_t bytes;
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                        CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                        CU_POINTER_ATTRIBUTE_IS_MANAGED};
    void *values[] = {&type, &ordinal, &managed};
    must(cudaMalloc(&memory, 1 << 20), "cudaMalloc");
    at = (CUdeviceptr)(size_t)memory + 4096;
    STEP("cudaGetDevice", cudaGetDevice(&device));
    STEP("cuCtxGetCurrent", driver.cuCtxGetCurrent(&context));
    STEP("cudaStreamIsCapturing", cudaStreamIsCapturing(stream, &capture));
    STEP("cuStreamIsCapturing", driver.cuStreamIsCapturing(stream, &captured));
    STEP("cuPointerGetAttributes, three", driver.cuPointerGetAttributes(3, attributes, values, at));
    STEP("cuPointerGetAttribute, the type",
         driver.cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at));
    STEP("cuMemGetAddressRange", driver.cuMemGetAddressRange(&base, &bytes, at));
    STEP("clock_gettime, twice", now() + now() < 0);
    must(cudaFree(memory), "cudaFree");
}

/* ---- Processes ---- */

static void describe(int device)
{
    struct cudaDeviceProp properties;
    int version = 0;
    must(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties");
    cudaDriverGetVersion(&version);
    snprintf(shared->gpu, sizeof shared->gpu, "%s", properties.name);
    snprintf(shared->driver, sizeof shared->driver, "%d.%d", version / 1000, version % 1000 / 10);
}

/* Exit status 77: there is no GPU for it. */
static int run_process(void)
{
    cudaStream_t stream;
    int count = 0;
    if (cudaGetDeviceCount(&count) != cudaSuccess || count < processes)
        return 77;
    must(cudaSetDevice(process), "cudaSetDevice");
    find_driver();
    if (process == 0)
        describe(process);
    must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreateWithFlags");
    measure_steps(stream);
    measure_ways(stream);
    measure_parameters(stream);
    must(cudaStreamDestroy(stream), "cudaStreamDestroy");
    return 0;
}

/* The first exit status that is not 0; whoever is left then would wait for the one that failed. */
static int wait_for_all(pid_t *pids, int count)
{
    int first = 0, status;
    for (int left = count; left > 0; left--) {
        pid_t ended = wait(&status);
        if (ended < 0)
            return 1;
        for (int i = 0; i < count; i++)
            pids[i] = pids[i] == ended ? -1 : pids[i];
        status = WIFEXITED(status) ? WEXITSTATUS(status) : 1;
        if (first || !status)
            continue;
        first = status;
        for (int i = 0; i < count && status != 77; i++)
            if (pids[i] > 0)
                kill(pids[i], SIGTERM);
    }
    return first;
}

static int run_all(void)
{
    pid_t pids[PROCESSES];
    int count = 0;
    for (; count < processes; count++) {
        process = count;
        pids[count] = fork();
        if (pids[count] == 0)
            _exit(run_process());
        if (pids[count] < 0)
            break;
    }
    if (count == processes)
        return wait_for_all(pids, count);
    perror("fork");
    for (int i = 0; i < count; i++)
        kill(pids[i], SIGTERM);
    return 1;
}

/* ---- What is printed ---- */

static double slowest(const double *values)
{
    double most = 0;
    for (int i = 0; i < processes; i++)
        most = values[i] > most ? values[i] : most;
    return most;
}

static void print_table(void)
{
    printf("%s, driver of CUDA %s, %d processes\n", shared->gpu, shared->driver, processes);
    printf("\n%-52s %8s %8s\n", "step, ns", "host", "slowest");
    for (int i = 0; i < shared->count; i++)
        if (shared->rows[i].step)
            printf("%-52s %8.1f %8.1f\n", shared->rows[i].what, shared->rows[i].host[0],
                   slowest(shared->rows[i].host));
    printf("\n%-52s %8s %8s %8s %8s\n", "launch, us", "host", "slowest", "period", "slowest");
    for (int i = 0; i < shared->count; i++)
        if (!shared->rows[i].step)
            printf("%-52s %8.3f %8.3f %8.3f %8.3f\n", shared->rows[i].what, shared->rows[i].host[0],
                   slowest(shared->rows[i].host), shared->rows[i].period[0],
                   slowest(shared->rows[i].period));
}

static void write_json(const char *path)
{
    struct replacement json;
    program_check(replacement_begin(path, REPLACEMENT_ANY, &json), "--json");
    fprintf(json.file, "{\"gpu\": \"%s\", \"cuda_driver\": \"%s\", \"processes\": %d, \"rows\": [",
            shared->gpu, shared->driver, processes);
    for (int i = 0; i < shared->count; i++) {
        const struct row *row = &shared->rows[i];
        fprintf(json.file, "%s\n{\"what\": \"%s\", \"%s\": %.4f, \"slowest\": %.4f", i ? "," : "",
                row->what, row->step ? "host_ns" : "host_us", row->host[0], slowest(row->host));
        if (!row->step)
            fprintf(json.file, ", \"period_us\": %.4f, \"slowest_period\": %.4f", row->period[0],
                    slowest(row->period));
        fprintf(json.file, "}");
    }
    fprintf(json.file, "\n]}\n");
    program_check(replacement_finish(&json), "--json");
}

static bool make_shared(void)
{
    pthread_barrierattr_t attribute;
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED)
        return false;
    pthread_barrierattr_init(&attribute);
    pthread_barrierattr_setpshared(&attribute, PTHREAD_PROCESS_SHARED);
    return pthread_barrier_init(&shared->barrier, &attribute, (unsigned)processes) == 0;
}

int main(int argc, char **argv)
{
    const char *json = NULL;
    program_start();
    bool good = argc % 2 == 1;
    for (int i = 1; good && i < argc; i += 2) {
        if (strcmp(argv[i], "--processes") == 0)
            processes = atoi(argv[i + 1]);
        else if (strcmp(argv[i], "--json") == 0)
            json = argv[i + 1];
        else
            good = false;
    }
    if (!good || processes < 1 || processes > PROCESSES) {
        fprintf(stderr, "usage: %s [--processes N] [--json FILE], N up to %d\n", argv[0],
                PROCESSES);
        return 2;
    }
    if (!make_shared()) {
        perror("memory for all processes");
        return 1;
    }
    int status = run_all();
    if (status == 77)
        printf("launch_cost needs a GPU for each of its %d processes\n", processes);
    if (status != 0)
        return status;
    print_table();
    if (json)
        write_json(json);
    return 0;
}
