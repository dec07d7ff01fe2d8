/* A long run of mixed allreduces. Every rank calls soak_body with the same struct soak; all draw
 * the same numbers. */
#ifndef ALNICO_TESTS_SOAK_SOAK_H
#define ALNICO_TESTS_SOAK_SOAK_H

#include <alnico/alnico.h>

#include <stdint.h>

struct soak {
    uint64_t seed;
    double seconds;      /* about, but not before memory could be measured */
    uint64_t operations; /* at most, including those of other lengths */
    bool streams;        /* also a communicator on a stream */
};

/* Collective over the ranks of `world`, which it does not destroy. The process ends if a value is
 * wrong, a call fails, or resident memory grows by 1 MB after the first SOAK_SETTLED operations. */
enum { SOAK_SETTLED = 10000 };
void soak_body(alnico_comm_t world, const struct soak *soak);

#endif
