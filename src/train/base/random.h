/* Random numbers that are the same on every machine, on CPUs and GPUs: SplitMix64 (Steele, Lea, Flood
 * 2014). */
#ifndef ALNICO_TRAIN_BASE_RANDOM_H
#define ALNICO_TRAIN_BASE_RANDOM_H

#include <stdint.h>

#ifdef __CUDACC__
#define RANDOM_FUNCTION __host__ __device__ static inline
#else
#define RANDOM_FUNCTION static inline
#endif

/* The next 64 bits of a generator, whose whole state is one word. */
RANDOM_FUNCTION uint64_t random_next(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* A number in [0, 1), a multiple of 2^-53. */
RANDOM_FUNCTION double random_unit(uint64_t *state)
{
    return (double)(random_next(state) >> 11) * 0x1p-53;
}

/* The state of the index-th of many unrelated generators of one seed. */
RANDOM_FUNCTION uint64_t random_stream(uint64_t seed, uint64_t index)
{
    uint64_t state = seed;
    state = random_next(&state) ^ index;
    return random_next(&state);
}

#endif
