/* A row of alnico-perf on GPUs: who takes part, their times in turns, overlap, the host's time, and
 * the check of ours. Main thread of every rank, collective. */
#include "tools/perf/gpu/cuda.h"

#include "base/datatype.h"
#include "tools/common/program.h"
#include "tools/perf/layout.h"
#include "tools/perf/measure.h"
#include "tools/perf/values.h"

#ifdef ALNICO_HAVE_NCCL
#include "tools/perf/gpu/nccl.h"
#endif

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { SIDES = PERF_RESULTS + PEERS + 1, HOST_CALLS = 1000, HOST_DEPTH = 16 };

static bool peer_can(int peer, const struct perf_job *job, const struct perf_options *options)
{
    if (!(options->versus & 1u << peer) || (options->graph && !peer_table[peer].capturable))
        return false;
    if (peer == PEER_STAGED)
        return !options->overlap && perf_mpi_can(job);
#ifdef ALNICO_HAVE_NCCL
    return nccl_peer_can(job, options->in_place, peer == PEER_NCCL_SYMMETRIC);
#else
    return false;
#endif
}

struct gpu_side side_make(struct gpu_bench *gpu, int peer, size_t count, alnico_datatype_t type,
                          alnico_op_t op)
{
    struct perf_job job = bench_job(gpu->bench, count, type, op);
    size_t bytes = perf_extent(job.operation, count, job.ranks) * datatype_bytes(type);
    job.comm = gpu->comm;
    return (struct gpu_side){.gpu = gpu,
                             .peer = peer,
                             .pool = peer == OURS                  ? &gpu->ours
                                     : peer == PEER_NCCL_SYMMETRIC ? &gpu->windows
                                                                   : &gpu->plain,
                             .layout = pool_layout(bytes ? bytes : 1, gpu->cache),
                             .job = job,
                             .result = job_result_count(&job) * datatype_bytes(type)};
}

/* One call, which says whether the side can do it, and brings about whatever a first call does. */
static bool try_call(struct gpu_side *side)
{
    const struct perf_options *options = &side->gpu->bench->options;
    alnico_status_t status = ALNICO_SUCCESS;
    if (side->peer == OURS && side->algorithm)
        status = alnico_comm_set_algorithm(side->job.comm, options->operation->collective,
                                           side->algorithm);
    if (status == ALNICO_SUCCESS) {
        side_fill(side, false);
        status = side_call(side);
    }
    int refused = status == ALNICO_ERROR_UNSUPPORTED && options->all_algorithms;
    if (!refused)
        program_check(status, options->operation->name);
    MPI_Allreduce(MPI_IN_PLACE, &refused, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    GPU_MUST(cudaStreamSynchronize(side->gpu->stream));
    return !refused;
}

/* As many graphs as it takes to go through the slots once. */
static bool make_graphs(struct gpu_side *side)
{
    const struct perf_options *options = &side->gpu->bench->options;
    if (!options->graph)
        return true;
    long count = (side->layout.slots + options->calls - 1) / options->calls;
    if (side_capture(side, count > GRAPHS ? GRAPHS : (int)count, options->calls))
        return true;
    if (!options->all_algorithms)
        program_fail("-G: ours cannot be captured in a CUDA graph: %s", alnico_error_detail());
    return false;
}

bool side_open(struct gpu_side *side)
{
    return try_call(side) && make_graphs(side);
}

static struct contestant contest(struct gpu_side *side)
{
    return (struct contestant){
        .prepare = side_prepare, .run = side_run, .seconds = side_seconds, .context = side};
}

/* The sides that can do it, in turns. */
static void measure_row(struct bench *bench, struct gpu_side *sides, int count, const bool *able,
                        struct perf_row *row)
{
    struct contestant contestants[SIDES];
    struct perf_result *results[SIDES];
    int used = 0;
    for (int i = 0; i < count; i++) {
        struct perf_result *result =
            sides[i].peer == OURS ? &row->result[i] : &row->peer[sides[i].peer];
        result->time_us = result->low_us = result->high_us = NAN;
        if (!able[i])
            continue;
        contestants[used] = contest(&sides[i]);
        results[used++] = result;
    }
    bench_measure(bench, contestants, used, 0, &row->effort);
    for (int i = 0; i < used; i++)
        bench_set_times(&bench->options, results[i], &contestants[i]);
}

/* Steps of computation that take about so many microseconds. */
static long calibrate_compute(struct gpu_side *side, double time_us)
{
    const long steps = 1 << 16;
    side->compute = steps;
    side_compute(side, 1);
    side_compute(side, 4);
    double each = side_seconds(side) / 4;
    MPI_Allreduce(MPI_IN_PLACE, &each, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return (long)(time_us * 1e-6 / each * (double)steps) + 1;
}

/* As osu_iallreduce: computation as long as the bare operation, alone and between start and
 * wait. */
static void measure_overlap(struct bench *bench, struct gpu_side *side, struct perf_result *result)
{
    if (isnan(result->time_us))
        return;
    side->compute = calibrate_compute(side, result->time_us);
    struct contestant both[] = {{.run = side_compute, .seconds = side_seconds, .context = side},
                                contest(side)};
    struct measure_effort effort;
    bench_measure(bench, both, 2, 0, &effort);
    result->compute_us = both[0].time_us;
    result->overall_us = both[1].time_us;
    side->compute = 0;
}

static double time_launch(const struct gpu_side *side)
{
    double start = measure_now();
    gpu_must(gpu_launch_empty(side->gpu->stream), "an empty kernel");
    return measure_now() - start;
}

/* Median microseconds of one call, or of an empty launch, with never more than a few in the
 * stream's queue. The slowest rank's. */
static double time_host(struct gpu_side *side, bool empty)
{
    static double samples[HOST_CALLS];
    side_prepare(side);
    for (int i = 0; i < HOST_CALLS; i++) {
        if (i % HOST_DEPTH == 0)
            GPU_MUST(cudaStreamSynchronize(side->gpu->stream));
        samples[i] = empty ? time_launch(side) : side_host_seconds(side);
    }
    GPU_MUST(cudaStreamSynchronize(side->gpu->stream));
    qsort(samples, HOST_CALLS, sizeof *samples, measure_compare);
    double median = samples[HOST_CALLS / 2] * 1e6;
    MPI_Allreduce(MPI_IN_PLACE, &median, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return median;
}

/* A peer that waits for the GPU has none. */
static void measure_host(struct gpu_side *side, bool able, struct perf_result *out)
{
    bool timed = able && (side->peer == OURS || peer_table[side->peer].capturable);
    out->launch_us = timed && side->peer == OURS ? time_host(side, true) : NAN;
    out->host_us = timed ? time_host(side, false) : NAN;
}

/* Poisons the first slot's result and the guards on both sides of it. */
static void poison(const struct gpu_side *side)
{
    const struct gpu_pool *pool = side->pool;
    size_t bytes = POOL_GUARD + side->layout.stride;
    GPU_MUST(cudaMemsetAsync(pool->recv, GPU_POISON, bytes, side->gpu->stream));
}

/* One call, eager or as the side's graph has it, into the first slot. */
static void run_checked(struct gpu_side *side)
{
    if (side->graph_count && side->gpu->bench->options.in_place) {
        side_drop_graphs(side); /* a long one may go over its slots more than once */
        side_capture(side, 1, 1);
    }
    poison(side);
    side_prepare(side);
    side->next = side->next_graph = 0;
    side_run(side, 1);
}

/* Looks at all parts of the first slot, and at what is around them. */
static void inspect(const struct gpu_side *side)
{
    const struct gpu_bench *gpu = side->gpu;
    const char *recv = side->pool->recv, *slot = recv + pool_offset(&side->layout, 0);
    struct perf_part part;
    for (int i = 0; job_part(&side->job, i, &part); i++) {
        struct check check = bench_check(gpu->bench, &side->job, &part);
        if (part.count)
            gpu_must(gpu_compare(&check, slot, part.at, part.count, gpu->verdict, gpu->stream),
                     "the kernel that checks");
    }
    if (side->result)
        gpu_must(gpu_hash(slot, side->result, gpu->verdict, gpu->stream), "the kernel that hashes");
    gpu_must(gpu_count_trespass(recv, POOL_GUARD, gpu->verdict, gpu->stream),
             "the kernel that checks guards");
    gpu_must(gpu_count_trespass(slot + side->result, side->layout.stride - side->result,
                                gpu->verdict, gpu->stream),
             "the kernel that checks guards");
}

/* What the kernels say about the first slot. */
static struct gpu_verdict judge(const struct gpu_side *side)
{
    const struct gpu_bench *gpu = side->gpu;
    struct gpu_verdict verdict = {.first = ~0ull};
    GPU_MUST(cudaMemcpyAsync(gpu->verdict, &verdict, sizeof verdict, cudaMemcpyHostToDevice,
                             gpu->stream));
    inspect(side);
    GPU_MUST(cudaMemcpyAsync(&verdict, gpu->verdict, sizeof verdict, cudaMemcpyDeviceToHost,
                             gpu->stream));
    GPU_MUST(cudaStreamSynchronize(gpu->stream));
    return verdict;
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
static void explain(const struct gpu_side *side, size_t index)
{
    const struct perf_job *job = &side->job;
    struct perf_part part = part_at(job, index);
    struct check check = bench_check(side->gpu->bench, job, &part);
    size_t bytes = datatype_bytes(check.type);
    uint64_t element = 0;
    struct check_fault fault;
    struct check_bounds bounds = check_bounds(&check);
    const char *slot = side->pool->recv + pool_offset(&side->layout, 0);
    GPU_MUST(cudaMemcpy(&element, slot + index * bytes, bytes, cudaMemcpyDeviceToHost));
    value_check(&check, &bounds, &element, index - part.at, &fault);
    bench_print_fault(side->gpu->bench, side->algorithm, job, index, &fault);
}

/* Checks every value of one more call into poisoned memory, the guards around it, and that all
 * ranks have the same bits. Returns what is wrong over all ranks. */
static size_t check_side(struct gpu_side *side)
{
    run_checked(side);
    struct gpu_verdict verdict = judge(side);
    if (verdict.wrong)
        explain(side, (size_t)verdict.first);
    if (verdict.trespass)
        fprintf(stderr, "alnico-perf: rank %d: %llu bytes around the result were written\n",
                side->gpu->bench->rank, verdict.trespass);
    uint64_t wrong = verdict.wrong + verdict.trespass;
    if (side->job.operation->same)
        wrong += bench_differs(side->gpu->bench, verdict.hash);
    MPI_Allreduce(MPI_IN_PLACE, &wrong, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return wrong;
}

static int make_sides(struct bench *bench, struct perf_row *row, struct gpu_side *sides, bool *able)
{
    int count = 0;
    for (; count < bench->results; count++) {
        sides[count] = side_make(bench->gpu, OURS, row->count, row->type, row->op);
        sides[count].algorithm = row->result[count].algorithm = bench->algorithm[count];
    }
    for (int peer = 0; peer < PEERS; peer++) {
        sides[count] = side_make(bench->gpu, peer, row->count, row->type, row->op);
        if (!peer_can(peer, &sides[count].job, &bench->options))
            continue;
        row->peers |= 1u << peer;
        count++;
    }
    for (int i = 0; i < count; i++)
        able[i] = side_open(&sides[i]);
    return count;
}

void gpu_row(struct bench *bench, struct perf_row *row)
{
    const struct perf_options *options = &bench->options;
    struct gpu_side sides[SIDES];
    bool able[SIDES];
    row->results = bench->results;
    int count = make_sides(bench, row, sides, able);
    measure_row(bench, sides, count, able, row);
    for (int i = 0; i < count && options->overlap; i++)
        measure_overlap(bench, &sides[i],
                        sides[i].peer == OURS ? &row->result[i] : &row->peer[sides[i].peer]);
    for (int i = 0; i < bench->results && options->check; i++)
        row->result[i].wrong = able[i] ? check_side(&sides[i]) : 0;
    for (int i = 0; i < count; i++)
        side_drop_graphs(&sides[i]);
    for (int i = 0; i < count && options->host_time; i++)
        measure_host(&sides[i], able[i],
                     sides[i].peer == OURS ? &row->result[i] : &row->peer[sides[i].peer]);
}
