/* The algorithms of the peer backend, which are names and costs only, and its slots. */
#ifndef ALNICO_COMM_BACKENDS_PEER_ALGORITHMS_H
#define ALNICO_COMM_BACKENDS_PEER_ALGORITHMS_H

#include "comm/backends/backend.h"

extern const struct algorithm algorithm_one_shot, algorithm_two_shot,
    algorithm_recursive_multiplying;
extern const struct backend_ops peer_ops;

#endif
