/* Opens and closes the benchmark on a GPU: the rank's GPU, streams, buffers, our communicator and
 * NCCL's. Main thread of every rank, collective. */
#include "tools/perf/gpu/cuda.h"

#include "tools/common/program.h"
#include "tools/common/ranks.h"

#ifdef ALNICO_HAVE_NCCL
#include "tools/perf/gpu/nccl.h"
#endif

#include <stdio.h>
#include <stdlib.h>

static void choose_gpu(struct gpu_bench *gpu)
{
    const struct perf_options *options = &gpu->bench->options;
    int local, locals, count = 0;
    program_host(&local, &locals);
    const bool named = local < options->gpu_count;
    gpu->gpu = named ? options->gpus[local] : local;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0)
        program_fail_together("--device cuda: no GPU: %s", cudaGetErrorString(error));
    else if (options->gpu_count && !named)
        program_fail_together("--gpu: names %d GPUs, and this is rank %d of its host",
                              options->gpu_count, local);
    else if (gpu->gpu >= count)
        program_fail_together("rank %d of its host has GPU %d, and there are %d: start fewer ranks "
                              "or use --gpu",
                              local, gpu->gpu, count);
    else
        program_fail_together(NULL);
    GPU_MUST(cudaSetDevice(gpu->gpu));
}

static void describe(struct gpu_bench *gpu)
{
    struct bench *bench = gpu->bench;
    struct cudaDeviceProp properties;
    int driver = 0, runtime = 0;
    const char *nccl = "none";
    GPU_MUST(cudaGetDeviceProperties(&properties, gpu->gpu));
    GPU_MUST(cudaDriverGetVersion(&driver));
    GPU_MUST(cudaRuntimeGetVersion(&runtime));
#ifdef ALNICO_HAVE_NCCL
    nccl = nccl_peer_version();
#endif
    gpu->multiprocessors = properties.multiProcessorCount;
    gpu->cache = (size_t)properties.l2CacheSize;
    snprintf(bench->device, sizeof bench->device, "%.60s; CUDA %d.%d, driver for %d.%d; NCCL %.20s",
             properties.name, runtime / 1000, runtime / 10 % 100, driver / 1000, driver / 10 % 100,
             nccl);
    bench->describe =
        json_add(cJSON_CreateObject(),
                 "name %s multiprocessors %d l2_bytes %zu cuda_runtime %d cuda_driver %d nccl %s",
                 properties.name, gpu->multiprocessors, gpu->cache, runtime, driver, nccl);
}

static void open_streams(struct gpu_bench *gpu)
{
    GPU_MUST(cudaStreamCreateWithFlags(&gpu->stream, cudaStreamNonBlocking));
    GPU_MUST(cudaStreamCreateWithFlags(&gpu->second, cudaStreamNonBlocking));
    GPU_MUST(cudaEventCreate(&gpu->begin));
    GPU_MUST(cudaEventCreate(&gpu->end));
    GPU_MUST(cudaEventCreateWithFlags(&gpu->forked, cudaEventDisableTiming));
    GPU_MUST(cudaEventCreateWithFlags(&gpu->joined, cudaEventDisableTiming));
}

static void close_streams(struct gpu_bench *gpu)
{
    GPU_MUST(cudaEventDestroy(gpu->begin));
    GPU_MUST(cudaEventDestroy(gpu->end));
    GPU_MUST(cudaEventDestroy(gpu->forked));
    GPU_MUST(cudaEventDestroy(gpu->joined));
    GPU_MUST(cudaStreamDestroy(gpu->stream));
    GPU_MUST(cudaStreamDestroy(gpu->second));
}

static size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

/* Two caches' worth of slots, but not more than a graph's few hundred calls reach. */
struct pool_layout pool_layout(size_t bytes, size_t cache)
{
    size_t wanted = (2 * cache + bytes - 1) / bytes;
    return (struct pool_layout){.bytes = bytes,
                                .stride = round_up(bytes, POOL_GUARD) + POOL_GUARD,
                                .slots = wanted < 1            ? 1
                                         : wanted > POOL_SLOTS ? POOL_SLOTS
                                                               : (int)wanted};
}

/* slots * stride is at most 2 cache + bytes + slots * 2 guards. */
static size_t pool_bytes(size_t most, size_t cache)
{
    return round_up(most + 2 * cache + (2 * POOL_SLOTS + 2) * (size_t)POOL_GUARD, (size_t)2 << 20);
}

static void poison_pool(const struct gpu_bench *gpu, const struct gpu_pool *pool)
{
    GPU_MUST(cudaMemset(pool->send, GPU_POISON, gpu->pool_bytes));
    GPU_MUST(cudaMemset(pool->recv, GPU_POISON, gpu->pool_bytes));
    gpu_must(cudaDeviceSynchronize(), "cudaMemset"); /* the streams do not wait for it */
}

#ifdef ALNICO_HAVE_NCCL
static void open_nccl_pool(struct gpu_bench *gpu, struct gpu_pool *pool, bool window)
{
    pool->send = nccl_peer_alloc(gpu->nccl, gpu->pool_bytes, window);
    pool->recv = nccl_peer_alloc(gpu->nccl, gpu->pool_bytes, window);
    poison_pool(gpu, pool);
}

static void open_nccl(struct gpu_bench *gpu)
{
    const struct bench *bench = gpu->bench;
    unsigned versus = bench->options.versus;
    if (versus & (1u << PEER_NCCL | 1u << PEER_NCCL_SYMMETRIC))
        gpu->nccl = nccl_peer_open(bench->rank, bench->ranks);
    if (versus & 1u << PEER_NCCL_SYMMETRIC)
        open_nccl_pool(gpu, &gpu->windows, true);
    if (bench->options.nccl_memory)
        open_nccl_pool(gpu, &gpu->ours, false);
}

static void close_nccl(struct gpu_bench *gpu)
{
    nccl_peer_free(gpu->nccl, gpu->windows.send);
    nccl_peer_free(gpu->nccl, gpu->windows.recv);
    if (gpu->bench->options.nccl_memory) {
        nccl_peer_free(gpu->nccl, gpu->ours.send);
        nccl_peer_free(gpu->nccl, gpu->ours.recv);
    }
    nccl_peer_close(gpu->nccl);
}
#endif

static void open_buffers(struct gpu_bench *gpu)
{
    const struct perf_options *options = &gpu->bench->options;
    size_t most = bench_capacity(gpu->bench);
    if (!blocks_init(&gpu->bench->blocks, gpu->bench->ranks))
        program_fail("no memory for the blocks of %d ranks", gpu->bench->ranks);
    gpu->pool_bytes = pool_bytes(most, gpu->cache);
    GPU_MUST(cudaMalloc((void **)&gpu->plain.send, gpu->pool_bytes));
    GPU_MUST(cudaMalloc((void **)&gpu->plain.recv, gpu->pool_bytes));
    poison_pool(gpu, &gpu->plain);
#ifdef ALNICO_HAVE_NCCL
    open_nccl(gpu);
#endif
    if (!options->nccl_memory)
        gpu->ours = gpu->plain;
    GPU_MUST(cudaMalloc((void **)&gpu->findings, sizeof *gpu->findings));
    for (int i = 0; i < 2 && options->versus & 1u << PEER_STAGED; i++)
        GPU_MUST(cudaMallocHost(&gpu->pinned[i], most));
}

static void close_buffers(struct gpu_bench *gpu)
{
#ifdef ALNICO_HAVE_NCCL
    close_nccl(gpu);
#endif
    GPU_MUST(cudaFree(gpu->plain.send));
    GPU_MUST(cudaFree(gpu->plain.recv));
    GPU_MUST(cudaFree(gpu->findings));
    for (int i = 0; i < 2; i++)
        GPU_MUST(cudaFreeHost(gpu->pinned[i]));
    blocks_finish(&gpu->bench->blocks);
}

static void open_ours(struct gpu_bench *gpu)
{
    const struct perf_options *options = &gpu->bench->options;
    struct bench *bench = gpu->bench;
    bench_comm(bench, gpu->stream, &gpu->comm);
    char *const memory[] = {gpu->ours.send, gpu->ours.recv};
    for (int i = 0; i < 2 && options->registered; i++)
        program_check(
            alnico_comm_register(gpu->comm, memory[i], gpu->pool_bytes, &gpu->registered[i]),
            "alnico_comm_register");
    bench->results = bench_algorithms(options, bench->algorithm);
}

static void close_ours(struct gpu_bench *gpu)
{
    for (int i = 0; i < 2; i++)
        if (gpu->registered[i])
            program_check(alnico_comm_deregister(gpu->comm, gpu->registered[i]),
                          "alnico_comm_deregister");
    alnico_comm_destroy(gpu->comm);
}

static void gpu_open(struct bench *bench)
{
    struct gpu_bench *gpu = bench->gpu = calloc(1, sizeof *gpu);
    if (!gpu)
        program_fail("no memory for a benchmark");
    gpu->bench = bench;
    choose_gpu(gpu);
    describe(gpu);
    open_streams(gpu);
    open_buffers(gpu);
    open_ours(gpu);
}

static void gpu_close(struct bench *bench)
{
    struct gpu_bench *gpu = bench->gpu;
    close_ours(gpu);
    close_buffers(gpu);
    close_streams(gpu);
    cJSON_Delete(bench->describe);
    free(gpu);
}

const struct bench_ops bench_cuda = {.open = gpu_open, .row = gpu_row, .close = gpu_close};
