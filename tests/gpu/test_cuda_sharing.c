/* Memory that GPUs share without a registration by all: results are right in calls that share it first, eager or
 * captured, that do not, since a rank passes other memory, and after memory was freed and its address is there
 * again; and nobody waits until the deadline. */
#include "tests/gpu/support/graph.h"

#include <stdlib.h>

enum { MEGABYTE = 1 << 20, BYTES = 4 * MEGABYTE, COUNT = BYTES / 4 };

static float *allocate(size_t bytes)
{
    void *memory;
    REQUIRE_STATUS(alnico_memory_allocate(ALNICO_DEVICE_CUDA, bytes, &memory), ALNICO_SUCCESS);
    return memory;
}

static void give_back(struct gpu_site *site, void *memory)
{
    CUDA(cudaStreamSynchronize(site->stream));
    gpu_barrier(site->rank);
    REQUIRE_STATUS(alnico_memory_free(ALNICO_DEVICE_CUDA, memory), ALNICO_SUCCESS);
}

static void put(struct gpu_site *site, float *to)
{
    float *host = malloc(BYTES);
    REQUIRE(host != NULL);
    for (int i = 0; i < COUNT; i++)
        host[i] = (float)(site->rank->rank + i % 1000);
    CUDA(cudaMemcpyAsync(to, host, BYTES, cudaMemcpyHostToDevice, site->stream));
    CUDA(cudaStreamSynchronize(site->stream));
    free(host);
}

static void check(struct gpu_site *site, const float *from)
{
    int size = site->rank->size;
    float *host = malloc(BYTES);
    REQUIRE(host != NULL);
    CUDA(cudaMemcpyAsync(host, from, BYTES, cudaMemcpyDeviceToHost, site->stream));
    CUDA(cudaStreamSynchronize(site->stream));
    for (int i = 0; i < COUNT; i++)
        REQUIRE(host[i] == (float)(size * (size - 1) / 2 + size * (i % 1000)));
    free(host);
}

static void sum(struct gpu_site *site, float *x)
{
    REQUIRE_STATUS(
        alnico_allreduce(ALNICO_IN_PLACE, x, COUNT, ALNICO_FLOAT32, ALNICO_SUM, site->comm),
        ALNICO_SUCCESS);
}

static void try_sum(struct gpu_site *site, float *x)
{
    put(site, x);
    sum(site, x);
    check(site, x);
}

static void eager(struct gpu_rank *rank)
{
    struct gpu_site site;
    gpu_site_open(&site, rank, 2 * BYTES);
    float *plain = (float *)(void *)site.plain.base;
    for (int again = 0; again < 100; again++) {
        float *memory = allocate(BYTES + 4096);
        try_sum(&site, memory);
        try_sum(&site, memory);
        try_sum(&site, again % rank->size == rank->rank ? plain : memory);
        try_sum(&site, again % rank->size == rank->rank ? memory + 1024 : memory);
        try_sum(&site, memory);
        give_back(&site, memory);
    }
    gpu_site_close(&site);
}

/* The first call of the communicator; replays read what is there then. */
static void captured(struct gpu_rank *rank)
{
    for (int again = 0; again < 10; again++) {
        struct gpu_site site;
        gpu_site_open(&site, rank, MEGABYTE);
        if (gpu_can_capture(&site)) {
            float *memory = allocate(BYTES);
            gpu_capture_begin(&site);
            sum(&site, memory);
            cudaGraphExec_t graph = gpu_capture_end(&site);
            for (int i = 0; i < 3; i++) {
                put(&site, memory);
                gpu_replay(&site, graph);
                check(&site, memory);
            }
            try_sum(&site, memory);
            CUDA(cudaGraphExecDestroy(graph));
            give_back(&site, memory);
        }
        gpu_site_close(&site);
    }
}

/* A rank that registers memory of cudaMalloc, which is not shared so. */
static void other_memory(struct gpu_rank *rank)
{
    struct gpu_site site;
    alnico_registration_t registration;
    gpu_site_open(&site, rank, 2 * BYTES);
    float *memory = allocate(BYTES), *plain = (float *)(void *)site.plain.base;
    REQUIRE_STATUS(alnico_comm_register_local(site.comm, plain, BYTES, &registration),
                   ALNICO_SUCCESS);
    for (int i = 0; i < 20; i++)
        try_sum(&site, rank->rank == 0 ? plain : memory);
    REQUIRE_STATUS(alnico_comm_deregister(site.comm, registration), ALNICO_SUCCESS);
    give_back(&site, memory);
    gpu_site_close(&site);
}

int main(void)
{
    const struct gpu_test tests[] = {GPU_TEST(eager, 2), GPU_TEST(captured, 2),
                                     GPU_TEST(other_memory, 2)};
    return gpu_world_run(tests, sizeof tests / sizeof *tests);
}
