/* The algorithms of the peer backend on GPUs, which are names and costs only, and its slots. */
#ifndef ALNICO_COMM_BACKENDS_PEER_CUDA_ALGORITHMS_H
#define ALNICO_COMM_BACKENDS_PEER_CUDA_ALGORITHMS_H

#include "comm/backends/backend.h"

extern const struct algorithm peer_cuda_one_shot, peer_cuda_one_shot_line, peer_cuda_two_shot_line,
    peer_cuda_two_shot_direct, peer_cuda_two_shot_staged, peer_cuda_recursive_doubling,
    peer_cuda_one_shot_direct, peer_cuda_exchange;
extern const struct backend_ops peer_cuda_ops;

#endif
