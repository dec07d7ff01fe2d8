/* Fair timing of several candidates in one process: short blocks of calls, taken in turns, the
 * order reversed every repetition, ranks aligned before each block. Main thread, collective over
 * the world. */
#ifndef ALNICO_TOOLS_PERF_MEASURE_H
#define ALNICO_TOOLS_PERF_MEASURE_H

#include <stdbool.h>

struct candidate {
    void (*prepare)(void *context);        /* before each block, not timed; may be NULL */
    void (*run)(void *context, int calls); /* `calls` calls, complete when it returns */
    double (*seconds)(
        void *context); /* what the last run took by a better clock; NULL: the host's */
    void *context;
    /* Set by measure(): microseconds for one call: median over repetitions of the maximum over
     * ranks, and the tenth and ninetieth percentile. */
    double time_us, low_us, high_us;
};

struct measure_plan {
    double seconds;  /* to spend on all candidates together, about */
    long calls;      /* timed calls of each candidate; 0: as many as fit into `seconds` */
    int warmup;      /* calls before anything is timed */
    int block_least; /* calls in a block, whatever they take; unless `calls` asks for less */
};

struct measure_effort {
    int block;       /* calls in a block */
    int repetitions; /* blocks of each candidate */
};

/* Times the candidates; the same on every rank. False if memory is lacking. */
bool measure(struct candidate *candidates, int count, const struct measure_plan *plan,
             struct measure_effort *effort);

/* Doubles in rising order, for qsort. */
int measure_compare(const void *a, const void *b);

/* Seconds on a clock that only grows. */
double measure_now(void);

#endif
