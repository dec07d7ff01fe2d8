/*
 * The shared backend's kernels on CUDA: collectives of GPUs that reach no memory of each other, over
 * host memory that all of them map (gpumem/kernel.h). A rank's scratch is a part of it. Its blocks,
 * running and claimed words lie in SHARED_OWN_BYTES of its own GPU's memory. A rank writes to its own
 * part only, except PEER_AT_REPORT. Shared by C and CUDA C.
 */
#ifndef ALNICO_COMM_BACKENDS_SHARED_CUDA_SHARED_CUDA_H
#define ALNICO_COMM_BACKENDS_SHARED_CUDA_SHARED_CUDA_H

#include "comm/gpumem/kernel.h"

/* The algorithms, which are names and costs only, and the backend's slots. */
extern const struct algorithm shared_one_shot, shared_two_shot;
extern const struct backend_ops shared_ops;

enum {
    SHARED_OWN_BYTES = 8192,
    SHARED_AT_WORDS = 4416,  /* struct peer_words of the rank */
    SHARED_AT_FLAGS = 8192,  /* uint64_t [block][2], each in 64 bytes of its own */
    SHARED_AT_SLOTS = 16384, /* two buffers of slots {data, flag, data, flag} */
    SHARED_SLOTS_BYTES = 256 << 10,
    SHARED_BLOCKS = 32, /* of a grid, at most */
    SHARED_DEPTH = 2,   /* places of a block, used in turn */
    SHARED_PLACE_BYTES = 512 * 16,
    SHARED_AREA_BYTES = SHARED_DEPTH * SHARED_BLOCKS * SHARED_PLACE_BYTES,
    SHARED_AT_RESULTS = SHARED_AT_SLOTS + 2 * SHARED_SLOTS_BYTES, /* one area */
    SHARED_AT_INPUTS = SHARED_AT_RESULTS + SHARED_AREA_BYTES      /* one a rank */
};

/* Bytes of a part, whole pages. */
static inline size_t shared_part_bytes(int size)
{
    return peer_divide_up(SHARED_AT_INPUTS + (size_t)size * SHARED_AREA_BYTES, 4096) * 4096;
}

/* Places in the table of kernels. */
enum { SHARED_ONE_SHOT, SHARED_TWO_SHOT, SHARED_KERNELS };

extern const struct peer_kernel shared_kernels[SHARED_KERNELS];

#ifdef __cplusplus
extern "C" {
#endif
peer_function shared_one_shot_function, shared_two_shot_function;
#ifdef __cplusplus
}
#endif

#endif
