/* Opens and closes a communicator with what is around it, and checks vectors on the GPU. */
#include "tests/gpu/support/site.h"

#include "base/datatype.h"
#include "device/device.h"
#include "tests/support/reference.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- Memory for the table of cases ---- */

static void *site_alloc(void *context, size_t bytes, bool registered)
{
    struct gpu_site *site = context;
    return gpu_arena_take(registered ? &site->shared : &site->plain, bytes);
}

static void site_free(void *context, void *memory)
{
    struct gpu_site *site = context;
    const char *at = memory, *shared = site->shared.base;
    bool registered = at >= shared && at < shared + site->shared.bytes;
    gpu_arena_give(registered ? &site->shared : &site->plain);
}

static void site_put(void *context, void *to, const void *from, size_t bytes)
{
    const struct gpu_site *site = context;
    CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyHostToDevice, site->stream));
    CUDA(cudaStreamSynchronize(site->stream));
}

static void site_get(void *context, void *to, const void *from, size_t bytes)
{
    const struct gpu_site *site = context;
    CUDA(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToHost, site->stream));
    CUDA(cudaStreamSynchronize(site->stream));
}

/* ---- Opening and closing ---- */

/* What the driver loads for a copy or a fill when it is first used, it may load only where no
 * kernel waits. */
static void warm_up(const struct gpu_site *site)
{
    size_t half = site->plain.bytes / 2;
    CUDA(cudaMemsetAsync(site->plain.base, 0x5a, half, site->stream));
    CUDA(cudaMemcpyAsync(site->plain.base + half, site->plain.base, half, cudaMemcpyDeviceToDevice,
                         site->stream));
    CUDA(cudaStreamSynchronize(site->stream));
}

void gpu_site_wrap(struct gpu_site *site, struct gpu_rank *rank, size_t bytes, cudaStream_t stream,
                   enum gpu_memory kind, alnico_comm_t comm, alnico_comm_t twin)
{
    *site = (struct gpu_site){.rank = rank, .stream = stream, .comm = comm, .twin = twin};
    gpu_arena_open(&site->plain, bytes, GPU_MALLOC, rank->device);
    gpu_arena_open(&site->shared, bytes, kind, rank->device);
    warm_up(site);
    REQUIRE_STATUS(
        alnico_comm_register(comm, site->shared.base, site->shared.bytes, &site->registration),
        ALNICO_SUCCESS);
    site->memory = (struct cases_memory){.alloc = site_alloc,
                                         .free = site_free,
                                         .put = site_put,
                                         .get = site_get,
                                         .context = site,
                                         .registers = true,
                                         .twin = twin};
}

void gpu_site_open_on(struct gpu_site *site, struct gpu_rank *rank, size_t bytes,
                      cudaStream_t stream, enum gpu_memory kind)
{
    gpu_site_wrap(site, rank, bytes, stream, kind, gpu_comm(rank, stream), gpu_twin(rank));
}

void gpu_site_open(struct gpu_site *site, struct gpu_rank *rank, size_t bytes)
{
    cudaStream_t stream;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    gpu_site_open_on(site, rank, bytes, stream, GPU_MALLOC);
    site->own_stream = true;
}

void gpu_site_close(struct gpu_site *site)
{
    bool healthy = alnico_comm_status(site->comm) == ALNICO_SUCCESS;
    if (gpu_same(site, healthy) && healthy)
        REQUIRE_STATUS(alnico_comm_deregister(site->comm, site->registration), ALNICO_SUCCESS);
    alnico_comm_destroy(site->comm);
    alnico_comm_destroy(site->twin);
    gpu_barrier(site->rank); /* memory stays until no other rank maps it */
    gpu_arena_close(&site->shared);
    gpu_arena_close(&site->plain);
    if (site->own_stream)
        CUDA(cudaStreamDestroy(site->stream));
}

/* ---- Vectors ---- */

size_t gpu_vector_bytes(const struct gpu_vector *v)
{
    return v->count * datatype_bytes(v->type);
}

void gpu_fill(struct gpu_site *site, void *to, const struct gpu_vector *v)
{
    void *host = malloc(gpu_vector_bytes(v) + 1);
    REQUIRE(host != NULL);
    reference_fill(host, v->count, v->type, v->op, v->seed, alnico_comm_rank(site->twin));
    site_put(site, to, host, gpu_vector_bytes(v));
    free(host);
}

uint64_t gpu_verify(struct gpu_site *site, const void *from, const struct gpu_vector *v,
                    const char *what)
{
    int size = alnico_comm_size(site->twin), ranks[256];
    char text[128];
    void *host = malloc(gpu_vector_bytes(v) + 1);
    REQUIRE(host != NULL);
    for (int i = 0; i < size; i++)
        ranks[i] = i;
    site_get(site, host, from, gpu_vector_bytes(v));
    if (reference_check(host, v->count, v->type, v->op, v->seed, ranks, size, text, sizeof text)) {
        fprintf(stderr, "%s, rank %d of %d, seed %llu, %zu %s, %s: %s\n", what, site->rank->rank,
                size, (unsigned long long)v->seed, v->count, datatype_name(v->type), op_name(v->op),
                text);
        REQUIRE(!"right");
    }
    uint64_t hash = reference_hash(host, gpu_vector_bytes(v));
    free(host);
    return hash;
}

uint64_t gpu_hash(struct gpu_site *site, const void *from, size_t bytes)
{
    void *host = malloc(bytes + 1);
    REQUIRE(host != NULL);
    site_get(site, host, from, bytes);
    uint64_t hash = reference_hash(host, bytes);
    free(host);
    return hash;
}

bool gpu_same(struct gpu_site *site, uint64_t hash)
{
    uint64_t both[2] = {hash, ~hash};
    REQUIRE_STATUS(
        alnico_allreduce(ALNICO_IN_PLACE, both, 2, ALNICO_UINT64, ALNICO_MAXIMUM, site->twin),
        ALNICO_SUCCESS);
    return both[0] == hash && both[1] == ~hash;
}

void gpu_try(struct gpu_site *site, size_t count, const char *what)
{
    struct gpu_vector v = {count, ALNICO_FLOAT32, ALNICO_SUM, site->rank->seed + count};
    void *memory = gpu_arena_take(&site->plain, gpu_vector_bytes(&v) + 1);
    gpu_fill(site, memory, &v);
    REQUIRE_STATUS(alnico_allreduce(ALNICO_IN_PLACE, memory, count, v.type, v.op, site->comm),
                   ALNICO_SUCCESS);
    REQUIRE_STATUS(alnico_synchronize(site->comm), ALNICO_SUCCESS);
    gpu_verify(site, memory, &v, what);
    gpu_arena_give(&site->plain);
}

/* On a stream of its own: copies in, the library's reduction, a copy out. */
void gpu_require_alive(struct gpu_rank *rank)
{
    enum { COUNT = 1000 };
    float host[COUNT], *memory;
    void *raw;
    cudaStream_t stream;
    const struct device_ops *device = device_find(ALNICO_DEVICE_CUDA);
    for (int i = 0; i < COUNT; i++)
        host[i] = (float)i;
    CUDA(cudaSetDevice(rank->device));
    CUDA(cudaMalloc(&raw, 3 * sizeof host));
    memory = raw;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    for (int i = 0; i < 2; i++)
        CUDA(
            cudaMemcpyAsync(memory + i * COUNT, host, sizeof host, cudaMemcpyHostToDevice, stream));
    REQUIRE_STATUS(device->reduce(memory + 2 * COUNT, memory, memory + COUNT, COUNT, ALNICO_FLOAT32,
                                  ALNICO_SUM, stream),
                   ALNICO_SUCCESS);
    CUDA(cudaMemcpyAsync(host, memory + 2 * COUNT, sizeof host, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaStreamSynchronize(stream));
    for (int i = 0; i < COUNT; i++)
        REQUIRE(host[i] == 2 * (float)i);
    CUDA(cudaStreamDestroy(stream));
    CUDA(cudaFree(raw));
}
