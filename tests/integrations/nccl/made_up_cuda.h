/* What tests see of the made-up CUDA besides CUDA's own functions. */
#ifndef ALNICO_TESTS_INTEGRATIONS_NCCL_MADE_UP_CUDA_H
#define ALNICO_TESTS_INTEGRATIONS_NCCL_MADE_UP_CUDA_H

#include <alnico/alnico.h>
#include <cuda_runtime_api.h>
#include <stdatomic.h>

/* Streams that were created and not destroyed; factors of reductions that are in a GPU's memory. */
extern atomic_int made_up_streams, made_up_factors;

/* Which stream the latest communicator of each rank was given last. */
extern void *_Atomic made_up_current[8];

/* Alnico's stream behind one; NULL is the default stream of the GPU. */
void *made_up_stream(cudaStream_t stream, int device);

#endif
