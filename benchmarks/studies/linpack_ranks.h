/* Linpack on ranks: blocked LU of [A | b] over broadcasts, and what it is checked by. Ranks are threads
 * of the process. */
#ifndef ALNICO_BENCHMARKS_STUDIES_LINPACK_RANKS_H
#define ALNICO_BENCHMARKS_STUDIES_LINPACK_RANKS_H

#include <stdbool.h>
#include <stdint.h>

/* One run: its numbers, and what came of it. */
struct linpack_run {
    int size, block, threads; /* threads: of OpenBLAS, for each rank */
    bool check;               /* the residual is computed */
    uint64_t seed;
    double seconds, residual;
};

/* Fills in the result. */
void linpack_ranks_run(struct linpack_run *run, int ranks);

/* A column of [A | b], the same for all who ask: size numbers. */
void linpack_column(const struct linpack_run *run, int column, double *out);

/* HPL's residual of a solution: the largest of A x - b, by epsilon, N, and the sizes of A, x and b. */
double linpack_residual(const struct linpack_run *run, const double *x);

#endif
