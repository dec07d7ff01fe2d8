/* A row on GPUs: the candidates, their times in turns, overlap, the host's time, and the check of
 * ours. Main thread of every rank, collective. */
#include "tools/perf/gpu/cuda.h"

#include "base/datatype.h"
#include "tools/common/program.h"
#include "tools/common/ranks.h"
#include "tools/perf/values.h"

#ifdef ALNICO_HAVE_NCCL
#include "tools/perf/gpu/nccl.h"
#endif

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { CALLERS = PERF_RESULTS + PEERS + 1, HOST_CALLS = 1000, HOST_DEPTH = 16 };

static bool peer_can(int peer, const struct perf_job *job, const struct bench *bench)
{
    const struct perf_options *options = &bench->options;
    if (!(options->versus & 1u << peer) || (options->graph && !peer_table[peer].capturable))
        return false;
    if (peer == PEER_STAGED)
        return !options->overlap && bench_mpi_can(bench, job);
#ifdef ALNICO_HAVE_NCCL
    return nccl_peer_can(job, options->in_place, peer == PEER_NCCL_SYMMETRIC);
#else
    return false;
#endif
}

struct gpu_caller caller_make(struct gpu_bench *gpu, int peer, size_t count, alnico_datatype_t type,
                              alnico_op_t op)
{
    struct perf_job job = bench_job(gpu->bench, count, type, op);
    size_t bytes = perf_extent(job.operation, count, job.ranks) * datatype_bytes(type);
    job.comm = gpu->comm;
    return (struct gpu_caller){.gpu = gpu,
                               .peer = peer,
                               .pool = peer == OURS                  ? &gpu->ours
                                       : peer == PEER_NCCL_SYMMETRIC ? &gpu->windows
                                                                     : &gpu->plain,
                               .layout = pool_layout(bytes ? bytes : 1, gpu->cache),
                               .job = job,
                               .result = job_result_count(&job) * datatype_bytes(type)};
}

/* One call, which says whether the caller can do it, and does what a first call does. */
static bool try_call(struct gpu_caller *caller)
{
    const struct perf_options *options = &caller->gpu->bench->options;
    alnico_status_t status = ALNICO_SUCCESS;
    if (caller->peer == OURS && caller->algorithm)
        status = alnico_comm_set_algorithm(caller->job.comm, options->operation->collective,
                                           caller->algorithm);
    if (status == ALNICO_SUCCESS) {
        caller_fill(caller, false);
        status = caller_call(caller);
    }
    int refused = status == ALNICO_ERROR_UNSUPPORTED && options->all_algorithms;
    if (!refused)
        program_check(status, options->operation->name);
    program_greatest(&refused, 1);
    GPU_MUST(cudaStreamSynchronize(caller->gpu->stream));
    return !refused;
}

/* As many graphs as it takes to go through the slots once. */
static bool make_graphs(struct gpu_caller *caller)
{
    const struct perf_options *options = &caller->gpu->bench->options;
    if (!options->graph)
        return true;
    long count = (caller->layout.slots + options->calls - 1) / options->calls;
    if (caller_capture(caller, count > GRAPHS ? GRAPHS : (int)count, options->calls))
        return true;
    if (!options->all_algorithms)
        program_fail("-G: ours cannot be captured in a CUDA graph: %s", alnico_error_detail());
    return false;
}

bool caller_open(struct gpu_caller *caller)
{
    return try_call(caller) && make_graphs(caller);
}

static struct candidate candidate_of(struct gpu_caller *caller)
{
    return (struct candidate){
        .prepare = caller_prepare, .run = caller_run, .seconds = caller_seconds, .context = caller};
}

/* The result of the i-th caller. */
static struct perf_result *result_of(const struct gpu_caller *callers, int i, struct perf_row *row)
{
    return callers[i].peer == OURS ? &row->result[i] : &row->peer[callers[i].peer];
}

/* The callers that can do it, in turns. */
static void measure_row(struct bench *bench, struct gpu_caller *callers, int count,
                        const bool *able, struct perf_row *row)
{
    struct candidate candidates[CALLERS];
    struct perf_result *results[CALLERS];
    int used = 0;
    for (int i = 0; i < count; i++) {
        struct perf_result *result = result_of(callers, i, row);
        result->time_us = result->low_us = result->high_us = NAN;
        if (!able[i])
            continue;
        candidates[used] = candidate_of(&callers[i]);
        results[used++] = result;
    }
    bench_measure(bench, candidates, used, &row->effort);
    for (int i = 0; i < used; i++)
        bench_set_times(&bench->options, results[i], &candidates[i]);
}

/* Steps of computation that take about so many microseconds. */
static long calibrate_compute(struct gpu_caller *caller, double time_us)
{
    const long steps = 1 << 16;
    caller->compute = steps;
    caller_compute(caller, 1);
    caller_compute(caller, 4);
    double each = caller_seconds(caller) / 4;
    program_slowest(&each, 1);
    return (long)(time_us * 1e-6 / each * (double)steps) + 1;
}

/* As osu_iallreduce: computation as long as the bare operation, alone and between start and
 * wait. */
static void measure_overlap(struct bench *bench, struct gpu_caller *caller,
                            struct perf_result *result)
{
    if (isnan(result->time_us))
        return;
    caller->compute = calibrate_compute(caller, result->time_us);
    struct candidate both[] = {
        {.run = caller_compute, .seconds = caller_seconds, .context = caller},
        candidate_of(caller)};
    struct measure_effort effort;
    bench_measure(bench, both, 2, &effort);
    result->compute_us = both[0].time_us;
    result->overall_us = both[1].time_us;
    caller->compute = 0;
}

static double time_launch(const struct gpu_caller *caller)
{
    double start = measure_now();
    gpu_must(gpu_launch_empty(caller->gpu->stream), "an empty kernel");
    return measure_now() - start;
}

/* Median microseconds of one call, or of an empty launch, with never more than a few in the
 * stream's queue. The slowest rank's. */
static double time_host(struct gpu_caller *caller, bool empty)
{
    static double samples[HOST_CALLS];
    caller_prepare(caller);
    for (int i = 0; i < HOST_CALLS; i++) {
        if (i % HOST_DEPTH == 0)
            GPU_MUST(cudaStreamSynchronize(caller->gpu->stream));
        samples[i] = empty ? time_launch(caller) : caller_host_seconds(caller);
    }
    GPU_MUST(cudaStreamSynchronize(caller->gpu->stream));
    qsort(samples, HOST_CALLS, sizeof *samples, measure_compare);
    double median = samples[HOST_CALLS / 2] * 1e6;
    program_slowest(&median, 1);
    return median;
}

/* A peer that waits for the GPU has none. */
static void measure_host(struct gpu_caller *caller, bool able, struct perf_result *out)
{
    bool timed = able && (caller->peer == OURS || peer_table[caller->peer].capturable);
    out->launch_us = timed && caller->peer == OURS ? time_host(caller, true) : NAN;
    out->host_us = timed ? time_host(caller, false) : NAN;
}

/* One call, eager or as the caller's graph has it, into the first slot, whose result and guards on
 * both sides are poison before. */
static void run_checked(struct gpu_caller *caller)
{
    if (caller->graph_count && caller->gpu->bench->options.in_place) {
        caller_drop_graphs(caller); /* a long one may go over its slots more than once */
        caller_capture(caller, 1, 1);
    }
    GPU_MUST(cudaMemsetAsync(caller->pool->recv, GPU_POISON, POOL_GUARD + caller->layout.stride,
                             caller->gpu->stream));
    caller_prepare(caller);
    caller->next = caller->next_graph = 0;
    caller_run(caller, 1);
}

/* Looks at all parts of the first slot, and at what is around them. */
static void inspect(const struct gpu_caller *caller)
{
    const struct gpu_bench *gpu = caller->gpu;
    const char *recv = caller->pool->recv, *slot = recv + pool_offset(&caller->layout, 0);
    struct perf_part part;
    for (int i = 0; job_part(&caller->job, i, &part); i++) {
        struct check check = bench_check(gpu->bench, &caller->job, &part);
        if (part.count)
            gpu_must(gpu_compare(&check, slot, part.at, part.count, gpu->findings, gpu->stream),
                     "the kernel that checks");
    }
    if (caller->result)
        gpu_must(gpu_hash(slot, caller->result, gpu->findings, gpu->stream),
                 "the kernel that hashes");
    gpu_must(gpu_count_overruns(recv, POOL_GUARD, gpu->findings, gpu->stream),
             "the kernel that checks guards");
    gpu_must(gpu_count_overruns(slot + caller->result, caller->layout.stride - caller->result,
                                gpu->findings, gpu->stream),
             "the kernel that checks guards");
}

/* The kernels' findings about the first slot. */
static struct gpu_findings read_findings(const struct gpu_caller *caller)
{
    const struct gpu_bench *gpu = caller->gpu;
    struct gpu_findings findings = {.first = ~0ull};
    GPU_MUST(cudaMemcpyAsync(gpu->findings, &findings, sizeof findings, cudaMemcpyHostToDevice,
                             gpu->stream));
    inspect(caller);
    GPU_MUST(cudaMemcpyAsync(&findings, gpu->findings, sizeof findings, cudaMemcpyDeviceToHost,
                             gpu->stream));
    GPU_MUST(cudaStreamSynchronize(gpu->stream));
    return findings;
}

/* The part of the result that has an element. */
static struct perf_part part_at(const struct perf_job *job, size_t index)
{
    struct perf_part part = {0};
    for (int i = 0; job_part(job, i, &part); i++)
        if (index >= part.at && index < part.at + part.count)
            break;
    return part;
}

/* Says what the first wrong element is. */
static void explain(const struct gpu_caller *caller, size_t index)
{
    const struct perf_job *job = &caller->job;
    struct perf_part part = part_at(job, index);
    struct check check = bench_check(caller->gpu->bench, job, &part);
    size_t bytes = datatype_bytes(check.type);
    uint64_t element = 0;
    struct check_fault fault;
    struct check_bounds bounds = check_bounds(&check);
    const char *slot = caller->pool->recv + pool_offset(&caller->layout, 0);
    GPU_MUST(cudaMemcpy(&element, slot + index * bytes, bytes, cudaMemcpyDeviceToHost));
    value_check(&check, &bounds, &element, index - part.at, &fault);
    bench_print_fault(caller->gpu->bench, caller->algorithm, job, index, &fault);
}

/* Checks every value of one more call into poisoned memory, the guards around it, and that all
 * ranks have the same bits. Returns what is wrong over all ranks. */
static size_t check_caller(struct gpu_caller *caller)
{
    run_checked(caller);
    struct gpu_findings findings = read_findings(caller);
    if (findings.wrong)
        explain(caller, (size_t)findings.first);
    if (findings.overruns)
        fprintf(stderr, "alnico-perf: rank %d: %llu bytes around the result were written\n",
                caller->gpu->bench->rank, findings.overruns);
    uint64_t wrong = findings.wrong + findings.overruns;
    if (caller->job.operation->same)
        wrong += bench_differs(caller->gpu->bench, findings.hash);
    return program_sum(wrong);
}

static int make_callers(struct bench *bench, struct perf_row *row, struct gpu_caller *callers,
                        bool *able)
{
    int count = 0;
    for (; count < bench->results; count++) {
        callers[count] = caller_make(bench->gpu, OURS, row->count, row->type, row->op);
        callers[count].algorithm = row->result[count].algorithm = bench->algorithm[count];
    }
    for (int peer = 0; peer < PEERS; peer++) {
        callers[count] = caller_make(bench->gpu, peer, row->count, row->type, row->op);
        if (!peer_can(peer, &callers[count].job, bench))
            continue;
        row->peers |= 1u << peer;
        count++;
    }
    for (int i = 0; i < count; i++)
        able[i] = caller_open(&callers[i]);
    return count;
}

void gpu_row(struct bench *bench, struct perf_row *row)
{
    const struct perf_options *options = &bench->options;
    struct gpu_caller callers[CALLERS];
    bool able[CALLERS];
    row->results = bench->results;
    int count = make_callers(bench, row, callers, able);
    measure_row(bench, callers, count, able, row);
    for (int i = 0; i < count && options->overlap; i++)
        measure_overlap(bench, &callers[i], result_of(callers, i, row));
    for (int i = 0; i < bench->results && options->check; i++)
        row->result[i].wrong = able[i] ? check_caller(&callers[i]) : 0;
    for (int i = 0; i < count; i++)
        caller_drop_graphs(&callers[i]);
    for (int i = 0; i < count && options->host_time; i++)
        measure_host(&callers[i], able[i], result_of(callers, i, row));
}
