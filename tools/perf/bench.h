/* One row of alnico-perf: the same operation by every candidate, timed in turns and checked. Main
 * thread, collective over the world. */
#ifndef ALNICO_TOOLS_PERF_BENCH_H
#define ALNICO_TOOLS_PERF_BENCH_H

#include "tools/perf/check.h"
#include "tools/perf/options.h"
#include "tools/perf/report.h"

struct bench;

/* A device's way to measure. All are collective. */
struct bench_ops {
    /* Makes communicators and buffers, and says which results a row has. */
    void (*open)(struct bench *bench);

    /* Inputs of a type and operation; NULL: each row writes its own. */
    void (*begin)(struct bench *bench, alnico_datatype_t type, alnico_op_t op);

    /* Times and checks the row's size, type and operation, and fills in the rest of it. */
    void (*row)(struct bench *bench, struct perf_row *row);

    void (*close)(struct bench *bench);
};

/* A communicator over the ranks of the world, made as the options say; the device's stream. */
void bench_comm(const struct bench *bench, void *stream, alnico_comm_t *out);

/* A call without buffers and communicator, as the options say; the bench's blocks become its
 * own. */
struct perf_job bench_job(struct bench *bench, size_t count, alnico_datatype_t type,
                          alnico_op_t op);

/* Times the candidates as the options say, and sees how many threads there are. */
void bench_measure(struct bench *bench, struct candidate *candidates, int count,
                   struct measure_effort *effort);

/* A candidate's times for one message of one call. */
void bench_set_times(const struct perf_options *options, struct perf_result *result,
                     const struct candidate *candidate);

/* The values that a part of a result must have. */
struct check bench_check(const struct bench *bench, const struct perf_job *job,
                         const struct perf_part *part);

/* Prints the first wrong element, result[index]; `algorithm` may be NULL. */
void bench_print_fault(const struct bench *bench, const char *algorithm, const struct perf_job *job,
                       size_t index, const struct check_fault *fault);

/* Whether MPI can do this job: its type, its operation, and counts that fit its int. */
bool bench_mpi_can(const struct bench *bench, const struct perf_job *job);

/* Whether this rank's result, by its hash, differs from rank 0's. Says so. */
bool bench_differs(const struct bench *bench, uint64_t hash);

/* The algorithms that the options name, at most PERF_RESULTS; NULL is the library's choice. */
int bench_algorithms(const struct perf_options *options, const char **names);

/* Bytes of the larger buffer of any row. */
size_t bench_capacity(const struct bench *bench);

extern const struct bench_ops bench_cpu;  /* perf/bench.c */
extern const struct bench_ops bench_cuda; /* gpu/cuda.c, in builds with CUDA */

/* The benchmark on this rank. */
struct bench {
    const struct bench_ops *ops;
    struct perf_options options;
    int rank, ranks, hosts;
    const struct perf_mpi *mpi; /* NULL: not asked for */
    bool oversubscribed;        /* a host has more ranks than processing units */
    char *command;
    const char *algorithm[PERF_RESULTS]; /* of each result; NULL: by the table */
    int results;
    struct perf_blocks blocks; /* of the row */
    int threads_before,
        threads; /* of this process: before the first communicator, and most since */

    /* On the CPU. */
    void *send, *recv; /* in place, `send` keeps the input for the next block */
    alnico_stream_t stream;
    alnico_comm_t comm[PERF_RESULTS]; /* one for each algorithm that takes part */

    /* On GPUs. */
    struct gpu_bench *gpu;
    char device[160]; /* a line about the GPU; "": none */
    cJSON *describe;
};

#endif
