/*
 * Ranks with a GPU each, for the tests on GPUs: threads of one process, on 1 to as many ranks as
 * there are GPUs (at most 4) one after the other, or under mpirun one process a GPU. Without a GPU
 * for every rank, programs exit with 77. A sub-test that hangs or crashes ends the program with its
 * name.
 *
 * GPU_WATCHDOG: seconds that a sub-test may take, 60 by default. GPU_SEED: the seed, otherwise the
 * time. GPU_ONLY: only sub-tests with this in their name. GPU_SIZE: only so many ranks, as threads.
 */
#ifndef ALNICO_TESTS_GPU_SUPPORT_WORLD_H
#define ALNICO_TESTS_GPU_SUPPORT_WORLD_H

#include "tests/gpu/support/gpu.h"
#include "tests/support/ranks.h"

enum { GPU_RANKS = 4 }; /* at most, as threads */

struct gpu_rank {
    int rank, size;
    int device; /* its GPU, which is current */
    uint64_t seed;
    alnico_bootstrap_t bootstrap;
    bool mpi; /* a process of mpirun */
};

struct gpu_test {
    const char *name;
    void (*body)(struct gpu_rank *);
    int least; /* ranks that it needs */
};

#define GPU_TEST(body, least)                                                                      \
    {                                                                                              \
#body, body, least                                                                         \
    }

/* Runs the tests in this order and returns the exit status; ranks are threads, or processes if
 * mpirun started this one. A line a test: its name, ranks, seconds. */
int gpu_world_run(const struct gpu_test *tests, int number);

/* Sets what has to be in the environment before CUDA, NCCL and the library read it; gpu_world_run
 * does it too. */
void gpu_world_prepare(void);

/* A number from the environment, or the default. */
int gpu_number(const char *variable, int otherwise);

/* All ranks exchange blocks, or wait for each other, outside the library. */
void gpu_allgather(struct gpu_rank *rank, const void *mine, void *all, size_t bytes);
void gpu_barrier(struct gpu_rank *rank);

/* Adds to the line of the test that runs, from rank 0. */
__attribute__((format(printf, 2, 3))) void gpu_note(struct gpu_rank *rank, const char *format, ...);

/* Ends the process, naming the place, unless CUDA says that all is well. */
#define CUDA(expr) gpu_world_require((expr), #expr, __FILE__, __LINE__)
void gpu_world_require(cudaError_t status, const char *text, const char *file, int line);

/* A communicator over all ranks on their GPUs, and one on the CPU's inline stream; the test fails
 * if it cannot be made. */
alnico_comm_t gpu_comm(struct gpu_rank *rank, cudaStream_t stream);
alnico_comm_t gpu_twin(struct gpu_rank *rank);

#endif
