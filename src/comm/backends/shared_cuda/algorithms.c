/* The shared backend's row in the registry, in every build: GPUs through the host's memory. */
#include "comm/backends/backend.h"
#include "comm/backends/shared_cuda/shared_cuda.h"

#include "comm/gpumem/kernel.h"

const struct algorithm shared_one_shot = {
    .name = "shared_one_shot",
    .about = "alpha + 2 (p-1) n beta; vectors posted in host memory, each rank combines all",
};

const struct algorithm shared_two_shot = {
    .name = "shared_two_shot",
    .about = "2 alpha a piece + 2 (p-1)/p n beta; blocks, then results, posted in host memory",
};

static const struct algorithm *const allreduces[] = {&shared_one_shot, &shared_two_shot, NULL};

const struct backend backend_shared = {
    .name = "shared",
    .devices = 1u << ALNICO_DEVICE_CUDA,
    .ranks_least = 2,
    .ranks_most = PEER_GPUS,
    .hosts_most = 1,
    .algorithms = {[ALNICO_ALLREDUCE] = allreduces},
#ifdef ALNICO_HAVE_CUDA
    .ops = &shared_ops,
#endif
};
