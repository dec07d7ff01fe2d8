/* The command line of alnico-conformance. */
#ifndef ALNICO_TESTS_CONFORMANCE_OPTIONS_H
#define ALNICO_TESTS_CONFORMANCE_OPTIONS_H

#include "tests/conformance/case.h"

struct site_ops;

/* What the self-test breaks, on rank 0, after a few calls: the suite must see it. */
enum sabotage {
    SABOTAGE_NONE,
    SABOTAGE_RESULT, /* an element of a result */
    SABOTAGE_MARGIN, /* a byte behind a buffer */
    SABOTAGE_GAP,    /* a byte between displaced blocks */
    SABOTAGE_INPUT,  /* a byte of what was sent */
    SABOTAGE_BITS,   /* the last bit of an allreduce */
    SABOTAGE_REFUSAL,
    SABOTAGE_BARRIER, /* a barrier ends too early */
    SABOTAGE_ABSENCE, /* a call is left out */
    SABOTAGE_CRASH,
    SABOTAGES
};

struct options {
    uint64_t seed, cases; /* cases: random calls; 0: by time */
    double seconds;       /* 0: by number */
    bool table, random;
    uint64_t every;              /* calls of the table: one in so many */
    int ranks;                   /* 0: from 1 to 6 */
    const struct site_ops *site; /* where the buffers are */
    int only;                    /* operation; -1: all */
    const char *text;            /* of --case, or NULL */
    struct batch batch;          /* its batch */
    int forks;                   /* ranks of each process without MPI; 0: they are threads */
    bool single;                 /* MPI_THREAD_SINGLE */
    bool mpi;                    /* under mpirun */
    int patience;                /* seconds for one batch */
    enum sabotage sabotage;
};

enum { RANKS_DEFAULT = 6 };

/* The name of what is broken. */
const char *options_sabotage(const struct options *options);

/* Ends the program on --help or a usage error. */
void options_read(int argc, char **argv, struct options *out);

#endif
