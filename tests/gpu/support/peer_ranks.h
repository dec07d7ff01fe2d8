/* A world of ranks for the peer kernels without a communicator: in one process, on as many GPUs as
 * there are, several ranks on one GPU where ranks are more. */
#ifndef ALNICO_TESTS_GPU_SUPPORT_PEER_RANKS_H
#define ALNICO_TESTS_GPU_SUPPORT_PEER_RANKS_H

#include "comm/backends/peer_cuda/peer_cuda.h"
#include "comm/backends/shared_cuda/shared_cuda.h"

#include <cuda_runtime_api.h>

struct peer_node {
    int device;
    cudaStream_t stream;
    struct peer_world world;
    struct peer_functions functions;
    struct peer_words *words; /* as the host sees them */
    char *part;               /* in host memory, of the shared kernels' ranks; otherwise NULL */
};

/* Ends the process with the place and the error unless it is cudaSuccess. */
#define REQUIRE_CUDA(expr) peer_require_cuda((int)(expr), #expr, __FILE__, __LINE__)
void peer_require_cuda(int error, const char *text, const char *file, int line);

/* GPUs that reach each other, counted from 0; 0 if there is none. */
int peer_ranks_gpus(void);

/* Rank r is on device r % gpus. Ends the process on failure. */
void peer_ranks_create(struct peer_node *nodes, int size, int gpus, uint64_t timeout_ns);

/* The same for the shared kernels: over host memory. */
void peer_ranks_create_shared(struct peer_node *nodes, int size, int gpus, uint64_t timeout_ns);

void peer_ranks_destroy(struct peer_node *nodes, int size);

/* As new, with `epoch` the next one. Nothing runs. */
void peer_ranks_clear(struct peer_node *nodes, int size, uint64_t epoch);

#endif
