/* Opening and closing what alnico-perf measures with on GPUs: the rank's GPU, streams, buffers, our
 * communicator and NCCL's. Main thread of every rank, collective. */
#include "tools/perf/gpu/cuda.h"

#include "tools/common/program.h"
#include "tools/perf/layout.h"

#ifdef ALNICO_HAVE_NCCL
#include "tools/perf/gpu/nccl.h"
#endif

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- The GPU ---- */

static void choose_gpu(struct gpu_bench *gpu)
{
    const struct perf_options *options = &gpu->bench->options;
    int local = program_local_rank(), count = 0;
    cudaError_t error = cudaGetDeviceCount(&count);
    if (error != cudaSuccess || count == 0)
        program_fail("--device cuda: no GPU: %s", cudaGetErrorString(error));
    if (options->gpu_count && local >= options->gpu_count)
        program_fail("--gpu: names %d GPUs, and this is rank %d of its host", options->gpu_count,
                     local);
    gpu->gpu = options->gpu_count ? options->gpus[local] : local;
    if (gpu->gpu >= count)
        program_fail("rank %d of its host has GPU %d, and there are %d: start fewer ranks or use "
                     "--gpu",
                     local, gpu->gpu, count);
    gpu_must(cudaSetDevice(gpu->gpu), "cudaSetDevice");
}

static void describe(struct gpu_bench *gpu)
{
    struct bench *bench = gpu->bench;
    struct cudaDeviceProp properties;
    int driver = 0, runtime = 0;
    const char *nccl = "none";
    gpu_must(cudaGetDeviceProperties(&properties, gpu->gpu), "cudaGetDeviceProperties");
    gpu_must(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    gpu_must(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
#ifdef ALNICO_HAVE_NCCL
    nccl = nccl_peer_version();
#endif
    gpu->multiprocessors = properties.multiProcessorCount;
    gpu->cache = (size_t)properties.l2CacheSize;
    snprintf(bench->device, sizeof bench->device, "%.60s; CUDA %d.%d, driver for %d.%d; NCCL %.20s",
             properties.name, runtime / 1000, runtime / 10 % 100, driver / 1000, driver / 10 % 100,
             nccl);
    bench->describe = cJSON_CreateObject();
    cJSON_AddStringToObject(bench->describe, "name", properties.name);
    cJSON_AddNumberToObject(bench->describe, "multiprocessors", gpu->multiprocessors);
    cJSON_AddNumberToObject(bench->describe, "l2_bytes", (double)gpu->cache);
    cJSON_AddNumberToObject(bench->describe, "cuda_runtime", runtime);
    cJSON_AddNumberToObject(bench->describe, "cuda_driver", driver);
    cJSON_AddStringToObject(bench->describe, "nccl", nccl);
}

static void open_streams(struct gpu_bench *gpu)
{
    gpu_must(cudaStreamCreateWithFlags(&gpu->stream, cudaStreamNonBlocking), "cudaStreamCreate");
    gpu_must(cudaStreamCreateWithFlags(&gpu->side, cudaStreamNonBlocking), "cudaStreamCreate");
    gpu_must(cudaEventCreate(&gpu->begin), "cudaEventCreate");
    gpu_must(cudaEventCreate(&gpu->end), "cudaEventCreate");
    gpu_must(cudaEventCreateWithFlags(&gpu->forked, cudaEventDisableTiming), "cudaEventCreate");
    gpu_must(cudaEventCreateWithFlags(&gpu->joined, cudaEventDisableTiming), "cudaEventCreate");
}

static void close_streams(struct gpu_bench *gpu)
{
    gpu_must(cudaEventDestroy(gpu->begin), "cudaEventDestroy");
    gpu_must(cudaEventDestroy(gpu->end), "cudaEventDestroy");
    gpu_must(cudaEventDestroy(gpu->forked), "cudaEventDestroy");
    gpu_must(cudaEventDestroy(gpu->joined), "cudaEventDestroy");
    gpu_must(cudaStreamDestroy(gpu->stream), "cudaStreamDestroy");
    gpu_must(cudaStreamDestroy(gpu->side), "cudaStreamDestroy");
}

/* ---- Buffers ---- */

static void poison_pool(const struct gpu_bench *gpu, const struct gpu_pool *pool)
{
    gpu_must(cudaMemset(pool->send, GPU_POISON, gpu->pool_bytes), "cudaMemset");
    gpu_must(cudaMemset(pool->recv, GPU_POISON, gpu->pool_bytes), "cudaMemset");
    gpu_must(cudaDeviceSynchronize(), "cudaMemset"); /* the streams do not wait for it */
}

static void open_plain(struct gpu_bench *gpu, struct gpu_pool *pool)
{
    gpu_must(cudaMalloc((void **)&pool->send, gpu->pool_bytes), "cudaMalloc");
    gpu_must(cudaMalloc((void **)&pool->recv, gpu->pool_bytes), "cudaMalloc");
    poison_pool(gpu, pool);
}

static void close_plain(struct gpu_pool *pool)
{
    gpu_must(cudaFree(pool->send), "cudaFree");
    gpu_must(cudaFree(pool->recv), "cudaFree");
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
#else
static void open_nccl(struct gpu_bench *gpu)
{
    (void)gpu;
}

static void close_nccl(struct gpu_bench *gpu)
{
    (void)gpu;
}
#endif

static void open_buffers(struct gpu_bench *gpu)
{
    const struct perf_options *options = &gpu->bench->options;
    size_t most = bench_capacity(gpu->bench);
    if (!blocks_init(&gpu->bench->blocks, gpu->bench->ranks))
        program_fail("no memory for the blocks of %d ranks", gpu->bench->ranks);
    gpu->pool_bytes = pool_bytes(most, gpu->cache);
    open_plain(gpu, &gpu->plain);
    open_nccl(gpu);
    if (!options->nccl_memory)
        gpu->ours = gpu->plain;
    gpu_must(cudaMalloc((void **)&gpu->verdict, sizeof *gpu->verdict), "cudaMalloc");
    for (int i = 0; i < 2 && options->versus & 1u << PEER_STAGED; i++)
        gpu_must(cudaMallocHost(&gpu->pinned[i], most), "cudaMallocHost");
}

static void close_buffers(struct gpu_bench *gpu)
{
    close_nccl(gpu);
    close_plain(&gpu->plain);
    gpu_must(cudaFree(gpu->verdict), "cudaFree");
    for (int i = 0; i < 2; i++)
        gpu_must(cudaFreeHost(gpu->pinned[i]), "cudaFreeHost");
    blocks_finish(&gpu->bench->blocks);
}

/* ---- Ours ---- */

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
    for (int i = 0; options->all_algorithms && bench->results < PERF_RESULTS; i++) {
        const char *name = perf_algorithm(options->operation, options->device, i);
        if (!name)
            break;
        bench->algorithm[bench->results++] = name;
    }
    if (!options->all_algorithms)
        bench->algorithm[bench->results++] = options->algorithm;
}

static void close_ours(struct gpu_bench *gpu)
{
    for (int i = 0; i < 2; i++)
        if (gpu->registered[i])
            program_check(alnico_comm_deregister(gpu->comm, gpu->registered[i]),
                          "alnico_comm_deregister");
    alnico_comm_destroy(gpu->comm);
}

/* ---- The benchmark ---- */

static void gpu_open(struct bench *bench)
{
    struct gpu_bench *gpu = bench->gpu = calloc(1, sizeof *gpu);
    if (!gpu)
        program_fail("no memory for a benchmark");
    gpu->bench = bench;
    bench->results = 0;
    choose_gpu(gpu);
    describe(gpu);
    open_streams(gpu);
    open_buffers(gpu);
    open_ours(gpu);
}

/* Each row writes its own inputs. */
static void gpu_begin(struct bench *bench, alnico_datatype_t type, alnico_op_t op)
{
    (void)bench;
    (void)type;
    (void)op;
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

const struct bench_ops bench_cuda = {
    .open = gpu_open, .begin = gpu_begin, .row = gpu_row, .close = gpu_close};
