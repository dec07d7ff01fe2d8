/* The command line of alnico-perf. Read before MPI starts, because it says which thread level to
 * ask MPI for. */
#ifndef ALNICO_TOOLS_PERF_OPTIONS_H
#define ALNICO_TOOLS_PERF_OPTIONS_H

#include "tools/common/options.h"
#include "tools/perf/operations.h"

#include <stdint.h>

enum { PERF_ALL = -1, PERF_GPUS = 16, GRAPH_CALLS = 20, GRAPH_CALLS_MOST = 1000 };

struct perf_options {
    const struct perf_operation *operation;
    size_t begin, end;   /* bytes, both measured */
    size_t factor, step; /* one of them is 0 */
    alnico_device_t device;
    long calls;     /* -n; 0: by `seconds` */
    double seconds; /* for each row */
    int warmup;     /* calls */
    int type, op;   /* an enumerator, or PERF_ALL */
    int root;       /* -r; 0 unless the operation has one */
    bool op_given, root_given, threads_given, seed_given;
    const char *algorithm; /* NULL: by the table */
    bool all_algorithms;
    bool check, nonblocking, in_place, overlap, stream;
    const char *peers;   /* of --versus; NULL: none */
    unsigned versus;     /* the same as a mask */
    bool bootstrap;      /* our communicator is made by a callback, not from MPI_COMM_WORLD */
    bool graph;          /* -G: a CUDA graph of `calls` calls is replayed */
    long replays;        /* of -G; 0: by `seconds` */
    bool registered;     /* our buffers are registered */
    bool nccl_memory;    /* our buffers come from ncclMemAlloc instead of cudaMalloc */
    bool host_time;      /* how long the host needs for a call */
    int gpus[PERF_GPUS]; /* of --gpu: one for each rank of a host */
    int gpu_count;       /* 0: the rank's number on its host */
    bool multiple;       /* MPI_THREAD_MULTIPLE instead of SINGLE */
    uint64_t seed;
    const char *json; /* file, or NULL */
};

/* Fills `options`. On a usage error prints what is wrong and exits with 2; after --help exits with
 * 0. */
void perf_options_read(int argc, char **argv, struct perf_options *options);

/* Adds what a report lists of them, as they were given. */
void perf_options_json(const struct perf_options *options, cJSON *object);

#endif
