/* How a row of alnico-perf is measured on the CPU: ours and the peer's calls as contestants, overlap with
 * computation, and the check afterwards. Only public calls are timed. Main thread of every rank. */
#include "perf_bench.h"

#include "datatype.h"
#include "perf_check.h"
#include "program.h"

#include <alnico/mpi.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* One side of the comparison at one size: our operation or the peer's. */
struct side {
    const struct bench *bench;
    struct perf_job job;
    long compute; /* steps of computation between start and wait; 0: none */
};

/* Steps of a computation in registers, which the compiler can neither drop nor shorten. */
static void compute(long steps)
{
    volatile double sink;
    double x = 1, y = 2, a = 0.999999, b = 1e-6;
    for (long i = 0; i < steps; i++) {
        x = x * a + b;
        y = y * a - b;
    }
    sink = x + y;
    (void)sink;
}

static void run_compute(void *context, int calls)
{
    const struct side *side = context;
    for (int i = 0; i < calls; i++)
        compute(side->compute);
}

/* In place, the input was overwritten by the block before. */
static void prepare(void *context)
{
    const struct side *side = context;
    if (side->bench->options.in_place)
        memcpy(side->bench->recv, side->bench->send,
               side->job.count * datatype_bytes(side->job.type));
}

static void run_ours(void *context, int calls)
{
    const struct side *side = context;
    const struct perf_options *options = &side->bench->options;
    bool nonblocking = options->nonblocking || options->overlap;
    for (int i = 0; i < calls; i++) {
        alnico_request_t request = NULL;
        program_check(options->operation->call(&side->job, nonblocking ? &request : NULL),
                      options->operation->name);
        if (side->compute)
            compute(side->compute);
        if (options->overlap)
            program_check(alnico_request_synchronize(&request), "alnico_request_synchronize");
        else if (nonblocking)
            program_check(alnico_wait(&request), "alnico_wait");
    }
    if (options->stream)
        program_check(alnico_synchronize(side->job.comm), "alnico_synchronize");
}

/* MPI's default error handler ends the program, so that its calls need no check. */
static void run_mpi(void *context, int calls)
{
    const struct side *side = context;
    const struct perf_options *options = &side->bench->options;
    bool nonblocking = options->nonblocking || options->overlap;
    for (int i = 0; i < calls; i++) {
        MPI_Request request;
        options->operation->mpi(&side->job, nonblocking ? &request : NULL);
        if (side->compute)
            compute(side->compute);
        if (nonblocking)
            MPI_Wait(&request, MPI_STATUS_IGNORE);
    }
}

static void measure_all(struct bench *bench, struct contestant *contestants, int count,
                        struct measure_effort *effort)
{
    struct measure_plan plan = {.seconds = bench->options.seconds,
                                .calls = bench->options.calls,
                                .warmup = bench->options.warmup};
    if (!measure(contestants, count, &plan, effort))
        program_fail("no memory for the samples of %d contestants", count);
    int threads = program_threads();
    bench->threads = threads > bench->threads ? threads : bench->threads;
}

static void set_times(struct perf_result *result, const struct contestant *contestant)
{
    result->time_us = contestant->time_us;
    result->low_us = contestant->low_us;
    result->high_us = contestant->high_us;
}

/* Every algorithm's side and, last, MPI's, in turns. */
static void measure_row(struct bench *bench, const struct side *sides, struct perf_row *row)
{
    struct contestant contestants[PERF_RESULTS + 1];
    int count = 0;
    for (int i = 0; i < row->results; i++)
        contestants[count++] =
            (struct contestant){.prepare = prepare, .run = run_ours, .context = (void *)&sides[i]};
    if (row->peers)
        contestants[count++] =
            (struct contestant){.prepare = prepare, .run = run_mpi, .context = (void *)&sides[0]};
    measure_all(bench, contestants, count, &row->effort);
    for (int i = 0; i < row->results; i++)
        set_times(&row->result[i], &contestants[i]);
    if (row->peers)
        set_times(&row->peer[PEER_MPI], &contestants[row->results]);
}

/* Steps of computation that take about so many microseconds on the slowest rank: a core's own fastest time counts,
 * since what disturbs it here will not always. */
static long calibrate_compute(double time_us)
{
    const long steps = 200000;
    double fastest = INFINITY;
    for (int i = 0; i < 5; i++) {
        double start = measure_now();
        compute(steps);
        fastest = fmin(fastest, measure_now() - start);
    }
    MPI_Allreduce(MPI_IN_PLACE, &fastest, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return (long)(time_us * 1e-6 / fastest * (double)steps) + 1;
}

static void set_overlap(struct perf_result *result, const struct contestant *contestants)
{
    set_times(result, &contestants[0]);
    result->compute_us = contestants[1].time_us;
    result->overall_us = contestants[2].time_us;
}

/* As osu_iallreduce: the bare operation, computation of the same length, and this between start and wait; all in turns. */
static void measure_overlap(struct bench *bench, struct side *side, struct perf_row *row)
{
    struct side ours = *side, theirs = *side, bare = *side;
    ours.compute = calibrate_compute(row->result[0].time_us);
    theirs.compute = row->peers ? calibrate_compute(row->peer[PEER_MPI].time_us) : 0;
    struct contestant contestants[] = {{.prepare = prepare, .run = run_ours, .context = &bare},
                                       {.run = run_compute, .context = &ours},
                                       {.prepare = prepare, .run = run_ours, .context = &ours},
                                       {.prepare = prepare, .run = run_mpi, .context = &bare},
                                       {.run = run_compute, .context = &theirs},
                                       {.prepare = prepare, .run = run_mpi, .context = &theirs}};
    measure_all(bench, contestants, row->peers ? 6 : 3, &row->effort);
    set_overlap(&row->result[0], &contestants[0]);
    if (row->peers)
        set_overlap(&row->peer[PEER_MPI], &contestants[3]);
}

/* Ranks whose result differs from rank 0's in any bit. */
static size_t count_different(const struct bench *bench, size_t bytes)
{
    uint64_t mine = check_hash(bench->recv, bytes), first = mine;
    MPI_Bcast(&first, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    if (mine != first)
        fprintf(stderr, "alnico-perf: rank %d: the result's bits differ from rank 0's\n",
                bench->rank);
    return mine != first;
}

/* One more call into poisoned memory. Every rank checks its share of the values, and all that they
 * hold the same bits. Returns the wrong ones over all ranks. */
static size_t check_row(const struct bench *bench, struct side *side)
{
    const struct perf_job *job = &side->job;
    struct check check = {bench->options.seed, bench->ranks, job->type, job->op};
    size_t bytes = job->count * datatype_bytes(job->type);
    memset(bench->recv, 0xFF, bytes);
    prepare(side);
    run_ours(side, 1);
    size_t share = job->count / (size_t)bench->ranks, begin = share * (size_t)bench->rank;
    size_t end = bench->rank == bench->ranks - 1 ? job->count : begin + share;
    struct check_fault fault;
    uint64_t wrong = check_compare(&check, bench->recv, begin, end, &fault);
    if (wrong)
        fprintf(stderr,
                "alnico-perf: rank %d: element %zu of %zu %s %s is %.17g, expected %.17g within "
                "%.3g\n",
                bench->rank, fault.index, job->count, datatype_name(job->type), op_name(job->op),
                fault.found, fault.expected, fault.tolerance);
    wrong += count_different(bench, bytes);
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return wrong;
}

static void bench_row(struct bench *bench, struct perf_row *row)
{
    const struct perf_options *options = &bench->options;
    bool with_mpi = options->versus & 1u << PEER_MPI;
    if (with_mpi && perf_mpi_can(row->type, row->op, row->count))
        row->peers = 1u << PEER_MPI;
    struct side sides[PERF_RESULTS];
    row->results = bench->results;
    for (int i = 0; i < bench->results; i++) {
        const void *send = options->in_place ? ALNICO_IN_PLACE : bench->send;
        sides[i] = (struct side){
            bench, {send, bench->recv, row->count, row->type, row->op, bench->comm[i]}, 0};
        row->result[i].algorithm = bench->algorithm[i];
    }
    measure_row(bench, sides, row);
    if (options->overlap)
        measure_overlap(bench, &sides[0], row);
    for (int i = 0; i < bench->results && options->check; i++)
        row->result[i].wrong = check_row(bench, &sides[i]);
}

/* The inputs of all sizes. */
static void bench_begin(struct bench *bench, alnico_datatype_t type, alnico_op_t op, size_t most)
{
    struct check check = {bench->options.seed, bench->ranks, type, op};
    check_fill(&check, bench->rank, bench->send, most);
    memset(bench->recv, 0xFF, bench->options.end);
}

/* Memory of at least `bytes`, aligned to a cache line; check_fill and memset touch every page. */
static void *allocate(size_t bytes)
{
    size_t rounded = (bytes + 8 + 63) / 64 * 64;
    void *memory = rounded < bytes ? NULL : aligned_alloc(64, rounded);
    if (!memory)
        program_fail("-e %zu: no memory for two buffers of this size", bytes);
    return memory;
}

static int gather(void *context, const void *mine, void *all, size_t bytes)
{
    (void)context;
    return MPI_Allgather(mine, (int)bytes, MPI_BYTE, all, (int)bytes, MPI_BYTE, MPI_COMM_WORLD);
}

void bench_comm(const struct bench *bench, void *stream, alnico_comm_t *out)
{
    alnico_bootstrap_t callback = {bench->rank, bench->ranks, gather, NULL};
    alnico_device_t device = bench->options.device;
    if (bench->options.bootstrap)
        program_check(alnico_comm_create(&callback, device, stream, out), "alnico_comm_create");
    else
        program_check(alnico_comm_create_mpi(MPI_COMM_WORLD, device, stream, out),
                      "alnico_comm_create_mpi");
}

/* A communicator with an algorithm, or the library's choice if `name` is NULL. One that cannot be used
 * here is left out if it is optional. */
static void bench_add(struct bench *bench, const char *name, bool optional)
{
    alnico_comm_t *comm = &bench->comm[bench->results];
    bench_comm(bench, bench->stream, comm);
    alnico_status_t status = ALNICO_SUCCESS;
    if (name)
        status = alnico_comm_set_algorithm(*comm, bench->options.operation->collective, name);
    if (status == ALNICO_ERROR_UNSUPPORTED && optional) {
        alnico_comm_destroy(*comm);
        return;
    }
    program_check(status, "alnico_comm_set_algorithm");
    bench->algorithm[bench->results++] = name;
}

/* One communicator, or one for each algorithm, on the inline stream or on one of its own. */
static void bench_open(struct bench *bench)
{
    const struct perf_options *options = &bench->options;
    if (options->stream)
        program_check(alnico_stream_create(&bench->stream), "alnico_stream_create");
    bench->results = 0;
    if (!options->all_algorithms)
        bench_add(bench, options->algorithm, false);
    for (int i = 0; options->all_algorithms && bench->results < PERF_RESULTS; i++) {
        const char *name = options->operation->algorithm(options->device, i);
        if (!name)
            break;
        bench_add(bench, name, true);
    }
    bench->send = allocate(options->end);
    bench->recv = allocate(options->end);
}

static void bench_close(struct bench *bench)
{
    for (int i = 0; i < bench->results; i++)
        alnico_comm_destroy(bench->comm[i]);
    alnico_stream_destroy(bench->stream);
    free(bench->send);
    free(bench->recv);
}

const struct bench_ops bench_cpu = {
    .open = bench_open, .begin = bench_begin, .row = bench_row, .close = bench_close};
