/* NCCL's algorithms, which are names only, and the backend's slots. */
#ifndef ALNICO_COMM_BACKENDS_NCCL_ALGORITHMS_H
#define ALNICO_COMM_BACKENDS_NCCL_ALGORITHMS_H

#include "comm/backends/backend.h"

extern const struct algorithm algorithm_nccl, algorithm_nccl_symmetric, algorithm_nccl_messages;
extern const struct backend_ops nccl_ops;

#endif
