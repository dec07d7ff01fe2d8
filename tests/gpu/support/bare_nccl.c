/* The same calls of NCCL as in nccl/create.c, and nothing else of the library. */
#include "tests/gpu/support/bare_nccl.h"

#ifdef ALNICO_HAVE_NCCL

#include "comm/backends/nccl/nccl.h"

#include <pthread.h>

enum { FLOATS = 2 << 20 };

struct bare {
    struct gpu_rank *rank;
    cudaStream_t stream;
    ncclUniqueId id;
    ncclComm_t nccl;
    float *memory; /* FLOATS for each of two buffers */
};

#define NCCL(call) require_nccl((call), #call, __LINE__)
static void require_nccl(ncclResult_t result, const char *call, int line)
{
    if (result == ncclSuccess)
        return;
    fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, line, call, ncclGetErrorString(result));
    _Exit(1);
}

int bare_nccl_count(alnico_comm_t comm)
{
    const struct nccl_state *nccl = nccl_state_of(comm);
    return nccl ? (nccl->plain != NULL) + (nccl->symmetric != NULL) : 0;
}

static void *join(void *argument)
{
    struct bare *b = argument;
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    CUDA(cudaSetDevice(b->rank->device));
    config.blocking = 1;
    NCCL(ncclCommInitRankConfig(&b->nccl, b->rank->size, b->id, b->rank->rank, &config));
    return NULL;
}

static void call_all(const struct bare *b, size_t count)
{
    float *from = b->memory, *to = from + FLOATS;
    size_t block = count / (size_t)b->rank->size;
    NCCL(ncclAllReduce(from, to, count, ncclFloat32, ncclSum, b->nccl, b->stream));
    NCCL(ncclBroadcast(from, to, count, ncclFloat32, 0, b->nccl, b->stream));
    NCCL(ncclReduce(from, to, count, ncclFloat32, ncclSum, 0, b->nccl, b->stream));
    NCCL(ncclAllGather(from, to, block, ncclFloat32, b->nccl, b->stream));
    NCCL(ncclReduceScatter(from, to, block, ncclFloat32, ncclSum, b->nccl, b->stream));
    CUDA(cudaStreamSynchronize(b->stream));
}

static void *connect_all(void *argument)
{
    const struct bare *b = argument;
    CUDA(cudaSetDevice(b->rank->device));
    for (size_t count = 16; count <= FLOATS; count *= 16)
        call_all(b, count);
    return NULL;
}

static void on_a_thread(void *(*body)(void *), struct bare *b)
{
    pthread_t thread;
    REQUIRE(pthread_create(&thread, NULL, body, b) == 0);
    REQUIRE(pthread_join(thread, NULL) == 0);
}

void bare_nccl_come_and_go(struct gpu_rank *rank, cudaStream_t stream)
{
    struct bare b = {.rank = rank, .stream = stream};
    ncclUniqueId mine = {{0}}, all[GPU_RANKS];
    REQUIRE(rank->size <= GPU_RANKS);
    if (rank->rank == 0)
        NCCL(ncclGetUniqueId(&mine));
    gpu_allgather(rank, &mine, all, sizeof mine);
    b.id = all[0];
    CUDA(cudaMalloc((void **)&b.memory, 2 * FLOATS * sizeof(float)));
    CUDA(cudaMemset(b.memory, 0, 2 * FLOATS * sizeof(float)));
    on_a_thread(join, &b);
    on_a_thread(connect_all, &b);
    call_all(&b, 4096);
    NCCL(ncclCommDestroy(b.nccl));
    CUDA(cudaFree(b.memory));
}

#else

int bare_nccl_count(alnico_comm_t comm)
{
    (void)comm;
    return 0;
}

void bare_nccl_come_and_go(struct gpu_rank *rank, cudaStream_t stream)
{
    (void)rank, (void)stream;
}

#endif
