/* What the conformance suite runs: a batch is a few calls that are in flight together, each on one
 * of several communicators. A batch is a text too, which `alnico-conformance --case` takes. Pure;
 * any thread. */
#ifndef ALNICO_TESTS_CONFORMANCE_CASE_H
#define ALNICO_TESTS_CONFORMANCE_CASE_H

#include <alnico/alnico.h>

#include <stdint.h>

/* ---- One call ---- */

/* The communicators; lane.c says what each is. */
enum lane_name { LANE_WORLD, LANE_TWIN, LANE_HALF, LANE_STREAM, LANE_SHARED, LANE_REVERSED, LANES };

/* Where the input stands: in a buffer apart, or in place, by ALNICO_IN_PLACE or the address itself;
 * mixed: each rank as it likes. */
enum place { PLACE_APART, PLACE_NAMED, PLACE_ADDRESS, PLACE_MIXED, PLACES };

/* The blocking call, or the nonblocking one and alnico_wait, alnico_test until it is done,
 * alnico_request_synchronize, or alnico_synchronize, after which alnico_test finds it done. */
enum ending { END_BLOCKING, END_WAIT, END_TEST, END_HOST, END_COMM, ENDS };

/* Elements of the ranks' blocks around `count`: all as many; up to twice as many; most none; one
 * rank's only; more and more; none at all. */
enum pattern {
    PATTERN_EQUAL,
    PATTERN_RANDOM,
    PATTERN_SPARSE,
    PATTERN_LONE,
    PATTERN_RAMP,
    PATTERN_NONE,
    PATTERNS
};

/* Displacements: NULL; those of packed blocks; with gaps; with gaps and in any order. */
enum layout { LAYOUT_NULL, LAYOUT_PACKED, LAYOUT_GAPS, LAYOUT_SHUFFLED, LAYOUTS };

enum { ALGORITHM_BYTES = 32, TRIALS = 8, RANKS_MOST = 64, MESSAGES_MOST = 24 };

struct trial {
    int operation; /* in operations[] */
    int lane, place, ending, pattern, layout;
    int type, op;
    char algorithm[ALGORITHM_BYTES]; /* "": by the table */
    uint64_t late;                   /* a nonblocking call ends after all calls of the batch */
    uint64_t root, count;
    uint64_t messages; /* of those operations */
    uint64_t nan;    /* of reductions of floats: some inputs are NaN, and so must the results be */
    uint64_t offset; /* elements from an aligned address to the buffers */
    uint64_t registered; /* the buffers lie in registered memory */
    uint64_t salt;       /* of the data, the counts and the displacements */
};

struct batch {
    int ranks, threads; /* that call: each has communicators of its own */
    int number;
    struct trial trial[TRIALS];
};

/* ---- Texts ---- */

/* "ranks=4; operation=reduce type=float32 root=1 count=100 salt=7; operation=barrier lane=twin":
 * first what the batch has, then its calls; what is 0 or the first of its kind is left out. Returns
 * `text`. */
const char *batch_print(const struct batch *batch, char *text, size_t bytes);

/* The reverse; false with the reason in `error` if it is none. */
bool batch_parse(const char *text, struct batch *out, char *error, size_t bytes);

#endif
