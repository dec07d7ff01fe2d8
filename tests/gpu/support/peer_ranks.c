/* Ranks of the peer kernels in one process: memory by cudaMalloc, reached by peer access. */
#include "tests/gpu/support/peer_ranks.h"

#include "device/cuda/driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void peer_require_cuda(int error, const char *text, const char *file, int line)
{
    if (error == cudaSuccess)
        return;
    fprintf(stderr, "%s:%d: %s: %s\n", file, line, text, cudaGetErrorString((cudaError_t)error));
    exit(1);
}

int peer_ranks_gpus(void)
{
    int count = 0, reach;
    if (!cuda_driver() || cudaGetDeviceCount(&count) != cudaSuccess)
        return 0;
    for (int i = 1; i < count; i++)
        if (cudaDeviceCanAccessPeer(&reach, 0, i) != cudaSuccess || !reach)
            return i;
    return count;
}

static void enable_access(int gpus)
{
    for (int i = 0; i < gpus; i++)
        for (int j = 0; j < gpus; j++) {
            if (i == j)
                continue;
            REQUIRE_CUDA(cudaSetDevice(i));
            cudaError_t error = cudaDeviceEnablePeerAccess(j, 0);
            if (error == cudaErrorPeerAccessAlreadyEnabled)
                cudaGetLastError();
            else
                REQUIRE_CUDA(error);
        }
}

static void node_create(struct peer_node *node, int rank, int size, int device, uint64_t timeout_ns)
{
    *node = (struct peer_node){.device = device};
    node->world = (struct peer_world){
        .rank = rank, .size = size, .line_bytes = PEER_LINES_BYTES, .timeout_ns = timeout_ns};
    REQUIRE_CUDA(cudaSetDevice(device));
    REQUIRE_CUDA(cudaStreamCreateWithFlags(&node->stream, cudaStreamNonBlocking));
}

void peer_ranks_create(struct peer_node *nodes, int size, int gpus, uint64_t timeout_ns)
{
    enable_access(gpus);
    for (int r = 0; r < size; r++) {
        struct peer_node *node = &nodes[r];
        node_create(node, r, size, r % gpus, timeout_ns);
        REQUIRE_CUDA(peer_kernels_load(peer_cuda_kernels, PEER_CUDA_KERNELS, size, &node->functions,
                                       &node->world.modern));
        REQUIRE_CUDA(cudaHostAlloc((void **)&node->words, sizeof *node->words,
                                   cudaHostAllocMapped | cudaHostAllocPortable));
        REQUIRE_CUDA(cudaHostGetDevicePointer((void **)&node->world.words, node->words, 0));
        REQUIRE_CUDA(cudaMalloc((void **)&node->world.scratch[r], PEER_SCRATCH_BYTES));
    }
    for (int r = 0; r < size; r++)
        for (int q = 0; q < size; q++)
            nodes[r].world.scratch[q] = nodes[q].world.scratch[q];
    for (int r = 0; r < size; r++)
        nodes[r].world.own = nodes[r].world.scratch[r];
    peer_ranks_clear(nodes, size, 1);
}

void peer_ranks_create_shared(struct peer_node *nodes, int size, int gpus, uint64_t timeout_ns)
{
    for (int r = 0; r < size; r++) {
        struct peer_node *node = &nodes[r];
        node_create(node, r, size, r % gpus, timeout_ns);
        REQUIRE_CUDA(peer_kernels_load(shared_kernels, SHARED_KERNELS, size, &node->functions,
                                       &node->world.modern));
        REQUIRE_CUDA(cudaMalloc((void **)&node->world.own, SHARED_OWN_BYTES));
        REQUIRE_CUDA(cudaHostAlloc((void **)&node->part, shared_part_bytes(size),
                                   cudaHostAllocMapped | cudaHostAllocPortable));
        node->words = (struct peer_words *)(void *)(node->part + SHARED_AT_WORDS);
    }
    for (int r = 0; r < size; r++) {
        struct peer_world *world = &nodes[r].world;
        REQUIRE_CUDA(cudaSetDevice(nodes[r].device));
        for (int q = 0; q < size; q++)
            REQUIRE_CUDA(cudaHostGetDevicePointer((void **)&world->scratch[q], nodes[q].part, 0));
        world->words = (struct peer_words *)(void *)(world->scratch[r] + SHARED_AT_WORDS);
    }
    peer_ranks_clear(nodes, size, 1);
}

static void node_clear(struct peer_node *node, int rank, int size, uint64_t epoch)
{
    REQUIRE_CUDA(cudaSetDevice(node->device));
    if (node->part) {
        REQUIRE_CUDA(peer_scratch_clear(node->world.own, SHARED_OWN_BYTES, epoch));
        memset(node->part, 0, shared_part_bytes(size));
    } else {
        REQUIRE_CUDA(peer_scratch_clear(node->world.scratch[rank], PEER_SCRATCH_BYTES, epoch));
        memset(node->words, 0, sizeof *node->words);
    }
}

void peer_ranks_clear(struct peer_node *nodes, int size, uint64_t epoch)
{
    for (int r = 0; r < size; r++)
        node_clear(&nodes[r], r, size, epoch);
}

void peer_ranks_destroy(struct peer_node *nodes, int size)
{
    for (int r = 0; r < size; r++) {
        REQUIRE_CUDA(cudaSetDevice(nodes[r].device));
        REQUIRE_CUDA(cudaStreamDestroy(nodes[r].stream));
        REQUIRE_CUDA(cudaFree(nodes[r].world.own));
        REQUIRE_CUDA(cudaFreeHost(nodes[r].part ? (void *)nodes[r].part : nodes[r].words));
    }
}
