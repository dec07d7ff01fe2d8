/*
 * The peer backend's kernels on CUDA: collectives of 2 to 8 GPUs of one host over scratch in GPU
 * memory that all of them map (gpumem/kernel.h). Shared by C and CUDA C.
 */
#ifndef ALNICO_COMM_BACKENDS_PEER_CUDA_PEER_CUDA_H
#define ALNICO_COMM_BACKENDS_PEER_CUDA_PEER_CUDA_H

#include "comm/gpumem/kernel.h"

/* The algorithms, which are names and costs only, and the backend's slots. */
extern const struct algorithm peer_cuda_one_shot, peer_cuda_one_shot_line, peer_cuda_two_shot_line,
    peer_cuda_two_shot_direct, peer_cuda_two_shot_staged, peer_cuda_recursive_doubling,
    peer_cuda_one_shot_direct, peer_cuda_exchange;
extern const struct backend_ops peer_cuda_ops;

enum { PEER_LINE_PAYLOAD = 120 /* of 128 bytes: the last 8 are the flag */ };

/* The backend's own buffers in a rank's scratch. */
enum {
    PEER_AT_BARRIER = 4608, /* uint64_t [rank]: what an allgather moves that is a barrier */
    PEER_AT_STARTS = 8192, /* uint64_t [block][rank]: that block of that rank has begun the epoch */
    PEER_AT_ENDS = 16384,  /* the same: it has done all its stores */
    PEER_AT_LL = 65536,    /* two buffers of slots {data, flag, data, flag} */
    PEER_LL_BYTES = 2 << 20,
    PEER_AT_MESSAGES = PEER_AT_LL + 2 * PEER_LL_BYTES, /* peer_cuda/messages.h */
    PEER_MESSAGES_BYTES = (6 << 20) + (64 << 10),
    PEER_AT_LINES =
        PEER_AT_MESSAGES + PEER_MESSAGES_BYTES, /* two buffers, of peer_world's line_bytes */
    PEER_LINES_BYTES = 10 << 20,
    PEER_LINES_LEAST =
        PEER_LINES_BYTES >> 5, /* where a limit leaves no more: 8 ranks have a block */
    PEER_SCRATCH_BYTES = PEER_AT_LINES + 2 * PEER_LINES_BYTES
};

/* Places in the table of kernels. */
enum {
    PEER_CUDA_ONE_SHOT,
    PEER_CUDA_ONE_SHOT_LINE,
    PEER_CUDA_TWO_SHOT_LINE,
    PEER_CUDA_TWO_SHOT_STAGED,
    PEER_CUDA_TWO_SHOT_DIRECT,
    PEER_CUDA_RECURSIVE_DOUBLING,
    PEER_CUDA_ALLREDUCES, /* up to here */
    PEER_CUDA_ALLGATHER_LINE = PEER_CUDA_ALLREDUCES,
    PEER_CUDA_ALLTOALL_LINE,
    PEER_CUDA_BROADCAST_LINE, /* one block: send at the root, recv elsewhere */
    PEER_CUDA_REDUCE_SCATTER_LINE,
    PEER_CUDA_ALLGATHER_DIRECT,
    PEER_CUDA_ALLTOALL_DIRECT,
    PEER_CUDA_REDUCE_SCATTER_DIRECT,
    PEER_CUDA_MESSAGES_FEW, /* peer_cuda/messages.h */
    PEER_CUDA_MESSAGES_MANY,
    PEER_CUDA_KERNELS
};

extern const struct peer_kernel peer_cuda_kernels[PEER_CUDA_KERNELS];

#ifdef __cplusplus
extern "C" {
#endif
peer_function peer_one_shot_function, peer_one_shot_line_function, peer_two_shot_function,
    peer_doubling_function, peer_allgather_line_function, peer_alltoall_line_function,
    peer_broadcast_line_function, peer_reduce_scatter_line_function, peer_two_shot_direct_function,
    peer_reduce_scatter_direct_function, peer_move_direct_function, peer_messages_few_function,
    peer_messages_many_function;
#ifdef __cplusplus
}
#endif

#endif
