/* The values that alnico-perf sends, and the independent reference for what must come back. An
 * input is a pure function of (seed, rank, index), so every rank can work out every other's. Any
 * thread. */
#ifndef ALNICO_TOOLS_PERF_CHECK_H
#define ALNICO_TOOLS_PERF_CHECK_H

#include <alnico/alnico.h>

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct check {
    uint64_t seed;
    int ranks; /* that are combined; 1: a copy */
    alnico_datatype_t type;
    alnico_op_t op;
    int first;    /* the lowest of them */
    size_t shift; /* the index of the first element in their sequences of values */
};

/* The first wrong element of a comparison. */
struct check_fault {
    size_t index;
    double found, expected, tolerance;
};

/* The distance that a float may have from its reference: relative * (what the inputs' sizes reduce
 * to) + absolute. The relative one is (1 + u)^roundings - 1, where u is the unit roundoff. */
struct check_bounds {
    double relative, absolute;
};
struct check_bounds check_bounds(const struct check *check);

/* Writes a rank's first `count` inputs. */
void check_fill(const struct check *check, int rank, void *out, size_t count);

/* Counts those of result[begin..end) that are not the reduction of all ranks' inputs: integers,
 * minimum and maximum exactly, other floats within the bound of their number of roundings. `first`
 * is set if any. */
size_t check_compare(const struct check *check, const void *result, size_t begin, size_t end,
                     struct check_fault *first);

/* A hash of the bytes, to compare ranks bit by bit. */
uint64_t check_hash(const void *data, size_t bytes);

#ifdef __cplusplus
}
#endif

#endif
