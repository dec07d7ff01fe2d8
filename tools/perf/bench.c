/* The CPU's measurement of a row: our calls and the peer's as candidates, overlap with computation,
 * and the check afterwards; and what the GPU's shares with it. Only public calls are timed. Main
 * thread of every rank. */
#include "tools/perf/bench.h"

#include "base/datatype.h"
#include "tools/common/program.h"
#include "tools/common/ranks.h"
#include "tools/perf/mpi.h"

#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Calls of a block of --overlap follow each other: between blocks the engines fall asleep, and what
 * waking them takes is not what it measures. */
enum {
    GUARD = 64,         /* bytes behind recv that nobody may write */
    OVERLAP_TRIES = 3,  /* at a computation as long as the operation */
    OVERLAP_CALLS = 10, /* at least in a block */
};

/* A caller makes the calls of one candidate at one size: ours or the peer's. */
struct caller {
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
    const struct caller *caller = context;
    for (int i = 0; i < calls; i++)
        compute(caller->compute);
}

/* In place, the input was overwritten by the block before. */
static void prepare(void *context)
{
    const struct caller *caller = context;
    const struct bench *bench = caller->bench;
    struct perf_input input = job_input(&caller->job);
    size_t element = datatype_bytes(caller->job.type);
    if (input.in_recv)
        memcpy((char *)bench->recv + input.at * element, bench->send, input.count * element);
}

static void run_ours(void *context, int calls)
{
    const struct caller *caller = context;
    const struct perf_options *options = &caller->bench->options;
    bool nonblocking = options->nonblocking || options->overlap;
    for (int i = 0; i < calls; i++) {
        alnico_request_t request = NULL;
        program_check(perf_call_ours(&caller->job, nonblocking ? &request : NULL),
                      options->operation->name);
        if (caller->compute)
            compute(caller->compute);
        if (options->overlap)
            program_check(alnico_request_synchronize(&request), "alnico_request_synchronize");
        else if (nonblocking)
            program_check(alnico_wait(&request), "alnico_wait");
    }
    if (options->stream)
        program_check(alnico_synchronize(caller->job.comm), "alnico_synchronize");
}

static void run_mpi(void *context, int calls)
{
    const struct caller *caller = context;
    const struct perf_options *options = &caller->bench->options;
    bool nonblocking = options->nonblocking || options->overlap;
    for (int i = 0; i < calls; i++) {
        int open = caller->bench->mpi->start(&caller->job, nonblocking);
        if (caller->compute)
            compute(caller->compute);
        caller->bench->mpi->wait(open);
    }
}

bool bench_mpi_can(const struct bench *bench, const struct perf_job *job)
{
    return bench->mpi && bench->mpi->can(job) &&
           perf_extent(job->operation, job->count, job->ranks) <= INT_MAX;
}

void bench_measure(struct bench *bench, struct candidate *candidates, int count,
                   struct measure_effort *effort)
{
    const struct perf_options *options = &bench->options;
    bool overlaps = options->overlap && options->device == ALNICO_DEVICE_CPU;
    struct measure_plan plan = {.seconds = options->seconds,
                                .calls = options->graph ? options->replays : options->calls,
                                .warmup = options->warmup,
                                .block_least = overlaps ? OVERLAP_CALLS : 1};
    if (count && !measure(candidates, count, &plan, effort))
        program_fail("no memory for the samples of %d candidates", count);
    int threads = program_threads();
    bench->threads = threads > bench->threads ? threads : bench->threads;
}

void bench_set_times(const struct perf_options *options, struct perf_result *result,
                     const struct candidate *candidate)
{
    int messages = options->operation->messages ? options->operation->messages : 1;
    double calls = options->graph ? (double)options->calls : 1;
    result->time_us = candidate->time_us / calls / messages;
    result->low_us = candidate->low_us / calls / messages;
    result->high_us = candidate->high_us / calls / messages;
}

/* Every algorithm's caller and, last, MPI's, in turns. */
static void measure_row(struct bench *bench, const struct caller *callers, struct perf_row *row)
{
    struct candidate candidates[PERF_RESULTS + 1];
    int count = 0;
    for (int i = 0; i < row->results; i++)
        candidates[count++] =
            (struct candidate){.prepare = prepare, .run = run_ours, .context = (void *)&callers[i]};
    if (row->peers)
        candidates[count++] =
            (struct candidate){.prepare = prepare, .run = run_mpi, .context = (void *)&callers[0]};
    bench_measure(bench, candidates, count, &row->effort);
    for (int i = 0; i < row->results; i++)
        bench_set_times(&bench->options, &row->result[i], &candidates[i]);
    if (row->peers)
        bench_set_times(&bench->options, &row->peer[PEER_MPI], &candidates[row->results]);
}

/* Steps of computation that take about so many microseconds on the slowest rank: a core's own
 * fastest time counts, since what disturbs it here will not always. */
static long calibrate_compute(double time_us)
{
    const long steps = 200000;
    double fastest = INFINITY;
    for (int i = 0; i < 5; i++) {
        double start = measure_now();
        compute(steps);
        fastest = fmin(fastest, measure_now() - start);
    }
    program_slowest(&fastest, 1);
    return (long)(time_us * 1e-6 / fastest * (double)steps) + 1;
}

static void set_overlap(const struct bench *bench, struct perf_result *result,
                        const struct candidate *candidates)
{
    bench_set_times(&bench->options, result, &candidates[0]);
    result->compute_us = candidates[1].time_us;
    result->overall_us = candidates[2].time_us;
}

/* Whether the computation was shorter than the operation in the same turns: the rest of the
 * operation would count as not overlapped, whatever it did. Makes it longer for the next try. The
 * same on all ranks, as the times are. */
static bool lengthen_compute(const struct candidate *candidates, struct caller *caller)
{
    double bare = candidates[0].time_us, computing = candidates[1].time_us;
    if (computing >= bare || computing <= 0)
        return false;
    caller->compute = (long)((double)caller->compute * 1.02 * bare / computing) + 1;
    return true;
}

/* As osu_iallreduce: the bare operation, computation of the same length, and this between start and
 * wait; all in turns. */
static void measure_overlap(struct bench *bench, struct caller *caller, struct perf_row *row)
{
    struct caller ours = *caller, theirs = *caller, bare = *caller;
    ours.compute = calibrate_compute(row->result[0].time_us);
    theirs.compute = row->peers ? calibrate_compute(row->peer[PEER_MPI].time_us) : 0;
    struct candidate candidates[] = {{.prepare = prepare, .run = run_ours, .context = &bare},
                                     {.run = run_compute, .context = &ours},
                                     {.prepare = prepare, .run = run_ours, .context = &ours},
                                     {.prepare = prepare, .run = run_mpi, .context = &bare},
                                     {.run = run_compute, .context = &theirs},
                                     {.prepare = prepare, .run = run_mpi, .context = &theirs}};
    bool again = true;
    for (int i = 0; i < OVERLAP_TRIES && again; i++) {
        bench_measure(bench, candidates, row->peers ? 6 : 3, &row->effort);
        again = lengthen_compute(&candidates[0], &ours);
        if (row->peers)
            again |= lengthen_compute(&candidates[3], &theirs);
    }
    set_overlap(bench, &row->result[0], &candidates[0]);
    if (row->peers)
        set_overlap(bench, &row->peer[PEER_MPI], &candidates[3]);
}

bool bench_differs(const struct bench *bench, uint64_t hash)
{
    uint64_t first = hash;
    program_broadcast(&first, sizeof first, 0);
    if (hash != first)
        fprintf(stderr, "alnico-perf: rank %d: the result's bits differ from rank 0's\n",
                bench->rank);
    return hash != first;
}

struct check bench_check(const struct bench *bench, const struct perf_job *job,
                         const struct perf_part *part)
{
    return (struct check){.seed = bench->options.seed,
                          .ranks = part->ranks,
                          .type = job->type,
                          .op = job->op,
                          .first = part->first,
                          .shift = part->index};
}

void bench_print_fault(const struct bench *bench, const char *algorithm, const struct perf_job *job,
                       size_t index, const struct check_fault *fault)
{
    bool reduces = collectives[job->operation->collective].reduces;
    fprintf(stderr,
            "alnico-perf: rank %d%s%s: element %zu of %zu %s%s%s is %.17g, expected %.17g within "
            "%.3g\n",
            bench->rank, algorithm ? ", " : "", algorithm ? algorithm : "", index,
            job_result_count(job), datatype_name(job->type), reduces ? " " : "",
            reduces ? op_name(job->op) : "", fault->found, fault->expected, fault->tolerance);
}

/* The wrong values of a part of the result. Of what is the same on all ranks each checks its
 * share. */
static size_t check_part(const struct bench *bench, const struct perf_job *job,
                         const struct perf_part *part)
{
    struct check check = bench_check(bench, job, part);
    const char *result = (char *)bench->recv + part->at * datatype_bytes(job->type);
    size_t share = part->count / (size_t)job->ranks, begin = share * (size_t)job->rank;
    size_t end = job->rank == job->ranks - 1 ? part->count : begin + share;
    struct check_fault fault;
    bool shared = job->operation->same;
    size_t wrong =
        check_compare(&check, result, shared ? begin : 0, shared ? end : part->count, &fault);
    if (wrong)
        bench_print_fault(bench, NULL, job, part->at + fault.index, &fault);
    return wrong;
}

/* Bytes behind the result that are no longer poison. */
static size_t count_overruns(const struct bench *bench, size_t from, size_t to)
{
    const unsigned char *recv = bench->recv;
    size_t wrong = 0;
    for (size_t i = from; i < to; i++)
        wrong += recv[i] != 0xFF;
    if (wrong)
        fprintf(stderr, "alnico-perf: rank %d: %zu bytes behind the result were written\n",
                bench->rank, wrong);
    return wrong;
}

/* One more call into poisoned memory: all values, what lies behind them and, where all ranks get
 * the same, that they hold the same bits. Returns the wrong ones over all ranks. */
static size_t check_row(const struct bench *bench, struct caller *caller)
{
    const struct perf_job *job = &caller->job;
    const struct perf_operation *operation = job->operation;
    size_t element = datatype_bytes(job->type), bytes = job_result_count(job) * element;
    size_t most = perf_extent(operation, job->count, job->ranks) * element + GUARD;
    struct perf_part part;
    memset(bench->recv, 0xFF, most);
    prepare(caller);
    run_ours(caller, 1);
    uint64_t wrong = count_overruns(bench, bytes, most);
    for (int i = 0; job_part(job, i, &part); i++)
        wrong += check_part(bench, job, &part);
    if (operation->same)
        wrong += bench_differs(bench, check_hash(bench->recv, bytes));
    return program_sum(wrong);
}

struct perf_job bench_job(struct bench *bench, size_t count, alnico_datatype_t type, alnico_op_t op)
{
    const struct perf_options *options = &bench->options;
    blocks_set(&bench->blocks, options->operation, count, bench->rank, bench->ranks);
    struct perf_job job = job_make(options->operation, count, options->in_place, options->root,
                                   bench->rank, bench->ranks, &bench->blocks);
    job.type = type;
    job.op = op;
    return job;
}

static void bench_row(struct bench *bench, struct perf_row *row)
{
    const struct perf_options *options = &bench->options;
    struct perf_job job = bench_job(bench, row->count, row->type, row->op);
    job.send = bench->send;
    job.recv = bench->recv;
    if (options->versus & 1u << PEER_MPI && bench_mpi_can(bench, &job))
        row->peers = 1u << PEER_MPI;
    struct caller callers[PERF_RESULTS];
    row->results = bench->results;
    for (int i = 0; i < bench->results; i++) {
        callers[i] = (struct caller){bench, job, 0};
        callers[i].job.comm = bench->comm[i];
        row->result[i].algorithm = bench->algorithm[i];
    }
    measure_row(bench, callers, row);
    if (options->overlap)
        measure_overlap(bench, &callers[0], row);
    for (int i = 0; i < bench->results && options->check; i++)
        row->result[i].wrong = check_row(bench, &callers[i]);
}

size_t bench_capacity(const struct bench *bench)
{
    const struct perf_options *options = &bench->options;
    size_t least = (size_t)bench->ranks * sizeof(double);
    return perf_extent(options->operation, 1, 1) * (options->end > least ? options->end : least);
}

/* The inputs of all sizes. */
static void bench_begin(struct bench *bench, alnico_datatype_t type, alnico_op_t op)
{
    struct check check = {
        .seed = bench->options.seed, .ranks = bench->ranks, .type = type, .op = op};
    check_fill(&check, bench->rank, bench->send, bench_capacity(bench) / datatype_bytes(type));
    memset(bench->recv, 0xFF, bench_capacity(bench) + GUARD);
}

/* Memory of at least `bytes` and a guard, aligned to a cache line; check_fill and memset touch
 * every page. */
static void *allocate(size_t bytes)
{
    size_t rounded = (bytes + GUARD + 63) / 64 * 64;
    void *memory = rounded < bytes ? NULL : aligned_alloc(64, rounded);
    if (!memory)
        program_fail("-e %zu: no memory for two buffers of this size", bytes);
    return memory;
}

int bench_algorithms(const struct perf_options *options, const char **names)
{
    int count = 0;
    const char *name;
    if (!options->all_algorithms) {
        names[0] = options->algorithm;
        return 1;
    }
    while (count < PERF_RESULTS &&
           (name = perf_algorithm(options->operation, options->device, count)))
        names[count++] = name;
    return count;
}

void bench_comm(const struct bench *bench, void *stream, alnico_comm_t *out)
{
    alnico_device_t device = bench->options.device;
    if (bench->mpi && !bench->options.bootstrap)
        program_check(bench->mpi->create(device, stream, out), "alnico_comm_create_mpi");
    else
        program_check(program_comm(device, stream, out), "alnico_comm_create");
}

/* A communicator with an algorithm, or the library's choice if `name` is NULL. One that cannot be
 * used here is left out if it is optional. */
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
    const char *names[PERF_RESULTS];
    int count = bench_algorithms(options, names);
    bench->results = 0;
    for (int i = 0; i < count; i++)
        bench_add(bench, names[i], options->all_algorithms);
    if (!blocks_init(&bench->blocks, bench->ranks))
        program_fail("no memory for the blocks of %d ranks", bench->ranks);
    bench->send = allocate(bench_capacity(bench));
    bench->recv = allocate(bench_capacity(bench));
}

static void bench_close(struct bench *bench)
{
    for (int i = 0; i < bench->results; i++)
        alnico_comm_destroy(bench->comm[i]);
    alnico_stream_destroy(bench->stream);
    blocks_finish(&bench->blocks);
    free(bench->send);
    free(bench->recv);
}

const struct bench_ops bench_cpu = {
    .open = bench_open, .begin = bench_begin, .row = bench_row, .close = bench_close};
