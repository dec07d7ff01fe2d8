/* A GPU for each rank: rank r as a thread takes GPU r, a process of mpirun that of its number on
 * its host. All memory is there before the first call, since to allocate some while kernels wait
 * for each other may wait for ever. */
#include "tests/conformance/site.h"
#include "tests/gpu/support/site.h"
#include "tests/support/world.h"

#include <stdlib.h>

enum {
    SLOT_BYTES = (1 << 20) + (1 << 16), /* more than any buffer with its margins */
    SLOTS = 2 * TRIALS,
    HOST_SLOTS = 4 * TRIALS
};

struct site {
    struct rank rank;
    int device, taken;
    struct gpu_arena plain, shared[LANES]; /* shared: registered */
    alnico_registration_t registration[LANES];
    char *host; /* pinned */
    size_t host_used;
};

/* Sets what has to be in the environment before CUDA is used. */
static int cuda_most(void)
{
    gpu_world_prepare();
    return gpu_count();
}

/* What the driver loads for a copy when it is first used, it may load only where no kernel
 * waits. */
static void warm_up(const struct site *site)
{
    cudaStream_t stream;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    CUDA(cudaMemsetAsync(site->plain.base, 0x5a, SLOT_BYTES, stream));
    CUDA(cudaMemcpyAsync(site->host, site->plain.base, SLOT_BYTES, cudaMemcpyDeviceToHost, stream));
    CUDA(cudaMemcpyAsync(site->plain.base, site->host, SLOT_BYTES, cudaMemcpyHostToDevice, stream));
    CUDA(cudaStreamSynchronize(stream));
    CUDA(cudaStreamDestroy(stream));
}

static void *cuda_open(const struct rank *rank, bool mpi)
{
    struct site *site = calloc(1, sizeof *site);
    void *host;
    REQUIRE(site != NULL);
    site->rank = *rank;
    site->device = mpi ? world_local_rank() : rank->rank;
    CUDA(cudaSetDevice(site->device));
    gpu_arena_open(&site->plain, (size_t)SLOTS * SLOT_BYTES, GPU_MALLOC, site->device);
    for (int i = 0; i < LANES; i++)
        gpu_arena_open(&site->shared[i], (size_t)SLOTS * SLOT_BYTES,
                       i % 2 ? GPU_MALLOC : GPU_MAPPED, site->device);
    CUDA(cudaMallocHost(&host, (size_t)HOST_SLOTS * SLOT_BYTES));
    site->host = host;
    warm_up(site);
    return site;
}

/* Memory stays until no other rank maps it. */
static void cuda_close(void *context)
{
    struct site *site = context;
    alnico_bootstrap_t *b = &site->rank.bootstrap;
    char mine = 0, all[RANKS_MOST];
    REQUIRE(b->allgather(b->context, &mine, all, 1) == 0);
    for (int i = 0; i < LANES; i++)
        gpu_arena_close(&site->shared[i]);
    gpu_arena_close(&site->plain);
    CUDA(cudaFreeHost(site->host));
    free(site);
}

static void cuda_enter(void *context)
{
    const struct site *site = context;
    CUDA(cudaSetDevice(site->device));
}

static void *cuda_stream_create(void *site)
{
    cudaStream_t stream;
    (void)site;
    CUDA(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

static void cuda_stream_destroy(void *stream)
{
    CUDA(cudaStreamDestroy(stream));
}

static void cuda_drain(void *stream)
{
    CUDA(cudaStreamSynchronize(stream));
}

/* ---- Memory ---- */

static char *cuda_take(void *context, size_t bytes)
{
    struct site *site = context;
    site->taken++;
    return gpu_arena_take(&site->plain, bytes);
}

static char *cuda_take_host(void *context, size_t bytes)
{
    struct site *site = context;
    char *memory = site->host + site->host_used;
    site->host_used += (bytes + 63) / 64 * 64;
    REQUIRE(site->host_used <= (size_t)HOST_SLOTS * SLOT_BYTES);
    return memory;
}

static char *cuda_take_registered(void *context, int lane, int slot, size_t bytes)
{
    struct site *site = context;
    REQUIRE(bytes <= SLOT_BYTES && slot < SLOTS);
    return site->shared[lane].base + (size_t)slot * SLOT_BYTES;
}

static void cuda_give_all(void *context)
{
    struct site *site = context;
    for (; site->taken > 0; site->taken--)
        gpu_arena_give(&site->plain);
    site->host_used = 0;
}

/* ---- Copies ---- */

/* Not before the call, at least. */
static void cuda_put(void *site, void *stream, struct copy *copy)
{
    (void)site;
    CUDA(cudaMemcpyAsync(copy->to, copy->from, copy->bytes, cudaMemcpyHostToDevice, stream));
    copy->time = ranks_seconds();
}

static void cuda_get(void *site, void *stream, struct copy *copy)
{
    (void)site;
    CUDA(cudaMemcpyAsync(copy->to, copy->from, copy->bytes, cudaMemcpyDeviceToHost, stream));
}

/* ---- Registrations ---- */

static void cuda_lane_open(void *context, int lane, alnico_comm_t comm)
{
    struct site *site = context;
    struct gpu_arena *arena = &site->shared[lane];
    REQUIRE_STATUS(alnico_comm_register(comm, arena->base, arena->bytes, &site->registration[lane]),
                   ALNICO_SUCCESS);
}

static void cuda_lane_close(void *context, int lane, alnico_comm_t comm)
{
    struct site *site = context;
    REQUIRE_STATUS(alnico_comm_deregister(comm, site->registration[lane]), ALNICO_SUCCESS);
}

/* Each lane has a stream of its own but one: what waits on one does not hold up the others. */
const struct site_ops site_cuda = {
    .name = "cuda",
    .device = ALNICO_DEVICE_CUDA,
    .staged = true,
    .calm = true,
    .renew = 32768,
    .most = cuda_most,
    .open = cuda_open,
    .close = cuda_close,
    .enter = cuda_enter,
    .stream_create = cuda_stream_create,
    .stream_destroy = cuda_stream_destroy,
    .drain = cuda_drain,
    .streams = {[LANE_WORLD] = 0,
                [LANE_TWIN] = 1,
                [LANE_HALF] = 2,
                [LANE_STREAM] = 3,
                [LANE_SHARED] = 3,
                [LANE_REVERSED] = 4},
    .take = cuda_take,
    .take_host = cuda_take_host,
    .take_registered = cuda_take_registered,
    .give_all = cuda_give_all,
    .put = cuda_put,
    .get = cuda_get,
    .lane_open = cuda_lane_open,
    .lane_close = cuda_lane_close,
};
