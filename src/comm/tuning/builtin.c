/* The built-in table. docs/performance.md says how the rows were measured. */
#include "comm/tuning/tuning.h"

#include <limits.h>
#include <stdint.h>

/* Ranks and GPUs of one host: as many as the backends take that share its memory. */
enum { PEER_RANKS = 64, PEER_GPUS = 8 };

/* In the order of struct tuning_row. */
#define FULL_ROW(COLLECTIVE, DEVICE, RANKS, HOSTS, BYTES, MODES_, BACKEND, ALGORITHM, CHUNK,       \
                 BLOCKS)                                                                           \
    {                                                                                              \
        ALNICO_##COLLECTIVE, ALNICO_DEVICE_##DEVICE, RANKS, HOSTS, BYTES, MODES_, BACKEND,         \
            ALGORITHM, CHUNK, BLOCKS                                                               \
    }
#define ROW(COLLECTIVE, DEVICE, RANKS, HOSTS, BYTES, BACKEND, ALGORITHM, CHUNK)                    \
    FULL_ROW(COLLECTIVE, DEVICE, RANKS, HOSTS, BYTES, 0, BACKEND, ALGORITHM, CHUNK, 0)
#define PEER_ROW(RANKS, BYTES, ALGORITHM) SHARED(ALLREDUCE, RANKS, BYTES, ALGORITHM)
#define SHARED(COLLECTIVE, RANKS, BYTES, ALGORITHM)                                                \
    ROW(COLLECTIVE, CPU, RANKS, 1, BYTES, "peer", ALGORITHM, 64 << 10)
#define HOST_ROW(RANKS, HOSTS, BYTES, ALGORITHM, CHUNK)                                            \
    ROW(ALLREDUCE, CPU, RANKS, HOSTS, BYTES, "host", ALGORITHM, CHUNK)
#define CUDA_ROW(BACKEND, RANKS, HOSTS, BYTES, ALGORITHM, CHUNK)                                   \
    ROW(ALLREDUCE, CUDA, RANKS, HOSTS, BYTES, BACKEND, ALGORITHM, CHUNK)
#define GPU_ROW(RANKS, BYTES, ALGORITHM, BLOCKS, MODES_)                                           \
    FULL_ROW(ALLREDUCE, CUDA, RANKS, 1, BYTES, MODES_, "peer", ALGORITHM, 64 << 10, BLOCKS)
#define LINE_ROW(COLLECTIVE, BYTES, BLOCKS)                                                        \
    FULL_ROW(COLLECTIVE, CUDA, PEER_GPUS, 1, BYTES, 0, "peer", "one_shot_line", 64 << 10, BLOCKS)
#define DIRECT_ROW(COLLECTIVE, BLOCKS)                                                             \
    FULL_ROW(COLLECTIVE, CUDA, PEER_GPUS, 1, SIZE_MAX, MODE_REGISTERED, "peer", "one_shot_direct", \
             64 << 10, BLOCKS)
#define NCCL_ROW(COLLECTIVE, ALGORITHM)                                                            \
    ROW(COLLECTIVE, CUDA, INT_MAX, INT_MAX, SIZE_MAX, "nccl", ALGORITHM, 64 << 10)
#define AWARE_ROW(COLLECTIVE, ALGORITHM, CHUNK)                                                    \
    ROW(COLLECTIVE, CUDA, INT_MAX, INT_MAX, SIZE_MAX, "aware", ALGORITHM, CHUNK)
#define HIERARCHICAL_ROW(COLLECTIVE, CHUNK)                                                        \
    ROW(COLLECTIVE, CUDA, INT_MAX, INT_MAX, SIZE_MAX, "hierarchical", "hierarchical", CHUNK)
#define CAPTURED_MESSAGES(RANKS, HOSTS, BACKEND, ALGORITHM)                                        \
    FULL_ROW(SENDRECV, CUDA, RANKS, HOSTS, SIZE_MAX, MODE_CAPTURED, BACKEND, ALGORITHM, 64 << 10, 0)

/* Messages through the host, whatever the device is. */
#define HOSTS_MESSAGES(COLLECTIVE, RANKS, HOSTS, BYTES, ALGORITHM, CHUNK)                          \
    ROW(COLLECTIVE, CPU, RANKS, HOSTS, BYTES, "host", ALGORITHM, CHUNK),                           \
        ROW(COLLECTIVE, CUDA, RANKS, HOSTS, BYTES, "host", ALGORITHM, CHUNK)
#define MESSAGES(COLLECTIVE, RANKS, BYTES, ALGORITHM, CHUNK)                                       \
    HOSTS_MESSAGES(COLLECTIVE, RANKS, INT_MAX, BYTES, ALGORITHM, CHUNK)
#define ONE_HOST(COLLECTIVE, BYTES, ALGORITHM, CHUNK)                                              \
    HOSTS_MESSAGES(COLLECTIVE, INT_MAX, 1, BYTES, ALGORITHM, CHUNK)

/* On one host shared memory is ahead of messages at every size; of its two ways the one-shot is
 * until reading everybody's vector costs more than a second exchange.
 *
 * Over messages two ranks exchange halves of a chunk, others a half and then quarters: up to 8 KB
 * the MPIs of one host send at once instead of asking the receiver first, which is worth more than
 * fewer messages are.
 *
 * Over several hosts each rank's share of the vector passes the network only, or where messages cost
 * more than bytes, a leader's vector, in chunks that are worth their messages: measured over TCP on 2,
 * 3, 4 and 6 hosts (benchmarks/hosts, benchmarks/several_hosts), the bounds in bytes of others
 * extrapolated from simulated machines. Doubling sends a vector once for each round, and both doubling
 * and halving fold the hosts beyond a power of two, which a ring does not.
 *
 * GPUs of one host store into each other's memory until NCCL's ring fills the links as well, and
 * beyond that where NCCL has not the operation or is not made yet; where neither works, they store
 * into the host's, and between hosts messages go through it, or from one GPU's memory to the other's where
 * the transport takes that, which is not measured. Short vectors are combined on the host, which costs no
 * kernel a round. */
const struct tuning_row tuning_builtin[] = {
    PEER_ROW(2, SIZE_MAX, "one_shot"),
    PEER_ROW(4, 2 << 10, "one_shot"),
    PEER_ROW(4, SIZE_MAX, "two_shot"),
    PEER_ROW(8, 256, "one_shot"),
    PEER_ROW(8, 512, "recursive_multiplying"),
    PEER_ROW(8, SIZE_MAX, "two_shot"),
    PEER_ROW(16, 32, "one_shot"),
    PEER_ROW(16, 128, "recursive_multiplying"),
    PEER_ROW(16, SIZE_MAX, "two_shot"),
    PEER_ROW(PEER_RANKS, 256, "recursive_multiplying"),
    PEER_ROW(PEER_RANKS, SIZE_MAX, "two_shot"),
    HOST_ROW(INT_MAX, 1, 4 << 10, "recursive_doubling", 4 << 10),
    HOST_ROW(2, INT_MAX, 32 << 10, "recursive_doubling", 32 << 10),
    HOST_ROW(2, INT_MAX, SIZE_MAX, "rabenseifner", 1536 << 10),
    HOST_ROW(INT_MAX, 1, SIZE_MAX, "rabenseifner", 32 << 10),
    HOST_ROW(INT_MAX, INT_MAX, 16 << 10, "hierarchical_leaders", 16 << 10),
    HOST_ROW(INT_MAX, INT_MAX, 32 << 10, "hierarchical_doubling", 32 << 10),
    HOST_ROW(INT_MAX, 3, 64 << 10, "hierarchical_doubling", 64 << 10),
    HOST_ROW(INT_MAX, 2, SIZE_MAX, "hierarchical_rabenseifner", 256 << 10),
    HOST_ROW(INT_MAX, 3, SIZE_MAX, "hierarchical_ring", 256 << 10),
    HOST_ROW(INT_MAX, 4, SIZE_MAX, "hierarchical_rabenseifner", 256 << 10),
    HOST_ROW(INT_MAX, 7, 128 << 10, "hierarchical_rabenseifner", 128 << 10),
    HOST_ROW(INT_MAX, 7, SIZE_MAX, "hierarchical_ring", 256 << 10),
    HOST_ROW(INT_MAX, 8, SIZE_MAX, "hierarchical_rabenseifner", 256 << 10),
    HOST_ROW(INT_MAX, INT_MAX, SIZE_MAX, "hierarchical_rabenseifner", 1 << 20),
    GPU_ROW(4, 512, "one_shot_line", 1, 0),
    GPU_ROW(4, 4 << 10, "one_shot_line", 4, 0),
    GPU_ROW(4, 8 << 10, "one_shot_line", 8, 0),
    GPU_ROW(4, 16 << 10, "one_shot_line", 24, 0),
    GPU_ROW(4, 128 << 10, "one_shot_line", 48, 0),
    GPU_ROW(4, 256 << 10, "one_shot_line", 96, 0),
    GPU_ROW(PEER_GPUS, 64 << 10, "one_shot_line", 0, 0), /* more than four GPUs: extrapolated */
    GPU_ROW(2, 512 << 10, "one_shot_line", 72, 0),
    GPU_ROW(PEER_GPUS, 512 << 10, "two_shot_line", 64, 0),
    GPU_ROW(3, 1 << 20, "two_shot_staged", 80, 0),
    GPU_ROW(3, 2 << 20, "two_shot_direct", 48, MODE_REGISTERED),
    GPU_ROW(2, 2 << 20, "two_shot_staged", 80, 0),
    GPU_ROW(3, 2 << 20, "two_shot_line", 64, 0),
    GPU_ROW(PEER_GPUS, 2 << 20, "two_shot_staged", 80, 0),
    GPU_ROW(3, SIZE_MAX, "two_shot_direct", 64, MODE_REGISTERED),
    GPU_ROW(PEER_GPUS, 16 << 20, "two_shot_direct", 64, MODE_REGISTERED),
    GPU_ROW(PEER_GPUS, 64 << 20, "two_shot_direct", 32, MODE_REGISTERED),
    GPU_ROW(PEER_GPUS, 16 << 20, "two_shot_staged", 80, 0),
    GPU_ROW(2, SIZE_MAX, "two_shot_staged", 64, 0),
    CUDA_ROW("nccl", INT_MAX, INT_MAX, SIZE_MAX, "nccl", 64 << 10),
    GPU_ROW(PEER_GPUS, SIZE_MAX, "two_shot_direct", 32, MODE_REGISTERED),
    GPU_ROW(PEER_GPUS, SIZE_MAX, "two_shot_staged", 80, 0),
    CUDA_ROW("shared", PEER_GPUS, 1, 64 << 10, "shared_one_shot", 64 << 10),
    CUDA_ROW("shared", PEER_GPUS, 1, SIZE_MAX, "shared_two_shot", 64 << 10),
    /* On several hosts with several GPUs, where NCCL does not work between them or has not the
     * operation: by the model of the hierarchical algorithms, not measured. A seat's part of 4 MB is a
     * chunk or more of the messages. */
    HIERARCHICAL_ROW(ALLREDUCE, 4 << 20),
    CUDA_ROW("host", INT_MAX, INT_MAX, 16 << 10, "recursive_doubling", 16 << 10),
    AWARE_ROW(ALLREDUCE, "aware_rabenseifner", 4 << 20),
    CUDA_ROW("host", INT_MAX, INT_MAX, SIZE_MAX, "rabenseifner", 512 << 10),
    LINE_ROW(BROADCAST, 64 << 10, 0),
    LINE_ROW(BROADCAST, 512 << 10, 96),
    LINE_ROW(ALLGATHER, 32 << 10, 0),
    LINE_ROW(ALLGATHER, 512 << 10, 96),
    DIRECT_ROW(ALLGATHER, 64),
    LINE_ROW(REDUCE_SCATTER, 32 << 10, 0),
    LINE_ROW(REDUCE_SCATTER, 512 << 10, 96),
    DIRECT_ROW(REDUCE_SCATTER, 64),
    LINE_ROW(ALLTOALL, 32 << 10, 0),
    LINE_ROW(ALLTOALL, 512 << 10, 96),
    DIRECT_ROW(ALLTOALL, 64),
    LINE_ROW(BARRIER, SIZE_MAX, 1),
    NCCL_ROW(REDUCE, "nccl"),
    NCCL_ROW(BROADCAST, "nccl"),
    NCCL_ROW(ALLGATHER, "nccl"),
    NCCL_ROW(ALLGATHERV, "nccl_messages"),
    NCCL_ROW(REDUCE_SCATTER, "nccl"),
    NCCL_ROW(REDUCE_SCATTERV, "nccl"),
    NCCL_ROW(GATHER, "nccl_messages"),
    NCCL_ROW(GATHERV, "nccl_messages"),
    NCCL_ROW(SCATTER, "nccl_messages"),
    NCCL_ROW(SCATTERV, "nccl_messages"),
    NCCL_ROW(ALLTOALL, "nccl_messages"),
    NCCL_ROW(ALLTOALLV, "nccl_messages"),
    NCCL_ROW(BARRIER, "nccl"),
    HIERARCHICAL_ROW(REDUCE, 4 << 20),
    HIERARCHICAL_ROW(BROADCAST, 4 << 20),
    HIERARCHICAL_ROW(ALLGATHER, 4 << 20),
    HIERARCHICAL_ROW(REDUCE_SCATTER, 4 << 20),
    HIERARCHICAL_ROW(BARRIER, 64 << 10),
    /* Two ranks that are capturing both know it. Otherwise messages of different calls must pass
     * each other, which those that one stream carries do not. */
    CAPTURED_MESSAGES(PEER_GPUS, 1, "peer", "exchange"),
    CAPTURED_MESSAGES(INT_MAX, INT_MAX, "nccl", "nccl_messages"),
    /* The other collectives in shared memory: 2, 16 and 32 ranks are measured, 64 in part.
     * Blocks of more than a few KB are faster by messages, which the kernel copies once: the fewer
     * there are, the faster; but not where each waits for the one before and there are 63, since
     * whoever is held up then holds up all. Of what only two ranks know the length of, those two
     * see to that. */
    SHARED(REDUCE, 4, SIZE_MAX, "one_shot"),
    SHARED(REDUCE, 8, 8 << 10, "one_shot"),
    SHARED(REDUCE, 8, SIZE_MAX, "two_shot"),
    SHARED(REDUCE, 16, 256, "recursive_multiplying"), /* fewer lines for the root to read */
    SHARED(REDUCE, 16, 512, "one_shot"),
    SHARED(REDUCE, 32, 512, "recursive_multiplying"),
    ROW(REDUCE, CPU, 32, 1, 2 << 10, "host", "binomial", 64 << 10),
    SHARED(REDUCE, 32, SIZE_MAX, "two_shot"),
    SHARED(REDUCE, PEER_RANKS, 256, "recursive_multiplying"),
    ROW(REDUCE, CPU, PEER_RANKS, 1, 8 << 10, "host", "binomial", 64 << 10),
    SHARED(REDUCE, PEER_RANKS, SIZE_MAX, "two_shot"),
    SHARED(BROADCAST, 2, 16 << 10, "one_shot"),
    ROW(BROADCAST, CPU, 2, 1, SIZE_MAX, "host", "binomial", 16 << 20),
    SHARED(BROADCAST, PEER_RANKS, SIZE_MAX, "one_shot"),
    SHARED(ALLGATHER, 2, 16 << 10, "one_shot"),
    ROW(ALLGATHER, CPU, 2, 1, SIZE_MAX, "host", "ring", 16 << 20),
    SHARED(ALLGATHER, PEER_RANKS, SIZE_MAX, "one_shot"),
    SHARED(ALLGATHERV, 2, 4 << 10, "one_shot"),
    ROW(ALLGATHERV, CPU, 2, 1, SIZE_MAX, "host", "ring", 64 << 10),
    SHARED(ALLGATHERV, PEER_RANKS, SIZE_MAX, "one_shot"),
    SHARED(REDUCE_SCATTER, 32, SIZE_MAX, "one_shot"),
    SHARED(REDUCE_SCATTER, PEER_RANKS, 4, "one_shot"),
    ROW(REDUCE_SCATTER, CPU, PEER_RANKS, 1, 4 << 10, "host", "recursive_halving", 64 << 10),
    SHARED(REDUCE_SCATTER, PEER_RANKS, SIZE_MAX, "one_shot"),
    SHARED(REDUCE_SCATTERV, 2, SIZE_MAX, "one_shot"),
    SHARED(REDUCE_SCATTERV, 32, 16 << 10, "one_shot"),
    ROW(REDUCE_SCATTERV, CPU, 32, 1, SIZE_MAX, "host", "pairwise", 64 << 10),
    SHARED(REDUCE_SCATTERV, PEER_RANKS, 64 << 10, "one_shot"),
    SHARED(GATHER, 8, 8 << 10, "one_shot"),
    ROW(GATHER, CPU, 8, 1, SIZE_MAX, "host", "linear", 16 << 20),
    SHARED(GATHER, 16, 56, "one_shot"),
    SHARED(GATHER, 16, 256, "recursive_multiplying"),
    SHARED(GATHER, 32, 128, "recursive_multiplying"),
    SHARED(GATHER, 32, 128 << 10, "one_shot"),
    SHARED(GATHER, PEER_RANKS, 128, "recursive_multiplying"),
    SHARED(GATHER, PEER_RANKS, 8 << 10, "one_shot"),
    ROW(GATHER, CPU, PEER_RANKS, 1, SIZE_MAX, "host", "linear", 16 << 20),
    SHARED(GATHERV, PEER_RANKS, SIZE_MAX, "one_shot"),
    SHARED(SCATTER, 2, 8 << 10, "one_shot"),
    SHARED(SCATTER, PEER_RANKS, 2 << 10, "one_shot"),
    ROW(SCATTER, CPU, 32, 1, SIZE_MAX, "host", "linear", 16 << 20),
    ROW(SCATTER, CPU, PEER_RANKS, 1, 4 << 10, "host", "linear", 16 << 20),
    ROW(SCATTER, CPU, PEER_RANKS, 1, 64 << 10, "host", "binomial", 16 << 20),
    ROW(SCATTER, CPU, PEER_RANKS, 1, SIZE_MAX, "host", "linear", 16 << 20),
    SHARED(SCATTERV, PEER_RANKS, SIZE_MAX, "one_shot"),
    SHARED(ALLTOALL, 2, 16 << 10, "one_shot"),
    ROW(ALLTOALL, CPU, 2, 1, SIZE_MAX, "host", "pairwise", 16 << 20),
    SHARED(ALLTOALL, 8, SIZE_MAX, "one_shot"),
    SHARED(ALLTOALL, 32, 8 << 10, "one_shot"),
    ROW(ALLTOALL, CPU, 32, 1, SIZE_MAX, "host", "pairwise", 16 << 20),
    SHARED(ALLTOALL, PEER_RANKS, 32 << 10, "one_shot"),
    ROW(ALLTOALL, CPU, PEER_RANKS, 1, SIZE_MAX, "host", "pairwise", 16 << 20),
    SHARED(ALLTOALLV, PEER_RANKS, SIZE_MAX, "one_shot"),
    SHARED(BARRIER, 8, SIZE_MAX, "one_shot"),
    SHARED(BARRIER, PEER_RANKS, SIZE_MAX, "recursive_multiplying"),
    /* And by messages: extrapolated, but for several hosts (benchmarks/several_hosts). What is never
     * cut is followed by what is, for blocks that do not fit. */
    AWARE_ROW(REDUCE, "aware_reduce_scatter_gather", 1 << 20),
    AWARE_ROW(BROADCAST, "aware_scatter_ring_allgather", 1 << 20),
    AWARE_ROW(ALLGATHER, "aware_ring", 1 << 20),
    AWARE_ROW(ALLGATHERV, "aware_ring", 1 << 20),
    AWARE_ROW(REDUCE_SCATTER, "aware_pairwise", 1 << 20),
    AWARE_ROW(REDUCE_SCATTERV, "aware_pairwise", 1 << 20),
    AWARE_ROW(GATHER, "aware_linear", 1 << 20),
    AWARE_ROW(GATHERV, "aware_linear", 1 << 20),
    AWARE_ROW(SCATTER, "aware_linear", 1 << 20),
    AWARE_ROW(SCATTERV, "aware_linear", 1 << 20),
    AWARE_ROW(ALLTOALL, "aware_pairwise", 1 << 20),
    AWARE_ROW(ALLTOALLV, "aware_pairwise", 1 << 20),
    AWARE_ROW(SENDRECV, "aware_direct", 1 << 10),
    MESSAGES(REDUCE, 2, SIZE_MAX, "binomial", 64 << 10),
    ONE_HOST(REDUCE, 8 << 10, "binomial", 64 << 10),
    ONE_HOST(REDUCE, SIZE_MAX, "reduce_scatter_gather", 128 << 10),
    HOSTS_MESSAGES(REDUCE, INT_MAX, 8, SIZE_MAX, "hierarchical_leaders", 256 << 10),
    MESSAGES(REDUCE, INT_MAX, 64 << 10, "hierarchical_leaders", 64 << 10),
    MESSAGES(REDUCE, INT_MAX, SIZE_MAX, "reduce_scatter_gather", 128 << 10),
    MESSAGES(BROADCAST, 2, SIZE_MAX, "binomial", 64 << 10),
    ONE_HOST(BROADCAST, 64 << 10, "binomial", 64 << 10),
    ONE_HOST(BROADCAST, SIZE_MAX, "scatter_ring_allgather", 256 << 10),
    MESSAGES(BROADCAST, INT_MAX, 64 << 10, "hierarchical_leaders", 64 << 10),
    MESSAGES(BROADCAST, INT_MAX, SIZE_MAX, "hierarchical_ring", 256 << 10),
    MESSAGES(ALLGATHER, 2, 2 << 10, "recursive_doubling", 64 << 10),
    MESSAGES(ALLGATHER, 2, SIZE_MAX, "ring", 64 << 10),
    ONE_HOST(ALLGATHER, 2 << 10, "recursive_doubling", 64 << 10),
    ONE_HOST(ALLGATHER, SIZE_MAX, "ring", 64 << 10),
    MESSAGES(ALLGATHER, INT_MAX, 16 << 10, "hierarchical_leaders", 64 << 10),
    MESSAGES(ALLGATHER, INT_MAX, SIZE_MAX, "hierarchical_ring", 256 << 10),
    ONE_HOST(ALLGATHERV, SIZE_MAX, "ring", 64 << 10),
    MESSAGES(ALLGATHERV, INT_MAX, SIZE_MAX, "hierarchical_ring", 256 << 10),
    MESSAGES(REDUCE_SCATTER, 2, 1 << 10, "recursive_halving", 64 << 10),
    MESSAGES(REDUCE_SCATTER, 2, SIZE_MAX, "pairwise", 64 << 10),
    ONE_HOST(REDUCE_SCATTER, 1 << 10, "recursive_halving", 64 << 10),
    ONE_HOST(REDUCE_SCATTER, SIZE_MAX, "pairwise", 64 << 10),
    MESSAGES(REDUCE_SCATTER, INT_MAX, 16 << 10, "hierarchical_leaders", 64 << 10),
    MESSAGES(REDUCE_SCATTER, INT_MAX, SIZE_MAX, "hierarchical_ring", 256 << 10),
    ONE_HOST(REDUCE_SCATTERV, SIZE_MAX, "pairwise", 64 << 10),
    MESSAGES(REDUCE_SCATTERV, INT_MAX, SIZE_MAX, "hierarchical_ring", 256 << 10),
    MESSAGES(GATHER, INT_MAX, 16 << 10, "binomial", 64 << 10),
    MESSAGES(GATHER, INT_MAX, SIZE_MAX, "linear", 256 << 10),
    MESSAGES(GATHERV, INT_MAX, SIZE_MAX, "linear", 256 << 10),
    MESSAGES(SCATTER, INT_MAX, 16 << 10, "binomial", 64 << 10),
    MESSAGES(SCATTER, INT_MAX, SIZE_MAX, "linear", 256 << 10),
    MESSAGES(SCATTERV, INT_MAX, SIZE_MAX, "linear", 256 << 10),
    MESSAGES(ALLTOALL, INT_MAX, 256, "bruck", 64 << 10),
    MESSAGES(ALLTOALL, INT_MAX, SIZE_MAX, "pairwise", 256 << 10),
    MESSAGES(ALLTOALLV, INT_MAX, SIZE_MAX, "pairwise", 256 << 10),
    ONE_HOST(BARRIER, SIZE_MAX, "dissemination", 1 << 10),
    MESSAGES(BARRIER, INT_MAX, SIZE_MAX, "hierarchical_dissemination", 1 << 10),
    MESSAGES(SENDRECV, INT_MAX, SIZE_MAX, "direct", 1 << 10),
};

const int tuning_builtin_count = sizeof tuning_builtin / sizeof *tuning_builtin;
