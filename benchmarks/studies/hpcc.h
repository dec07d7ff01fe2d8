/* HPC Challenge (Debian's package hpcc) beside the studies: its Linpack, STREAM and products, in
 * processes of this machine over the OpenBLAS of this program. Main thread. */
#ifndef ALNICO_BENCHMARKS_STUDIES_HPCC_H
#define ALNICO_BENCHMARKS_STUDIES_HPCC_H

#include "benchmarks/studies/study.h"

enum { HPCC_BLOCKS = 16 };

/* One run, and what came of it. */
struct hpcc {
    int size, ranks, threads; /* Linpack's N on a grid of 1 x ranks, each with so many threads */
    const int *blocks;        /* Linpack runs with each */
    int count;                /* of them, at most HPCC_BLOCKS */
    double gflops[HPCC_BLOCKS];
    double triad_gbytes, dgemm_gflops; /* a second, of all ranks at the same time */
};

/* A row of an option table: the member, a bool, says whether hpcc runs beside the study. */
extern const char *const hpcc_choices[];
#define HPCC_VERSUS(type, member)                                                                  \
    {                                                                                              \
        .name = "versus", .value = "hpcc", .kind = OPTION_CHOICE,                                  \
        .help = "runs Debian's HPC Challenge by turns with it", .initial = "none",                 \
        OPTION_FIELD(type, member), .choices = hpcc_choices                                        \
    }

/* Ends the study with 77 unless hpcc and the Open MPI that it needs are installed. */
void hpcc_require(void);

/* Fails the program if hpcc or one of its checks does. */
void hpcc_run(struct hpcc *hpcc);

#endif
