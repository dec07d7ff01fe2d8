/* The row of the peer backend on GPUs in the registry, in every build: kernels store into each
 * other's memory. Here alpha is the time for a cache line to get from one GPU to another. */
#include "comm/backends/backend.h"
#include "comm/backends/peer_cuda/peer_cuda.h"

const struct algorithm peer_cuda_one_shot = {
    .name = "one_shot",
    .about = "alpha + (p-1) n (beta + gamma); each rank combines all vectors itself",
};

const struct algorithm peer_cuda_one_shot_line = {
    .name = "one_shot_line",
    .about = "one_shot in lines of 128 bytes with one flag each: 16/15 of the bytes instead of 2",
};

const struct algorithm peer_cuda_two_shot_line = {
    .name = "two_shot_line",
    .about = "2 alpha + 2 (p-1)/p n beta; blocks, then results, pushed in lines of 128 bytes",
};

const struct algorithm peer_cuda_two_shot_direct = {
    .name = "two_shot_direct",
    .about = "2 barriers + 2 (p-1)/p n beta; loads from and stores to registered buffers",
};

const struct algorithm peer_cuda_two_shot_staged = {
    .name = "two_shot_staged",
    .about = "2 barriers a piece + 2 (p-1)/p n beta + 2 copies; through memory that all map",
};

const struct algorithm peer_cuda_recursive_doubling = {
    .name = "peer_recursive_doubling",
    .about = "ceil(lg p) (alpha + n (beta + gamma)); vectors pushed to one partner a round",
};

const struct algorithm peer_cuda_one_shot_direct = {
    .name = "one_shot_direct",
    .about = "2 barriers + (p-1) n beta; blocks stored to, or loaded from, registered buffers",
};

const struct algorithm peer_cuda_exchange = {
    .name = "exchange",
    .about =
        "alpha + 16/15 n beta; all messages of a group pushed in lines, by rings of the receivers",
};

static const struct algorithm *const allreduces[] = {&peer_cuda_one_shot,
                                                     &peer_cuda_one_shot_line,
                                                     &peer_cuda_two_shot_line,
                                                     &peer_cuda_two_shot_direct,
                                                     &peer_cuda_two_shot_staged,
                                                     &peer_cuda_recursive_doubling,
                                                     NULL};
static const struct algorithm *const lines[] = {&peer_cuda_one_shot_line, NULL};
static const struct algorithm *const blocks[] = {&peer_cuda_one_shot_line,
                                                 &peer_cuda_one_shot_direct, NULL};
static const struct algorithm *const messages[] = {&peer_cuda_exchange, NULL};

const struct backend backend_peer_cuda = {
    .name = "peer",
    .devices = 1u << ALNICO_DEVICE_CUDA,
    .ranks_least = 2,
    .ranks_most = PEER_GPUS,
    .hosts_most = 1,
    .algorithms =
        {
            [ALNICO_ALLREDUCE] = allreduces,
            [ALNICO_BROADCAST] = lines,
            [ALNICO_ALLGATHER] = blocks,
            [ALNICO_REDUCE_SCATTER] = blocks,
            [ALNICO_ALLTOALL] = blocks,
            [ALNICO_BARRIER] = lines,
            [ALNICO_SENDRECV] = messages,
        },
#ifdef ALNICO_HAVE_CUDA
    .ops = &peer_cuda_ops,
#endif
};
