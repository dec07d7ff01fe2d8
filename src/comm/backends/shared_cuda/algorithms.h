/* The algorithms of the shared backend, which are names and costs only, and its slots. */
#ifndef ALNICO_COMM_BACKENDS_SHARED_CUDA_ALGORITHMS_H
#define ALNICO_COMM_BACKENDS_SHARED_CUDA_ALGORITHMS_H

#include "comm/backends/backend.h"

extern const struct algorithm shared_one_shot, shared_two_shot;
extern const struct backend_ops shared_ops;

#endif
